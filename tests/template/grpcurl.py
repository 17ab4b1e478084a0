"""A call with the options of grpcurl, which no Python package provides."""

from __future__ import annotations

import argparse
import sys

import grpc
from google.protobuf import json_format

from grpc_service import messages


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-authority")
    parser.add_argument("-d", default="{}")
    parser.add_argument("address")
    parser.add_argument("method")
    given = parser.parse_args()
    name = given.method.rpartition("/")[2]
    options = [("grpc.default_authority", given.authority)] if given.authority else []
    with grpc.insecure_channel(given.address, options) as channel:
        request = json_format.Parse(given.d, getattr(messages, f"{name}Request")())
        reply = channel.unary_unary(f"/{given.method}")(request.SerializeToString(), timeout=30)
    sys.stdout.write(json_format.MessageToJson(getattr(messages, f"{name}Response").FromString(reply)))


main()
