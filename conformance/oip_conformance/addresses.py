"""Addresses of the server under test."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import click

# A host name or an IPv4 address, or an IPv6 address in square brackets, and a port.
ADDRESS = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
MAX_PORT = 2**16 - 1


class InvalidTarget(click.ClickException):
    """An error that ends the command with one line.

    The server cannot be tested, or an option is invalid.
    """

    exit_code = 2


def check_addresses(url: str, address: str | None) -> None:
    """Raise InvalidTarget if the URL of REST or the address of gRPC is invalid."""
    if not is_http_url(url):
        raise InvalidTarget(f"--http {url}: expected an address such as http://127.0.0.1:8080")
    if address and not is_address(address):
        raise InvalidTarget(f"--grpc {address}: expected HOST:PORT, such as 127.0.0.1:8081")


def is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not between 0 and 65535
        return False


def is_address(address: str) -> bool:
    match = ADDRESS.fullmatch(address)
    return match is not None and 1 <= int(match["port"]) <= MAX_PORT
