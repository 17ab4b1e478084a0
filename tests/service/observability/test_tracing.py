"""The variables that enable traces, and the warning if packages are missing. tests/template tests the spans."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.observability.tracing import ENDPOINTS, make_spans
from app.protocol.metadata import MetadataTensor, ModelMetadata
from tests.kit.processes import gunicorn

ROOT = Path(__file__).parents[3]
ENDPOINT = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ENDPOINT}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_environment_enables_traces(
    environ: dict[str, str],
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """OpenTelemetry's variables decide whether the service tries to import it, which fails here."""
    for name in (*ENDPOINTS, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "app.observability.spans", raising=False)
    tensors = [MetadataTensor("x", "FP32", [-1])]
    assert make_spans(ModelMetadata("m", "1", "p", tensors, tensors)) is None
    assert ("Tracing is disabled" in caplog.text) == wanted


def test_missing_packages_disable_traces(tmp_path: Path) -> None:
    """The service runs without traces, and the log names the command that installs the packages."""
    (tmp_path / "opentelemetry.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'opentelemetry'\")"
    )
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "PYTHONPATH": tmp_path, "WORKERS": 1}
    with gunicorn(ROOT, "tests.service.apps:echoing()", **settings) as service:
        pass
    assert (
        "WARNING app.observability.tracing: Tracing is disabled: No module named 'opentelemetry'. Install the packages"
        in service.last_words
    )
    assert "pip install -e '.[tracing]'" in service.last_words
