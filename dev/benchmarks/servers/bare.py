"""Bare Flask and grpcio servers, to measure the limits of these libraries.

gunicorn 'dev.benchmarks.servers.bare:flask_app()' returns constant or received bytes. python -m
dev.benchmarks.servers.bare returns the received bytes over gRPC, on GRPC_PORT.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from flask import Flask, Response, request

from dev.benchmarks import cases


def flask_app() -> Flask:
    """Return an application with a route for each model.

    `linear` and `frame` return a constant. `echo` returns the body of the request.
    """
    app = Flask(__name__, static_folder=None)
    answer = cases.S1_ANSWER

    @app.get("/v2/health/ready")
    def ready() -> Response:
        return Response(b"{}")

    @app.post("/v2/models/linear/infer")
    @app.post("/v2/models/frame/infer")
    def constant() -> Response:
        return Response(answer, content_type="application/json")

    @app.post("/v2/models/echo/infer")
    def echo() -> Response:
        return Response(request.get_data(), content_type="application/octet-stream")

    return app


def handler(details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(lambda body, context: body)


class Handlers(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return handler(details)


def main() -> None:
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Handlers()], options=unlimited)
    server.add_insecure_port(f"127.0.0.1:{os.environ['GRPC_PORT']}")
    server.start()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    server.stop(None)  # otherwise, the interpreter can wait for its threads


if __name__ == "__main__":
    main()
