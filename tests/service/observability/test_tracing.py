"""When there are traces, and what is said where there cannot be; tests of the spans need packages of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.tracing import exporters_wanted
from tests.service.processes import gunicorn

ROOT = Path(__file__).parents[3]
ENDPOINT = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("environ", "exporters"),
    [
        ({}, []),
        ({"ENDPOINT": ENDPOINT}, ["otlp_proto_http"]),
        ({"ENDPOINT": " "}, []),
        ({"TRACES_ENDPOINT": ENDPOINT}, ["otlp_proto_http"]),
        ({"ENDPOINT": ENDPOINT, "PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        ({"ENDPOINT": ENDPOINT, "PROTOCOL": "grpc", "TRACES_PROTOCOL": "http/protobuf"}, ["otlp_proto_http"]),
        ({"ENDPOINT": ENDPOINT, "PROTOCOL": "pigeon"}, ["otlp, pigeon"]),
    ],
)
def test_what_is_asked_for(environ: dict[str, str], exporters: list[str]) -> None:
    """OpenTelemetry's variables of OTLP say where spans go, and how."""
    variables = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()}
    assert exporters_wanted(variables) == exporters
    assert exporters_wanted({**variables, "OTEL_SDK_DISABLED": "true"}) == []
    assert exporters_wanted({**variables, "OTEL_TRACES_EXPORTER": "none"}) == []


def test_exporters_by_name() -> None:
    """OTEL_TRACES_EXPORTER names them."""
    assert exporters_wanted({"OTEL_TRACES_EXPORTER": "console, otlp"}) == ["console", "otlp_proto_http"]


def test_without_the_packages(tmp_path: Path) -> None:
    """The service runs without traces, and says which command installs what is missing."""
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError(\"No module named 'opentelemetry'\")")
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "PYTHONPATH": tmp_path, "WORKERS": 1}
    with gunicorn(ROOT, "tests.service.apps:echoing()", **settings) as service:
        pass
    assert (
        "WARNING app.tracing: No traces: No module named 'opentelemetry'. Install the packages: " in service.last_words
    )
    assert "pip install -e '.[tracing]'" in service.last_words
