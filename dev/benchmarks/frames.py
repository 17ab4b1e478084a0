"""Measure the conversion of a DataFrame to a binary InferenceRequest and back, relative to copying its columns.

Run `python dev/benchmarks/frames.py [--rounds N] [--rows N]`. The conversion and the copy alternate in
one process, so that noise affects both. malloc has the service's settings.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.codecs import PandasCodec
from app.config.resources import configure_malloc
from app.protocol.http_body import HEADER_LENGTH
from app.rest.request_reader import read_request

DTYPES = ["float64", "float32", "int64", "int32", "bool"]


def make_frame(rows: int) -> pd.DataFrame:
    """Return a data frame with ten columns, two of each dtype."""
    generator = np.random.default_rng(0)
    columns = {}
    for index in range(10):
        dtype = DTYPES[index % len(DTYPES)]
        columns[f"column-{index}"] = generator.integers(0, 2**31, rows).astype(dtype)
    return pd.DataFrame(columns)


def encode(frame: pd.DataFrame) -> tuple[bytes, int]:
    body, headers = PandasCodec.encode_request(frame).to_http()
    return body, int(headers[HEADER_LENGTH])


def decode(body: bytes, length: int) -> pd.DataFrame:
    return PandasCodec.decode_request(read_request(body, length))


def copy_columns(frame: pd.DataFrame) -> list[np.ndarray]:
    return [frame[name].to_numpy().copy() for name in frame.columns]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@click.command(help=__doc__)
@click.option("--rounds", default=200, show_default=True, help="Number of runs of each conversion.")
@click.option("--rows", default=100_000, show_default=True, help="Number of rows in the DataFrame.")
def main(rounds: int, rows: int) -> None:
    configure_malloc()
    frame = make_frame(rows)
    body, length = encode(frame)
    back = decode(body, length)
    pd.testing.assert_frame_equal(back, frame)
    back.iloc[0, 0] = 1
    pd.testing.assert_frame_equal(decode(body, length), frame)

    sides: dict[str, Callable[[], object]] = {
        "copy of each column": lambda: copy_columns(frame),
        "frame to bytes": lambda: encode(frame),
        "bytes to frame": lambda: decode(body, length),
        "there and back": lambda: decode(*encode(frame)),
    }
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            taken[name].append(seconds(call))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    plain = medians["copy of each column"]
    for name, median in medians.items():
        click.echo(f"{name:20} {median * 1e3:8.3f} ms  {median / plain:6.2f} times a copy")


if __name__ == "__main__":
    main()
