"""Seeded fuzzing of every method of every service: each request soon gets a documented status, and nothing crashes."""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from shop_cli.local.processes import Process
from shop_cli.local.workspace import discover_services
from shop_kit.reflection import methods_at, status_of
from shop_kit.running_shop import RunningShop

SEED = 20_240_229
REQUESTS = 40
IN_FLIGHT = 16

# The documented statuses for untrusted bytes. UNKNOWN, INTERNAL and a call that hangs would be bugs.
EXPECTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}

TEXTS = ["", "a", "EUR", "USD", "x" * 65, "x" * 300, "\x00", "\r\nBcc: a@b", "%_", "\U0001f600" * 9, "a@b.example"]
LARGE_TEXTS = ["1-", "\u0301\u0316"]
TRIES = 5  # the process may have done something else meanwhile
NUMBERS = [0, 1, -1, 2, 12, 99, 2030, 10_000, 2**31 - 1, -(2**31)]
WIDE_NUMBERS = [*NUMBERS, 2**63 - 1, -(2**63)]


def random_message(descriptor: Descriptor, rng: random.Random) -> Message:
    """Return a message of that type whose fields have edge values or are not set."""
    fields = [field for field in descriptor.fields if rng.random() < 0.8]
    return GetMessageClass(descriptor)(**{field.name: _values(field, rng) for field in fields})


def _values(field: FieldDescriptor, rng: random.Random) -> Any:
    if field.is_repeated:
        return [_value(field, rng) for _ in range(rng.choice([0, 1, 2, 5]))]
    return _value(field, rng)


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    if field.message_type:
        return random_message(field.message_type, rng)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice(WIDE_NUMBERS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case _:
            return rng.choice(NUMBERS)


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """Return the bytes with some of them changed, truncated or repeated."""
    changed = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randint(0, len(changed))] * rng.choice([1, 1, 2]))


def requests_for(method: MethodDescriptor, rng: random.Random) -> Iterator[bytes]:
    for number in range(REQUESTS):
        message = random_message(method.input_type, rng).SerializeToString()
        kinds = (message, mutate(message, rng), rng.randbytes(rng.choice([1, 3, 40, 400])))
        yield kinds[number % 3]
    yield b""
    yield b"\x0a\x80\x80\x80\x80\x7f"  # a length of gigabytes
    yield b"\x0b" * 10_000  # groups within groups
    yield b"\x0a\x02\xff\xfe"  # text that is no UTF-8


def large_messages(descriptor: Descriptor, size: int) -> Iterator[Message]:
    """Yield messages of that type, each with one text of so many bytes, or with many elements of one field."""
    for field in descriptor.fields:
        values: list[Any] = []
        element: Any = 1
        if field.message_type:
            values, element = [*large_messages(field.message_type, size)], GetMessageClass(field.message_type)()
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            values, element = [text * (size // len(text.encode())) for text in LARGE_TEXTS], "1"
        if field.is_repeated:
            values = [*([value] for value in values), [element] * (size // 3)]
        yield from (GetMessageClass(descriptor)(**{field.name: value}) for value in values)


@pytest.mark.parametrize("name", [program.name for program in discover_services()])
async def test_any_bytes_soon_get_a_documented_status(shop: RunningShop, name: str) -> None:
    process = shop.processes[name]
    pid = process.pid
    await send_any_bytes(process, process.address, shop.channels[name], 60_000)
    if process.internal_port:
        await send_any_bytes(process, process.internal_address, shop.internal_channels[name], 1_000_000)
    assert process.pid == pid
    assert await process.is_serving()


async def send_any_bytes(process: Process, address: str, channel: grpc.aio.Channel, large: int) -> None:
    """Call every method at an address with valid, invalid and random messages, and some of about `large` bytes."""
    slots = asyncio.Semaphore(IN_FLIGHT)
    codes: Counter[tuple[str, grpc.StatusCode]] = Counter()

    async def send(method: MethodDescriptor, raw: bytes) -> None:
        async with slots:
            codes[method.name, await status_of(channel, method, raw)] += 1

    async def cpu_seconds(method: MethodDescriptor, message: Message) -> float:
        clock = (~(process.pid or 0) << 3) | 2  # Linux's clock of the CPU time of a process
        started = time.clock_gettime(clock)
        await send(method, message.SerializeToString())
        return time.clock_gettime(clock) - started

    methods = await asyncio.to_thread(methods_at, address, process.identity)
    async with asyncio.TaskGroup() as tasks:
        for method in methods:
            rng = random.Random(f"{SEED} {method.full_name}")  # noqa: S311 - reproducible
            for raw in requests_for(method, rng):
                tasks.create_task(send(method, raw))
    for method in methods if sys.platform == "linux" else ():
        sizes = (large_messages(method.input_type, size) for size in (large, large // 8))
        for number, messages in enumerate(zip(*sizes, strict=True)):
            for left in reversed(range(TRIES)):
                seconds = [await cpu_seconds(method, message) for message in messages]
                if seconds[0] < 0.05 + 16 * seconds[1]:  # by the length: 8 times; by its square: 64 times
                    break
                assert left, (method.full_name, number, seconds)
    assert methods
    assert {key: count for key, count in codes.items() if key[1] not in EXPECTED} == {}
    assert all(codes[method.name, grpc.StatusCode.INVALID_ARGUMENT] for method in methods)
