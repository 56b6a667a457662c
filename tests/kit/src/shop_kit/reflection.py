"""Reads from a running server which methods it serves."""

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from chassis.tls.certificates import Identity


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
