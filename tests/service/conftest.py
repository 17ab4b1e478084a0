"""Fixtures: a service of any small model in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from werkzeug.routing import Rule

from app.config.settings import Settings
from oip_conformance.wires import FORMS
from tests.kit import models
from tests.kit.service import Service


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Escape lone surrogates in logs. pytest-xdist cannot send them to another process."""
    report = yield
    sections = []
    for name, text in report.sections:
        escaped_text = text.encode(errors="backslashreplace").decode()
        sections.append((name, escaped_text))
    report.sections = sections
    return report


@pytest.fixture(scope="session", autouse=True)
def restore_sigint() -> None:
    """Restore the handler of SIGINT.

    Background jobs of a script ignore SIGINT, and so would their child processes.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def compile_url_builders_once() -> Iterator[None]:
    """Compile the URL builder of a rule once for all applications.

    Compilation takes most of the time to create an application.
    """
    compile_builder = getattr(Rule, "_compile_builder", None)  # not in other versions of werkzeug
    compiled: dict[tuple[Any, ...], Any] = {}

    def compile_once(rule: Rule, append_unknown: bool = True) -> Any:
        key = rule.rule, repr(rule.defaults), append_unknown
        if key not in compiled:
            compiled[key] = compile_builder(rule, append_unknown)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rule, "_compile_builder", compile_once, raising=False)
        yield


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Service]]:
    """Yield serve(module, **settings), which returns a Service.

    The service is closed after the last test of the file.
    """
    services: list[Service] = []

    def start(module: Any = None, **settings: Any) -> Service:
        base = Settings(host="127.0.0.1", grpc_port=0, shutdown_timeout_seconds=5)
        service = Service(module, replace(base, **settings))
        services.append(service)
        return service

    yield start
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Service.close, services))


@pytest.fixture(scope="module")
def echoes(serve: Callable[..., Service]) -> Callable[..., Service]:
    """Return echoes(datatype, *shape), which returns a cached service of models.echo.

    The shape defaults to [-1].
    """

    @cache
    def serve_echo(datatype: str, *shape: int) -> Service:
        sizes = list(shape) or [-1]
        return serve(models.echo(datatype, sizes))

    return serve_echo


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Return each of the four forms, one per test. service.forms[form] is its client."""
    return request.param
