"""Tables of valid and invalid values, for tests of any server of this protocol."""

from __future__ import annotations

import struct

from oip_conformance.wires import pack

# Some values of every datatype, including its limits.
VALUES: dict[str, list] = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**64 - 1],
    "INT8": [-128, 127],
    "INT16": [-32768, 32767],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "FP16": [-65504.0, 5.960464477539063e-08],
    "BF16": [3.3895313892515355e38, -9.183549615799121e-41],
    "FP32": [25.12, -0.0],
    "FP64": [1.7976931348623157e308, 5e-324],
    "BYTES": [b"", "naïve 🌷".encode()],
}

# The lowest and highest integer of each datatype.
RANGES = {
    "INT8": (-(2**7), 2**7 - 1),
    "INT16": (-(2**15), 2**15 - 1),
    "INT32": (-(2**31), 2**31 - 1),
    "INT64": (-(2**63), 2**63 - 1),
    "UINT8": (0, 2**8 - 1),
    "UINT16": (0, 2**16 - 1),
    "UINT32": (0, 2**32 - 1),
    "UINT64": (0, 2**64 - 1),
}

# Shape, JSON text of `data`, and the number of its elements, which are 1, 2, 3, 4 in order (R10).
VALID_NESTINGS: list = [
    ([4], "[1, 2, 3, 4]", 4),
    ([4], "[[1, 2], [3, 4]]", 4),
    ([2, 2], "[1, 2, 3, 4]", 4),
    ([2, 2], "[[1, 2], [3, 4]]", 4),
    ([2, 2], "[[[1, 2], [3, 4]]]", 4),
    ([2, 2], "[[1], [2], [3], [4]]", 4),
    ([2, 2, 1], "[[1, 2, 3, 4]]", 4),
    ([1, 4], "[[[[1]], [[2]]], [[[3]], [[4]]]]", 4),
    ([1], "1", 1),
    ([1, 1], "1", 1),
    ([1, 1], "[[[1]]]", 1),
    ([0], "[]", 0),
    ([2, 0], "[[], []]", 0),
    ([0, 2], "[]", 0),
    ([0], "[[], [], []]", 0),
]

# Shape, JSON text of `data` that does not fit it, and the error message (R9, R10).
MISMATCHED_DATA: list = [
    ([3], "[[1, 2], [3]]", "nested lists of different lengths"),
    ([2], "[1, [2]]", "nested lists of different lengths"),
    ([2], "[[1], 2]", "nested lists of different lengths"),
    ([2, 2], "[[1, 2], [[3, 4]]]", "nested lists of different lengths"),
    ([0], "[[], [[]]]", "nested lists of different lengths"),
    ([1], "[[], [1]]", "nested lists of different lengths"),
    ([3], "[1, 2]", "got 2 for [3], which has 3"),
    ([2], "[1, 2, 3]", "got 3 for [2], which has 2"),
    ([2, 2], "[[1, 2]]", "got 2 for [2,2], which has 4"),
    ([2], "1", "got 1 for [2], which has 2"),
    ([1], "[]", "got 0 for [1], which has 1"),
    ([0], "[0]", "got 1 for [0], which has 0"),
    ([0], "0", "got 1 for [0], which has 0"),
    (
        [4294967296, 4294967296],
        "[]",
        "got 0 for [4294967296,4294967296], which has 18446744073709551616",
    ),
]

# Datatype, JSON text of `data` in the request, and JSON text of `data` in the response (R11-R14).
VALID_ELEMENTS: list = [
    ("BOOL", "[true, false, 1, 0]", "[true,false,true,false]"),
    ("UINT8", "[0, 255, 1.0, 2e0]", "[0,255,1,2]"),
    ("UINT16", "[65535]", "[65535]"),
    ("UINT32", "[4294967295, 4294967295.0]", "[4294967295,4294967295]"),
    ("UINT64", "[18446744073709551615, 0]", "[18446744073709551615,0]"),
    ("UINT64", "[18446744073709551615, 1.0]", "[18446744073709551615,1]"),
    ("INT8", "[-128, 127, -1.0, -0.0]", "[-128,127,-1,0]"),
    ("INT16", "[-32768, 32767]", "[-32768,32767]"),
    ("INT32", "[-2147483648, 2147483647]", "[-2147483648,2147483647]"),
    (
        "INT64",
        "[-9223372036854775808, 9223372036854775807]",
        "[-9223372036854775808,9223372036854775807]",
    ),
    ("INT64", "[9007199254740993, 1.0]", "[9007199254740993,1]"),
    ("FP16", "[65504, 65519.9, -65504, 0.5, 1]", "[65504.0,65504.0,-65504.0,0.5,1.0]"),
    ("FP16", "[null, -0.0, 1e-30]", "[null,-0.0,0.0]"),
    (
        "BF16",
        "[0.1, 257, 1.00390625, 1.01171875, 1.00390625000001]",
        "[0.100097656,256.0,1.0,1.015625,1.0078125]",
    ),
    ("BF16", "[3.396e38, null, -0.0, 4.6e-41, 1e-46]", "[3.3895314e38,null,-0.0,9.1835e-41,0.0]"),
    ("FP32", "[25.12, 0.1, 16777217, null]", "[25.12,0.1,16777216.0,null]"),
    ("FP32", "[3.4028234663852886e38, 1e-46]", "[3.4028235e38,0.0]"),
    (
        "FP64",
        "[0.1, 1e308, 5e-324, null, 18446744073709551615]",
        "[0.1,1e308,5e-324,null,18446744073709551616.0]",
    ),
    ("BYTES", '["", "a", "\\u0000", "\\ud83c\\udf37"]', '["","a","\\u0000","🌷"]'),
]

