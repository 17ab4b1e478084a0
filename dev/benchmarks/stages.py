"""CPU time of a request by stage, in one process: python -m dev.benchmarks.stages [--case S1]

A worker needs more CPU time per request for system calls and threads (python -m dev.benchmarks.versus).
"""

from __future__ import annotations

import io
import logging
from functools import partial
from typing import Any

import click

from app.config.resources import configure_malloc
from app.inference.request_context import INFER, RequestContext
from app.observability.access_log import AccessLog
from app.protocol.envelope import REQUEST, read_object
from app.rest.middleware import RestContext
from app.rest.routes import Inference, binary_outputs
from app.server.request_parser import Request, RequestParser, Rules
from app.server.response import Response
from dev.benchmarks.cases import CASES
from dev.benchmarks.inprocess import micros, start_response
from dev.benchmarks.servers import ours

BASE = {
    "wsgi.url_scheme": "http",
    "SCRIPT_NAME": "",
    "SERVER_NAME": "127.0.0.1",
    "SERVER_PORT": "8080",
}
RULES = Rules(4094, 100, 8190, 2**27, "MAX_REQUEST_BYTES", BASE, frozenset(), {})
REQUESTS = 128  # observers receive contexts in groups


@click.command(context_settings={"show_default": True})
@click.option("--case", "name", default="S1", help="REST case to measure.")
def main(name: str) -> None:
    """Measure the CPU time of each stage of a request."""
    configure_malloc()
    case = next(case for case in CASES if case.name == name and case.transport == "http")
    app = {"linear": ours.linear, "echo": ours.echo}[case.model]()
    service = app.extensions["service"]
    infer = Inference(service.plane, service.settings, partial(read_object, REQUEST))
    infer.plane.observer_queue.observers.clear()  # observers have a separate stage
    head = {
        "Host": "127.0.0.1:8080",
        "User-Agent": "bench",
        "Content-Length": str(len(case.body)),
        **case.headers,
    }
    lines = "".join(f"{field}: {value}\r\n" for field, value in head.items())
    message = f"POST {case.path} HTTP/1.1\r\n{lines}\r\n".encode() + case.body
    parser = RequestParser(RULES, {})

    def parse() -> Request:
        parser.feed(message)
        return parser.requests.popleft()  # type: ignore[return-value]

    parsed = parse()

    def run() -> Any:
        environ = {**parsed.environ, "wsgi.input": io.BytesIO(case.body)}
        return app(environ, start_response)

    def decode() -> Any:
        return infer.read(case.body, case.header_length)

    def make_context() -> RequestContext:
        context = RestContext(
            {**BASE, "REQUEST_METHOD": "POST", "PATH_INFO": case.path, "REMOTE_ADDR": "127.0.0.1"}
        )
        context.operation, context.status, context.known_path = INFER, "200", context.path
        return context

    run()  # the first request selects the fast path
    request = decode()
    response = infer.plane.infer(request, make_context())
    (body,) = run()
    written = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("X-Request-Id", "0" * 32),
    ]

    def write() -> None:
        answer = Response(parsed, "bench", lambda data: None)
        answer.start("200 OK", written)
        answer.respond([body])

    contexts = [make_context() for _ in range(REQUESTS)]
    for context in contexts:
        infer.plane.infer(request, context)
        context.ended, context.received, context.sent = (
            context.predicted + 1e-5,
            len(case.body),
            len(body),
        )
    logs = AccessLog("text"), AccessLog("json")
    argument = request.inputs[0].data
    model = infer.plane._adapter._predict  # the function in predict.py
    predict = micros(lambda: model(None, argument))
    inference = micros(lambda: infer.plane.infer(request, make_context()))
    stages = {
        "parse, environ": micros(parse),
        "decode": micros(decode),
        "validate, queue": inference - predict,
        "predict()": predict,
        "encode": micros(lambda: response.to_http(binary_outputs(request, response))),
        "write": micros(write),
        "observe": micros(lambda: service.metrics.observe(contexts)) / REQUESTS,
        "access log, text": micros(lambda: write_lines(logs[0], contexts)) / REQUESTS,
    }
    inner = sum(stages[each] for each in ("decode", "validate, queue", "predict()", "encode"))
    stages["fast path, middleware"] = micros(run) - inner
    for stage, cost in stages.items():
        click.echo(f"{stage:24}{cost:8.1f} µs")
    click.echo(f"{'total':24}{sum(stages.values()):8.1f} µs")
    click.echo(
        f"{'access log, JSON':24}{micros(lambda: write_lines(logs[1], contexts)) / REQUESTS:8.1f} µs"
    )


def write_lines(log: AccessLog, contexts: list[RequestContext]) -> list[str]:
    """Format access log lines for completed requests."""
    return [log.format(log.fields(context, context.ended, logging.INFO)) for context in contexts]


if __name__ == "__main__":
    main()
