"""Measure the CPU time of each case in one process, from request bytes to response bytes, without network and threads.

The cases are those of make bench, and requests with many inputs (total) and many texts (texts). The
last lines are conversions of 1 MiB of binary data.

python -m dev.benchmarks.inprocess [--case S1] [--profile]
"""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import click
import numpy as np
from flask import Flask

from app.config.resources import configure_malloc
from app.inference.call import INFER, Call
from app.inference.outputs import to_datatype
from app.protocol.binary_tensors import Buffer, from_bytes, to_bytes
from app.protocol.datatypes import DATATYPES
from app.rest.routes import HEADER_LENGTH_KEY
from dev.benchmarks import growth
from dev.benchmarks.cases import CASES, Case
from dev.benchmarks.servers import bare, ours
from grpc_service.servicer import InferenceServicer

INPUTS, TEXTS = 32, 2048
ROUNDS = 15
ROUND_SECONDS = 0.1


def over_rest(app: Flask, case: Case) -> Callable[[], object]:
    """Return a function that calls the WSGI application with the request, without observers, which have a thread."""
    if "service" in app.extensions:
        app.extensions["service"].observer_queue.clear_observers()
    fixed = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": case.path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(case.body)),
        "wsgi.url_scheme": "http",
    }
    if case.header_length is not None:
        fixed[HEADER_LENGTH_KEY] = str(case.header_length)

    def call() -> object:
        environ = {**fixed, "wsgi.input": io.BytesIO(case.body)}
        return list(app(environ, start_response))

    call()  # the first request selects the fast path
    return call


def start_response(*response: Any) -> Callable[[bytes], object]:
    """Ignore the status and the headers of a response."""
    return lambda data: None


def over_grpc(app: Flask, case: Case) -> Callable[[], object]:
    service = app.extensions["service"]
    servicer = InferenceServicer(service)
    return lambda: servicer.ModelInfer(case.body, Call(INFER))


def conversions() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield titles and conversions: binary data to the array for predict(), and a float32 result to binary data."""
    for name in ("FP16", "BF16", "FP32"):
        datatype = DATATYPES[name]
        count = 2**20 // (datatype.size or 1)
        result = np.random.default_rng(0).standard_normal(count, np.float32)
        yield (
            f"{name} input, 1 MiB",
            partial(from_bytes, write_result(result, name), datatype, [count]),
        )
        yield f"{name} output, 1 MiB", partial(write_result, result, name)


def write_result(result: np.ndarray, datatype: str) -> Buffer:
    return to_bytes(to_datatype(result, datatype), DATATYPES[datatype])


def micros(call: Callable[[], object]) -> float:
    """Return the median CPU time of a call in µs, over several rounds."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < ROUND_SECONDS:
        call()
        count += 1
    taken = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for _ in range(count):
            call()
        taken.append((time.thread_time() - begun) / count)
    return median(taken) * 1e6


@click.command(help=__doc__)
@click.option("--case", "names", multiple=True, metavar="NAME", help="Measure only this case.")
@click.option("--profile", is_flag=True, help="Print a profile of each case (cProfile).")
def main(names: tuple[str, ...], profile: bool) -> None:
    configure_malloc()
    apps = {
        "linear": ours.linear(),
        "echo": ours.echo(),
        "frame": ours.frame(),
        "total": ours.total(INPUTS),
        "texts": ours.texts(),
    }
    click.echo(
        f"{'a constant Flask route':30}{micros(over_rest(bare.flask_app(), CASES[0])):10.1f} µs"
    )
    more = [*growth.totals(INPUTS), *growth.texts(TEXTS)]
    for case in [*CASES, *(replace(case, name=case.model) for case in more)]:
        if names and case.name not in names:
            continue
        if case.has_tracing_headers:  # a WSGI environment is made once
            continue
        call = (over_rest if case.transport == "http" else over_grpc)(apps[case.model], case)
        click.echo(f"{case.name + ' ' + case.title:30}{micros(call):10.1f} µs")
        if profile:
            show(call)
    for title, convert in [] if names else conversions():
        click.echo(f"{title:30}{micros(convert):10.1f} µs")


def show(call: Callable[[], object]) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    begun = time.perf_counter()
    while time.perf_counter() - begun < 1:
        call()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