# Datatype, JSON text of an element that it cannot hold, and a part of the error message (R11, R12).
INVALID_ELEMENTS: list = [
    ("UINT8", "256", "Expected UINT8 from 0 to 255, got 256"),
    ("UINT8", "300", "Expected UINT8 from 0 to 255, got 300"),
    ("UINT8", "-1", "Expected UINT8 from 0 to 255, got -1"),
    ("UINT8", "300.0", "300.0"),
    ("UINT8", "-1.0", "-1.0"),
    ("UINT8", "1.5", "1.5"),
    ("UINT16", "65536.0", "65536.0"),
    ("UINT32", "4294967296", "Expected UINT32 from 0 to 4294967295, got 4294967296"),
    ("UINT32", "4294967296.0", "4294967296.0"),
    ("UINT64", "18446744073709551616", "got 1.8446744073709552e+19"),
    ("UINT64", "-1", "Expected UINT64 from 0 to 18446744073709551615, got -1"),
    ("UINT64", "-1.0", "-1.0"),
    ("INT8", "128", "Expected INT8 from -128 to 127, got 128"),
    ("INT8", "-129.0", "-129.0"),
    ("INT16", "1e5", "100000.0"),
    ("INT32", "2147483648", "Expected INT32 from -2147483648 to 2147483647, got 2147483648"),
    ("INT32", "2147483648.0", "2147483648.0"),
    ("INT32", "1.5", "1.5"),
    ("INT32", "1e300", "1e+300"),
    ("INT32", "null", "Expected an integer for INT32"),
    ("INT32", "true", "Expected an integer for INT32"),
    ("INT32", '"1"', 'Expected an integer for INT32, got "1"'),
    ("INT32", "{}", "Expected an integer for INT32"),
    ("INT64", "9223372036854775808", "got 9223372036854775808"),
    ("INT64", "-9223372036854775809", "got -9.223372036854776e+18"),
    ("INT64", "1e19", "1e+19"),
    ("BOOL", "2", "got 2"),
    ("BOOL", "-1", "got -1"),
    ("BOOL", "1.0", "Expected a boolean for BOOL"),
    ("BOOL", "0.0", "Expected a boolean for BOOL"),
    ("BOOL", '"true"', "Expected a boolean for BOOL"),
    ("BOOL", "null", "Expected a boolean for BOOL"),
    ("FP16", "65520", "got 65520"),
    ("FP16", "-65520.0", "got -65520.0"),
    ("BF16", "3.4e38", "Expected BF16 within ±3.3895313892515355e+38, got 3.4e+38"),
    ("BF16", "-3.39617752923046e38", "got -3.39617752923046e+38"),
    ("BF16", "true", "Expected a number for BF16"),
    ("FP32", "1e39", "got 1e+39"),
    ("FP32", "-3.5e38", "got -3.5e+38"),
    ("FP32", "true", "Expected a number for FP32"),
    ("FP32", '"1.5"', 'Expected a number for FP32, got "1.5"'),
    ("FP64", '"NaN"', "Expected a number for FP64"),
    ("FP64", "{}", "Expected a number for FP64"),
    ("BYTES", "1", "Expected a string for BYTES"),
    ("BYTES", "1.5", "Expected a string for BYTES"),
    ("BYTES", "true", "Expected a string for BYTES"),
    ("BYTES", "{}", "Expected a string for BYTES"),
]

# Texts that JSON does not allow as numbers, and numbers beyond the range of FP64 (R12).
INVALID_NUMBERS: list = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e999",
    "+1",
    ".5",
    "1.",
    "01",
    "0x1",
]

# Values of Content-Type, all of which are ignored (R18).
CONTENT_TYPES: list = [
    None,
    "",
    "application/json; charset=utf-8",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/plain",
    "nonsense",
]

# Values of Content-Encoding that are rejected (R18).
UNKNOWN_CODINGS: list = [
    "br",
    "zstd",
    "compress",
    "gzip, br",
    "br, gzip",
    "x",
    "gzip;q=1",
    "chunked",
    "*",
]

