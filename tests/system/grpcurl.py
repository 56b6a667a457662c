"""Stands in for grpcurl where it is not installed, with the options that the documents use.

Addresses are the local ports of services, such as `localhost:50051`; it connects to the service's <NAME>_ADDR instead.
"""

import argparse
import os
import sys
from pathlib import Path

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from shop_cli.local.workspace import discover_services
from shop_kit.reflection import methods_at


def address_of(local: str) -> str:
    port = int(local.removeprefix("localhost:"))
    (program,) = [program for program in discover_services() if program.port == port]
    return os.environ[program.address_variable]


def call(address: str, name: str, data: str, credentials: grpc.ChannelCredentials | None) -> str:
    """Call the method that reflection describes under `service/method`; return the response as JSON."""
    (method,) = [
        method
        for method in methods_at(address, credentials)
        if f"{method.containing_service.full_name}/{method.name}" == name
    ]
    request_class, response_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    with grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address) as channel:
        send = channel.unary_unary(f"/{name}", request_class.SerializeToString, response_class.FromString)
        return json_format.MessageToJson(send(json_format.Parse(data, request_class()), timeout=10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-plaintext", action="store_true")
    for file in ("cacert", "key", "cert"):
        parser.add_argument(f"-{file}", type=lambda name: Path(name).read_bytes())
    parser.add_argument("-d", dest="data", default="{}")
    parser.add_argument("address")
    parser.add_argument("method")
    options = parser.parse_args()
    address = address_of(options.address)
    credentials = None
    if not options.plaintext:
        credentials = grpc.ssl_channel_credentials(options.cacert, options.key, options.cert)
    if options.method == "list":
        names = {method.containing_service.full_name for method in methods_at(address, credentials)}
        sys.stdout.write("\n".join(sorted(names)) + "\n")
    else:
        sys.stdout.write(call(address, options.method, options.data, credentials) + "\n")


if __name__ == "__main__":
    main()
