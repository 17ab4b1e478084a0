"""Addresses of the server under test."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import click

ADDRESS = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")


class InvalidTarget(click.ClickException):
    """An error that ends the command with one line, because the server cannot be tested or an option is invalid."""

    exit_code = 2


def check_addresses(url: str, address: str | None) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:  # the port is not between 0 and 65535
        good = False
    if not good:
        raise InvalidTarget(f"--http {url}: expected an address such as http://127.0.0.1:8080")
    found = ADDRESS.fullmatch(address or "0:1")
    if not found or not 0 < int(found[2]) < 2**16:
        raise InvalidTarget(f"--grpc {address}: expected HOST:PORT, such as 127.0.0.1:8081")