# Values of Accept-Encoding that request a compressed response (R18).
ACCEPT_ENCODINGS_WITH_COMPRESSION: list = [
    "gzip",
    "deflate",
    "gzip, deflate, br",
    "br;q=1, gzip;q=0.1",
    "identity;q=0.5, deflate",
    "GZIP",
]

# Values of Accept-Encoding that request a response without compression (R18).
ACCEPT_ENCODINGS_WITHOUT_COMPRESSION: list = [
    None,
    "",
    "br",
    "identity",
    "gzip;q=0",
    "gzip;q=0, deflate;q=0.0",
    "nonsense",
]

# Bodies that are not JSON (R20).
INVALID_JSON: list = [
    b"",
    b" ",
    b"\n",
    b"\0",
    b"{",
    b"}",
    b"nul",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b"{} {}",
]

# Texts that are not a valid length of the JSON in a body of less than 1 MB (B4).
INVALID_LENGTHS: list = [
    "abc",
    "",
    " ",
    "-1",
    "+5",
    "5.0",
    "1e2",
    "0x10",
    "99999999999",
    "9" * 400,
    "9" * 5000,
    "1,2",
    "²",
    "٣",
    "None",
    "1 2",
    "1_0",
]

# Shape, elements and error message (R9). The shape is negative, overflows 64 bits or numpy, or does
# not fit the data.
INVALID_SHAPES: list = [
    ([-1, 2], [1.0, 2.0], "invalid shape. Expected integers of at least 0, got -1"),
    ([1, -2], [1.0, 2.0], "invalid shape. Expected integers of at least 0, got -2"),
    ([-(2**63), 0], [], "invalid shape. Expected integers of at least 0"),
    ([0, 2**62], [], "shape too large for an array. Got [0,4611686018427387904]"),
    ([2**62, 0], [], "shape too large for an array. Got [4611686018427387904,0]"),
    ([2**63 - 1, 0], [], "shape too large for an array. Got [9223372036854775807,0]"),
    ([2**32, 2**32], [], "wrong number of "),
    ([2**32, 2**32], [1.0], "wrong number of "),
    ([2**63 - 1, 2], [1.0], "wrong number of "),
    ([2**33, 2**31], [], "wrong number of "),
    ([10**6, 10**6], [1.0], "wrong number of "),
    ([1] * 65, [1.0], "invalid shape. Expected at most 64 dimensions, got 65"),
]

# Datatype, shape, bytes in hexadecimal, and elements (B1).
BINARY_ELEMENTS: list = [
    ("BOOL", [2], "00 01", [False, True]),
    ("UINT8", [2], "01 ff", [1, 255]),
    ("UINT16", [2], "01 00 ff fe", [1, 0xFEFF]),
    ("UINT32", [1], "01 02 03 04", [0x04030201]),
    ("UINT64", [1], "01 00 00 00 00 00 00 80", [2**63 + 1]),
    ("INT8", [2], "80 7f", [-128, 127]),
    ("INT16", [2, 2], "01 00 02 00 03 00 fe ff", [1, 2, 3, -2]),
    ("INT32", [1], "fe ff ff ff", [-2]),
    ("INT64", [1], "00 00 00 00 00 00 00 80", [-(2**63)]),
    ("FP16", [2], "00 3e 00 80", [1.5, -0.0]),
    ("BF16", [3], "c0 3f 00 80 c8 41", [1.5, -0.0, 25.0]),
    ("FP32", [2], "00 00 c0 3f ec 51 c8 41", [1.5, 25.04]),
    ("FP64", [1], "00 00 00 00 00 00 f8 3f", [1.5]),
    ("BYTES", [3], "02 00 00 00 61 62 00 00 00 00 02 00 00 00 c3 a9", ["ab", "", "é"]),
]

# Blobs that are not two elements of BYTES, and the error message (B5).
INVALID_BYTES_DATA: list = [
    (b"", "got 0 for [2], which has 2"),
    (pack("BYTES", ["a"]), "got 1 for [2], which has 2"),
    (
        pack("BYTES", ["a", "b", "c"]),
        "got 3 for [2], which has 2",
    ),
    (pack("BYTES", ["a", "b"])[:-1], "Expected at least 10 bytes for its elements, got 9"),
    (pack("BYTES", ["a", "b"]) + b"\0", "Expected at least 15 bytes for its elements, got 11"),
    (pack("BYTES", ["a"]) + b"\0\0\0", "Expected at least 12 bytes for its elements, got 8"),
    (struct.pack("<I", 2**32 - 1), "Expected at least 4294967299 bytes for its elements, got 4"),
    (
        struct.pack("<I", 2**32 - 1) + b"ab",
        "Expected at least 4294967299 bytes for its elements, got 6",
    ),
    (struct.pack(">I", 1) + b"a", "Expected at least 16777220 bytes for its elements, got 5"),
    (b"ab", "Expected at least 6 bytes for its elements, got 2"),
]

# JSON texts of values other than objects. A request is an object (R20).
NON_OBJECTS: list[str] = ["[]", "null", "true", "5", '"inputs"', "[{}]"]
