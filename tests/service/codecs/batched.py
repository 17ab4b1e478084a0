"""Requests of all forms that run in one batch."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oip_conformance.wires import Response, Rest
from tests.kit.service import Service

ALL_FORMS = ["rest json", "rest binary", "grpc typed", "grpc raw"]


def infer_in_one_batch(
    serve: Callable[..., Service], module: Any, calls: list[dict[str, Any]]
) -> list[Response]:
    """Send `calls`, the arguments of infer() and the `form` for one row each, in one batch. Return the responses."""
    service = serve(
        module, max_batch_size=len(calls), max_batch_delay_ms=20_000
    )  # less than the timeout of gRPC

    def send(form: str, **arguments: Any) -> Response:
        client = service.forms[form]
        if form.startswith("rest"):  # a client of Flask is not thread-safe
            client = Rest(service.app.test_client(), binary=form == "rest binary")
        return client.infer(**arguments)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda arguments: send(**arguments), calls))
