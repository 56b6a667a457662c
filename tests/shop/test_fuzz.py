"""Any bytes at any method of any service: a documented refusal or an answer, never a crash. Seeded."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from shop_cli.local.workspace import discover_services
from shop_testkit.running_shop import RunningShop

SEED = 20_240_229
REQUESTS = 120
IN_FLIGHT = 16
BOUND_SECONDS = 15.0

# What a service may say to bytes of strangers. UNKNOWN and INTERNAL would be bugs, and so would a hung call.
EXPECTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}

TEXTS = ["", "a", "EUR", "USD", "x" * 65, "x" * 300, "\x00", "\r\nBcc: a@b", "%_", "\U0001f600" * 9, "a@b.example"]
NUMBERS = [0, 1, -1, 2, 12, 99, 2030, 10_000, 2**31 - 1, -(2**31)]
WIDE_NUMBERS = [*NUMBERS, 2**63 - 1, -(2**63)]


def methods_at(address: str) -> list[MethodDescriptor]:
    """The shop's own methods, as the running server describes them."""
    with grpc.insecure_channel(address) as channel:
        described = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(described)
        names = [name for name in described.get_services() if name.startswith("shop.")]
        return [method for name in names for method in pool.FindServiceByName(name).methods]


def random_message(descriptor: Descriptor, dice: random.Random, depth: int = 0) -> Message:
    """A message of that type, its fields set to odd values or not at all."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if dice.random() < 0.8:
            _fill(message, field, dice, depth)
    return message


def _fill(message: Message, field: FieldDescriptor, dice: random.Random, depth: int) -> None:
    if field.is_repeated:
        values = [_value(field, dice, depth) for _ in range(dice.choice([0, 1, 2, 5]))]
        getattr(message, field.name).extend(values)
    elif field.message_type:
        getattr(message, field.name).CopyFrom(_value(field, dice, depth))
    else:
        setattr(message, field.name, _value(field, dice, depth))


def _value(field: FieldDescriptor, dice: random.Random, depth: int) -> Any:
    if field.message_type:
        return random_message(field.message_type, dice, depth + 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return dice.choice(TEXTS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    return dice.choice(WIDE_NUMBERS if field.cpp_type == FieldDescriptor.CPPTYPE_INT64 else NUMBERS)


def mutated(raw: bytes, dice: random.Random) -> bytes:
    """A message's bytes, cut, doubled or with some of them changed."""
    changed = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        if changed:
            changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed[: dice.randint(0, len(changed))] * dice.choice([1, 1, 2]))


def requests_for(method: MethodDescriptor, dice: random.Random) -> Iterator[bytes]:
    for number in range(REQUESTS):
        message = random_message(method.input_type, dice).SerializeToString()
        kinds = (message, mutated(message, dice), dice.randbytes(dice.choice([1, 3, 40, 400])))
        yield kinds[number % 3]
    yield b""
    yield b"\x0a\x80\x80\x80\x80\x7f"  # a length of gigabytes
    yield b"\x0b" * 10_000  # groups within groups
    yield b"\x0a\x02\xff\xfe"  # text that is no UTF-8


async def code_of(channel: grpc.aio.Channel, method: MethodDescriptor, raw: bytes) -> grpc.StatusCode:
    try:
        await channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")(raw, timeout=BOUND_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("name", [program.name for program in discover_services()])
async def test_any_bytes_get_an_answer_or_a_documented_refusal(shop: RunningShop, name: str) -> None:
    pid, channel = shop.processes[name].pid, shop.channels[name]
    slots = asyncio.Semaphore(IN_FLIGHT)
    codes: Counter[tuple[str, grpc.StatusCode]] = Counter()

    async def send(method: MethodDescriptor, raw: bytes) -> None:
        async with slots:
            codes[method.name, await code_of(channel, method, raw)] += 1

    methods = await asyncio.to_thread(methods_at, shop.processes[name].address)
    async with asyncio.TaskGroup() as tasks:
        for method in methods:
            dice = random.Random(f"{SEED} {method.full_name}")  # noqa: S311 - the same every time
            for raw in requests_for(method, dice):
                tasks.create_task(send(method, raw))
    assert methods
    assert {key: count for key, count in codes.items() if key[1] not in EXPECTED} == {}
    assert all(codes[method.name, grpc.StatusCode.INVALID_ARGUMENT] for method in methods)
    assert shop.processes[name].pid == pid
    assert await shop.processes[name].is_serving()
