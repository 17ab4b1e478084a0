"""The message of a service that has started: its addresses, its process id and a call to try."""

from __future__ import annotations

import logging
import os
from urllib.parse import quote

from app.config import Settings
from app.dataplane import DataPlane
from app.example import call_to_try, curl_options

logger = logging.getLogger("app")


def greet(plane: DataPlane, settings: Settings) -> None:
    """Print the message, or log the addresses with LOG_FORMAT=json."""
    metadata, here = plane.metadata(), settings.here()
    grpc = here.address(settings.grpc_port)
    if settings.log_format == "json":
        page = {"page": f"{here.url}/"} if settings.ui else {}
        logger.info(
            "%s %s is ready", metadata.name, metadata.version, extra={"rest": f"{here.url}/v2", "grpc": grpc, **page}
        )
        return
    model = f"{here.url}/v2/models/{quote(metadata.name)}"
    options = "--insecure " if settings.tls_cert else ""  # the certificate is for the name, and not for this address
    options += curl_options(settings.tls_client_ca is not None, settings.api_keys_file is not None)
    page_line = f"\n    Page  {here.url}/" if settings.ui else ""
    print(  # noqa: T201
        f"\n  {metadata.name} {metadata.version} is ready"
        f"\n    REST  {here.url}/v2"
        f"\n    gRPC  {grpc}{page_line}"
        f"\n    PID   {os.getppid()}: HUP loads the model again, TERM stops the service"
        f"\n\n  Try it:\n    {call_to_try(plane.example(), model, options)}\n",
        flush=True,
    )
