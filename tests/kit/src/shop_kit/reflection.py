"""Describes the methods of the contract and those of a running server, and calls any of them."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import shop
import shop_internal
from chassis.tls.certificates import Identity
from shop_kit.waiting import PATIENCE_SECONDS


def contract() -> Iterator[MethodDescriptor]:
    """Yield the methods of all services, public and internal."""
    for package in (shop, shop_internal):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                for service in import_module(module.name).DESCRIPTOR.services_by_name.values():
                    yield from service.methods


def methods_at(address: str, identity: Identity | None = None) -> list[MethodDescriptor]:
    """Return the methods of the shop's own services, public and internal, that a server describes."""
    if identity is None:
        opened = grpc.insecure_channel(address)
    else:
        credentials = grpc.ssl_channel_credentials(identity.authorities, identity.key, identity.certificate)
        opened = grpc.secure_channel(address, credentials)
    with opened as channel:
        described = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(described)
        names = [name for name in described.get_services() if name.startswith("shop.")]
        return [method for name in names for method in pool.FindServiceByName(name).methods]


def full_name(method: MethodDescriptor) -> str:
    """Return the name of a method as gRPC's paths have it, such as `shop.AdService/GetAds`."""
    return f"{method.containing_service.full_name}/{method.name}"


async def status_of(channel: grpc.aio.Channel, method: MethodDescriptor, request: bytes = b"") -> grpc.StatusCode:
    """Call a method with these bytes; an empty request has no effect."""
    try:
        await channel.unary_unary(f"/{full_name(method)}", bytes, bytes)(request, timeout=PATIENCE_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
