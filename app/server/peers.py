"""Rules for the requests of a client: those of a trusted proxy, or those of other clients."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from gunicorn.config import Config
from gunicorn.http.wsgi import base_environ

from app.server.interfaces import ServerOptions
from app.server.request_head import Rules


class Peers:
    """Makes the rules for each connection.

    gunicorn's settings forwarded_allow_ips, forwarder_headers and secure_scheme_headers name the
    trusted proxies, and the header fields that only they can set.
    """

    def __init__(
        self, cfg: Config, options: ServerOptions, accepts_head: Callable[[dict[str, Any]], bool]
    ):
        environ = base_environ(cfg)
        environ["wsgi.url_scheme"] = "https" if cfg.is_ssl else "http"
        environ["wsgi.multithread"] = True
        environ["SCRIPT_NAME"] = os.environ.get("SCRIPT_NAME", "")
        schemes = {}
        for name, value in cfg.secure_scheme_headers.items():
            key = name.replace("-", "_")
            schemes[f"HTTP_{key}"] = value

        self._proxies = cfg.forwarded_allow_networks()
        self._trusts_all = "*" in cfg.forwarded_allow_ips
        self._client_rules = Rules(
            # 0 means in gunicorn: no limit.
            max_line_bytes=cfg.limit_request_line or sys.maxsize,
            max_fields=cfg.limit_request_fields or sys.maxsize,
            max_field_bytes=cfg.limit_request_field_size or sys.maxsize,
            max_body_bytes=options.max_body_bytes,
            max_body_setting=options.max_body_setting,
            base_environ=environ,
            trusted_names=frozenset(),
            secure_schemes={},
            accepts_head=accepts_head,
        )
        self._proxy_rules = replace(
            self._client_rules,
            trusted_names=frozenset(cfg.forwarder_headers),
            secure_schemes=schemes,
        )

    def make_rules(self, client: Any, server: Any) -> Rules:
        """Return the rules for a connection between these two addresses of its socket."""
        if not isinstance(client, tuple):  # a Unix socket has no addresses
            server_name = "localhost"
            server_port = 80
            client_host = ""
            client_port = ""
            is_trusted = True
        else:
            server_name, server_port = server[:2]
            client_host, client_port = client[:2]
            is_trusted = self._is_proxy(client_host)

        rules = self._proxy_rules if is_trusted else self._client_rules
        environ = {
            **rules.base_environ,
            "SERVER_NAME": server_name,
            "SERVER_PORT": str(server_port),
            "REMOTE_ADDR": client_host,
            "REMOTE_PORT": str(client_port),
        }
        return replace(rules, base_environ=environ)

    def _is_proxy(self, host: str) -> bool:
        if self._trusts_all:
            return True
        address = ip_address(host)
        return any(address in network for network in self._proxies)
