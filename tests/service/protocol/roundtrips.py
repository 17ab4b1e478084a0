"""Each way from a value through a message and back."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from app.protocol.messages import InferenceRequest, InferenceResponse
from app.rest.request_reader import read_request
from grpc_service import converters

LENGTH = "Inference-Header-Content-Length"
NO_JSON = ["rest binary", "grpc typed", "grpc raw"]

check = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def send_request(form: str, request: InferenceRequest) -> InferenceRequest:
    """Return `request` as the service reads it."""
    if form.startswith("rest"):
        body, headers = request.to_http(binary=form == "rest binary")
        return read_request(body, int(headers[LENGTH]) if LENGTH in headers else None)
    octets = converters.write_request(request, raw=form == "grpc raw")
    return converters.read_request(*converters.parse_request(octets))


def send_response(form: str, response: InferenceResponse) -> InferenceResponse:
    """Return `response` as a client reads it."""
    if form.startswith("rest"):
        return InferenceResponse.from_http(*response.to_http(binary=form == "rest binary"))
    octets = converters.write_response(response, raw=form == "grpc raw")
    return converters.read_response(octets)


def through_request(form: str, codec: Any, payload: Any) -> Any:
    """Encode `payload` with a request codec, send it as a request and decode it."""
    return codec.decode_request(send_request(form, codec.encode_request(payload)))


def through_response(form: str, codec: Any, payload: Any) -> Any:
    """Encode `payload` with a request codec, send it as a response and decode it."""
    return codec.decode_response(send_response(form, codec.encode_response("m", payload)))


WAYS = [through_request, through_response]


def is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
)


json_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
)
json_values = st.recursive(
    json_leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
