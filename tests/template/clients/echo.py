"""Data for the model `conformance` (oip_conformance/model.py), which returns `NAME_in` as `NAME_out`."""

import numpy as np

SMALLEST_FP16 = 2.0**-24

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

# By name. Each tensor contains the limits of its datatype, and all values can be sent as JSON.
TENSORS = {
    "bool": np.array([True, False, True]),
    **{name: np.array([np.iinfo(name).min, 7, np.iinfo(name).max], name) for name in INTEGERS},
    "fp16": np.array([SMALLEST_FP16, -1 / 3, 65504], np.float16),
    "fp32": np.array([1e-45, -1 / 3, np.finfo(np.float32).max], np.float32),
    "fp64": np.array([5e-324, -1 / 3, np.finfo(np.float64).max]),
    "bytes": np.array([b"", "é, 水".encode(), b"a\0b"], object),
    "grid": np.arange(6, dtype=np.int32).reshape(2, 3),
    "cube": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    "pairs": np.array([[0.5, -2], [3, 1e30]], np.float32),
    "column": np.array([[4], [5]], np.int32),
}
DATATYPES = {name: name.upper() for name in (*TENSORS, "bf16")} | {
    "grid": "INT32",
    "cube": "INT32",
    "pairs": "FP32",
    "column": "INT32",
}
EMPTY = {name: tensor[:0] for name, tensor in TENSORS.items()} | {
    "grid": np.empty((2, 0), np.int32)
}
NAN = {
    name: np.array([np.nan, 1.5], dtype)
    for name, dtype in (("fp16", "f2"), ("fp32", "f4"), ("fp64", "f8"))
}
# Values that only binary forms can carry.
BINARY = {name: np.array([np.inf, -np.inf], array.dtype) for name, array in NAN.items()} | {
    "bytes": np.array([b"\xff\xfe", b""], object)
}

# A shape that `pairs_in` does not accept.
WRONG_PAIRS = np.ones((2, 3), np.float32)

# Values of BF16 as FP32: the smallest, a rounded one and the largest. KServe and MLServer do not support BF16.
BF16 = np.array([2.0**-133, -0.333984375, (2 - 2.0**-7) * 2.0**127], np.float32)
BF16_BITS = BF16.view("<u2")[1::2]  # the upper halves

# More than 1 KiB, as text and as bytes: responses are compressed above this size.
MANY = {name: np.tile(TENSORS[name], 200) for name in ("fp32", "bytes")}
# Messages that the model raises, and the part that must be in the error. The second exceeds 1 KiB in UTF-8.
FAILURES = [("cannot: é", "cannot: é"), ("水" * 1000, "水" * 400)]


def check(received: np.ndarray, sent: np.ndarray) -> None:
    """Check that `found`, as the client reads it, equals `sent` in dtype, shape and elements.

    Text is compared as UTF-8.
    """
    assert received is not None
    if sent.dtype == object:
        received, sent = as_bytes(received), as_bytes(sent)
    np.testing.assert_array_equal(received, sent, strict=True)


def as_bytes(array: np.ndarray) -> np.ndarray:
    elements = [
        element.encode() if isinstance(element, str) else element for element in array.ravel()
    ]
    return np.array([*elements, None], object)[:-1].reshape(array.shape)
