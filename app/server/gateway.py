"""Call of the WSGI application (PEP 3333) for a request."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from gunicorn.workers.base import Worker

from app.server.connection import Connection
from app.server.http_error import HttpError
from app.server.request_parser import Request
from app.server.response import Response

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Gateway:
    """Calls the application, and gunicorn's hooks before and after it.

    worker: argument of the hooks
    """

    def __init__(self, worker: Worker, application: Application, *, server_name: str):
        self.worker = worker
        self.application = application
        self.server_name = server_name
        # Each access to `cfg` is a search, and these are needed for each request.
        self._pre_request = worker.cfg.pre_request
        self._post_request = worker.cfg.post_request

    def reject(self, connection: Connection, error: HttpError) -> None:
        """Send the response for a request that the parser has rejected. Raise OSError."""
        self.worker.log.info("Rejected a request: %d. %s", error.status, error)
        connection.output.send(error.to_bytes())

    def respond(self, connection: Connection, request: Request, *, keep_alive: bool) -> bool:
        """Call the application and send its response.

        Return True if the client can send another request.

        Raise the application's exception if it is due to the connection. Any other exception
        becomes a response with status 500, or ends the connection if the response has already
        begun.
        """
        response = Response(
            request,
            server_name=self.server_name,
            send=connection.output.send,
            keep_alive=keep_alive,
        )
        request.environ["gunicorn.socket"] = connection
        try:
            self._pre_request(self.worker, request)
            self._run_application(request, response)
        except Exception as error:
            if connection.output.has_failed:
                raise
            self.worker.log.exception("Error handling request")
            response.close_connection()
            if not response.has_sent_head:
                _respond_with_error(response, error)
        finally:
            self._post_request(self.worker, request, request.environ, response)
        return response.keep_alive

    def _run_application(self, request: Request, response: Response) -> None:
        body = self.application(request.environ, response.start)
        try:
            response.respond(body)
        finally:
            if hasattr(body, "close"):
                body.close()


def _respond_with_error(response: Response, error: Exception) -> None:
    """Send status 500 instead of the response. Only inside `except`."""
    body = HttpError(500, f"Internal error: {type(error).__name__}.").body
    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    response.start("500 Internal Server Error", fields, sys.exc_info())
    response.respond([body])
