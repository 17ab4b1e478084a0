"""The context of a request in predict(), and its headers and parameters of the response, over both protocols."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.api import (
    ConfigurationError,
    InferenceRequest,
    InvalidInput,
    MetadataTensor,
    NotFound,
    PayloadTooLarge,
    RequestContext,
    Unavailable,
)
from app.protocol.errors import InferenceError
from oip_conformance.wires import FORMS, Grpc, Response
from tests.kit import models
from tests.kit.service import Service

X, Y = MetadataTensor("x", "FP32", [-1]), MetadataTensor("y", "FP32", [-1])
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {
    "X-Request-Id": "one",
    "X-Tenant": "blue",
    "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
}


def send(
    service: Service,
    form: str,
    count: int = 2,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> Any:
    """Send a request with headers or metadata, and return the response and its headers or trailing metadata."""
    client, sent = service.forms[form], [("x", "FP32", [count], [1.0] * count)]
    if form.startswith("rest"):
        post = client.client.post
        client = type(client)(service.app.test_client(), binary=form.endswith("binary"))
        client.client.post = lambda path, data, headers: post(
            path, data=data, headers={**headers, **added}
        )
        added = headers or {}
        response: Response = client.infer(sent, **options)
        return response, {name.lower(): value for name, value in response.raw.headers.items()}
    trailing: dict[str, str] = {}

    class Channel:
        def unary_unary(self, method: str) -> Any:
            invoke = service.channel.unary_unary(method)

            def call(body: bytes, timeout: float) -> bytes:
                metadata = [(name.lower(), value) for name, value in (headers or {}).items()]
                future = invoke.future(body, timeout=timeout, metadata=metadata)
                trailing.update(future.trailing_metadata())
                return future.result()

            return call

    return Grpc(Channel(), raw=form.endswith("raw")).infer(sent, **options), trailing


def served(serve: Callable[..., Service], predict: Any, **settings: Any) -> Service:
    return serve(models.model([X], [Y], predict), **settings)


@pytest.mark.parametrize("form", FORMS)
def test_predict_reads_the_context(serve: Callable[..., Service], form: str) -> None:
    """predict() takes named inputs and the context, with the id, headers, parameters, deadline, client and trace."""
    seen: list[RequestContext] = []

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        remaining = context.time_remaining()
        assert remaining is not None
        assert 0 < remaining <= 20
        assert (context.id, context.headers["x-TENANT"], context.headers.get("absent")) == (
            "one",
            "blue",
            None,
        )
        assert (context.parameters["top_k"], context.rows, context.trace_id) == (3, 2, TRACE)
        assert (context.protocol, context.client_address) == (form.partition(" ")[0], "127.0.0.1")
        seen.append(context)
        return x

    response, _ = send(
        served(serve, predict),
        form,
        headers=HEADERS,
        parameters={"top_k": 3, "timeout": 20_000_000},
    )
    assert response.is_success, response
    assert len(seen) == 1


@pytest.mark.parametrize("form", FORMS)
def test_context_extends_the_response(serve: Callable[..., Service], form: str) -> None:
    """The model adds headers and parameters to a response, and the next response does not have them."""

    def predict(_: Any, context: RequestContext, x: np.ndarray) -> np.ndarray:
        if "any" in context.parameters:
            context.response_headers["X-Model-Cache"] = "hit"
            context.response_parameters["score"] = np.float32(0.5)
        return x

    service = served(serve, predict)
    response, headers = send(service, form, parameters={"any": 1})
    assert (response.parameters, headers["x-model-cache"]) == ({"score": 0.5}, "hit")
    response, headers = send(service, form)
    assert (response.parameters, "x-model-cache" in headers) == ({}, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "1") for name in ("content-type", "X-Request-Id", "grpc-status", "connection")),
        *((name, "1") for name in ("x y", "x-bin", "")),
        *(("X-Bad", value) for value in ("a\r\nb", "é")),
    ],
)
@pytest.mark.parametrize("form", ["rest json", "grpc raw"])
def test_rejects_invalid_response_headers(
    serve: Callable[..., Service], form: str, name: str, value: str
) -> None:
    """A header that the service sets itself, or that a protocol cannot represent, is an error of the model."""

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        context.response_headers.update({"X-Good": "1", name: value})
        return x

    response, _ = send(served(serve, predict), form)
    assert response.kind == "INTERNAL"
    assert f"Invalid response header {name!r}" in response.text


@pytest.mark.parametrize("form", ["rest json", "grpc raw"])
def test_removes_response_headers(serve: Callable[..., Service], form: str) -> None:
    """predict() can remove a header that it has added, by its name in any case."""

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        context.response_headers.update({"X-One": "1", "X-Two": "2"})
        del context.response_headers["X-ONE"]
        assert context.response_headers.pop("x-two") == "2"
        return x

    response, headers = send(served(serve, predict), form)
    assert response.is_success
    assert not {"x-one", "x-two"} & headers.keys()


@pytest.mark.parametrize("form", ["rest json", "grpc raw"])
def test_rejects_invalid_response_parameters(serve: Callable[..., Service], form: str) -> None:
    """R17: A parameter that is not a string, number or boolean is an error of the model."""

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        context.response_parameters["list"] = [1]
        return x

    response, _ = send(served(serve, predict), form)
    assert (response.kind, '"list"' in response.text) == ("INTERNAL", True)


def test_batch_has_one_context_per_request(serve: Callable[..., Service]) -> None:
    """In a batch, predict() takes the contexts of all requests with their rows, and extends each response."""
    calls: list[list[int]] = []

    def predict(_: Any, x: np.ndarray, contexts: list[RequestContext]) -> np.ndarray:
        calls.append(sorted(context.rows for context in contexts))
        for context in contexts:
            context.response_headers["x-rows"] = context.response_parameters["rows"] = str(
                context.rows
            )
        return x * 2

    service = served(serve, predict, max_batch_size=10, max_batch_delay_ms=20_000)
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(lambda form, count: send(service, form, count), FORMS, [1, 2, 3, 4])
        )
    assert calls == [[1, 2, 3, 4]]
    row_counts = [
        (len(response.outputs["y"][2]), headers["x-rows"], response.parameters["rows"])
        for response, headers in results
    ]
    assert row_counts == [(count, str(count), str(count)) for count in (1, 2, 3, 4)]


@pytest.mark.parametrize("form", FORMS)
def test_list_of_contexts_without_batching(serve: Callable[..., Service], form: str) -> None:
    """Without batching, the list contains one context with the rows of the request."""

    def predict(_: Any, x: np.ndarray, contexts: list[RequestContext]) -> np.ndarray:
        return x + [context.rows for context in contexts]

    response, _ = send(served(serve, predict), form)
    assert response.outputs["y"][2] == [3, 3]


def test_batching_needs_a_list_of_contexts(serve: Callable[..., Service]) -> None:
    """The service does not start if predict() takes one context and a batch has several."""

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        return x

    with pytest.raises(
        ConfigurationError, match=r"Expected list\[RequestContext\] with MAX_BATCH_SIZE"
    ):
        served(serve, predict, max_batch_size=2)


@pytest.mark.parametrize("form", ["rest json", "grpc raw"])
def test_context_next_to_a_frame(serve: Callable[..., Service], form: str) -> None:
    """A parameter for all inputs and the context work together."""

    def predict(_: Any, context: RequestContext, frame: pd.DataFrame) -> pd.Series:
        return frame["x"] * context.parameters["factor"]

    response, _ = send(served(serve, predict), form, parameters={"factor": 3})
    assert response.outputs["y"][2] == [3, 3]


def test_warm_up_has_a_context(serve: Callable[..., Service]) -> None:
    """The call with EXAMPLE at startup gets an empty context."""
    seen: list[Any] = []

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        context.response_headers["x-seen"] = "1"
        seen.append(
            (
                dict(context.headers),
                dict(context.parameters),
                context.time_remaining(),
                context.client_address,
            )
        )
        return x

    module = models.model([X], [Y], predict)
    module.warm_up, module.EXAMPLE = None, {"x": [1.0]}
    serve(module)
    assert seen == [({}, {}, None, "")]


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidInput, 400, "INVALID_ARGUMENT"),
        (NotFound, 404, "NOT_FOUND"),
        (PayloadTooLarge, 413, "RESOURCE_EXHAUSTED"),
        (Unavailable, 503, "UNAVAILABLE"),
        (InferenceError, 500, "INTERNAL"),
    ],
)
def test_model_selects_the_status(
    serve: Callable[..., Service], error: type[InferenceError], status: int, kind: str, batch: int
) -> None:
    """R19, G1: predict() raises an error with the status of its class, and its headers are in the response."""

    def predict(_: Any, x: np.ndarray, contexts: list[RequestContext]) -> np.ndarray:
        contexts[0].response_headers["x-reason"] = "none"
        raise error("No such customer.")

    service = served(serve, predict, max_batch_size=batch)
    for form in FORMS:
        response, headers = send(service, form)
        assert (response.kind, response.text, headers["x-reason"]) == (
            kind,
            "No such customer.",
            "none",
        )
        assert form.startswith("grpc") or response.raw.status_code == status


@pytest.mark.parametrize("form", FORMS)
def test_warns_once_of_ignored_parameters(
    serve: Callable[..., Service], caplog: pytest.LogCaptureFixture, form: str
) -> None:
    """The log has one warning for parameters that predict() does not read, without names that the client chose."""
    service = served(serve, lambda _, x: x)
    send(service, form, parameters={"timeout": 60_000_000})
    assert caplog.messages == []
    send(service, form, parameters={"secret": 1, "sequence_start": True, "sequence_id": 5})
    send(service, form, parameters={"secret": 1})
    (message,) = caplog.messages
    assert "Ignored request parameter (sequence_id, sequence_start)" in message
    assert "secret" not in message


def test_model_that_reads_parameters_gets_no_warning(
    serve: Callable[..., Service], caplog: pytest.LogCaptureFixture
) -> None:
    """No parameter is ignored if predict() takes the context or the whole request."""

    def predict(_: Any, x: np.ndarray, context: RequestContext) -> np.ndarray:
        return x

    def predict_request(_: Any, request: InferenceRequest) -> np.ndarray:
        return request.inputs[0].data

    for function in (predict, predict_request):
        send(served(serve, function), "grpc raw", parameters={"sequence_id": 5})
    assert caplog.messages == []
