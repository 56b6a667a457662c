"""Reads from a running server which methods it serves."""

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def methods_at(address: str, credentials: grpc.ChannelCredentials | None = None) -> list[MethodDescriptor]:
    """Return the methods of the shop's own services, public and internal, that a server describes."""
    with grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address) as channel:
        described = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(described)
        names = [name for name in described.get_services() if name.startswith("shop.")]
        return [method for name in names for method in pool.FindServiceByName(name).methods]
