"""What `make bench` measures: each section compares its variants in interleaved rounds."""

import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shop_lab.bench import disk, employees, floods, idle, orders, pages, reads, rounds
from shop_lab.bench.measure import resident_megabytes
from shop_lab.bench.orders import Shape
from shop_lab.bench.rounds import Figures, Measurement, Rows, Spread
from shop_lab.bench.shops import ALL_SAMPLED, NONE_SAMPLED, SAMPLED, Variant, running

THIS = "this code"
# Orders take longer than other calls, so checkout gets fewer.
_CALLS_AN_ORDER = 100
_CHECKOUTS = {
    "checkout": Variant(),
    "naive checkout": Variant(modules={"checkout": "shop_lab.world.naive_checkout"}),
}
_TLS = {"plaintext": Variant(), "TLS": Variant(tls=True)}
_STORES = {"embedded": Variant(), "PostgreSQL, Valkey": Variant(stores=True)}


@dataclass(frozen=True)
class Plan:
    """How much to measure, and with what to compare.

    Attributes:
        older: another commit's code, with which the section `orders` compares this code.
        rounds: of the section `orders`; other sections have `fewer_rounds`.
        alone: orders of a round with one at a time. The p99 of a hundred would be that of the slowest but one.
        in_flight: orders of a round with 16 in flight.
        calls: to each service before its memory is read.
    """

    older: Mapping[str, Variant] = field(default_factory=dict)
    rounds: int = 4
    fewer_rounds: int = 3
    alone: int = 200
    in_flight: int = 300
    calls: int = reads.MEMORY_CALLS

    def shape(self, lines: int, in_flight: int) -> Shape:
        return Shape(lines, in_flight, self.alone if in_flight == 1 else self.in_flight)


SHORT = Plan(rounds=1, fewer_rounds=1, alone=20, in_flight=40, calls=1_000)

Section = Callable[[Plan], Coroutine[Any, Any, Rows]]


async def _orders(plan: Plan) -> Rows:
    shapes = [plan.shape(lines, in_flight) for lines in (3, 9) for in_flight in (16, 1)]
    return await _compare_with_first({**plan.older, THIS: Variant()}, shapes, plan.rounds)


async def _beside(variants: Mapping[str, Variant], plan: Plan) -> Rows:
    """Compare each variant with the first one."""
    return await _compare_with_first(variants, [plan.shape(3, 16), plan.shape(3, 1)], plan.fewer_rounds)


async def _sampling(plan: Plan) -> Rows:
    shares = {"none sampled": NONE_SAMPLED, "10 % sampled": SAMPLED, "all sampled": ALL_SAMPLED}
    variants = {name: Variant(variables) for name, variables in shares.items()}
    older = {f"{name}, all sampled": replace(variant, environment=ALL_SAMPLED) for name, variant in plan.older.items()}
    baselines = {**dict.fromkeys(list(variants)[1:], "none sampled"), **dict.fromkeys(older, "all sampled")}
    return await _compare({**variants, **older}, baselines, [plan.shape(3, 16)], plan.fewer_rounds)


async def _compare_with_first(variants: Mapping[str, Variant], shapes: list[Shape], number_of_rounds: int) -> Rows:
    first, *others = variants
    return await _compare(variants, dict.fromkeys(others, first), shapes, number_of_rounds)


async def _tls(plan: Plan) -> Rows:
    """Compare orders over TLS with plaintext, then the memory of a service."""
    async with AsyncExitStack() as stack:
        shops = {name: await stack.enter_async_context(running(variant)) for name, variant in _TLS.items()}
        shapes = [plan.shape(lines, in_flight) for lines in (3, 9) for in_flight in (16, 1)]
        rows = await orders.compare(shops, {"TLS": "plaintext"}, shapes, plan.rounds)
        memory = {name: [resident_megabytes(pid) for pid in shop.pids.values()] for name, shop in shops.items()}
    return {**rows, **{f"memory: {name}": {"megabytes": Spread.of(values)} for name, values in memory.items()}}


async def _compare(
    variants: Mapping[str, Variant], baselines: Mapping[str, str], shapes: list[Shape], number_of_rounds: int
) -> Rows:
    async with AsyncExitStack() as stack:
        shops = {name: await stack.enter_async_context(running(variant)) for name, variant in variants.items()}
        return await orders.compare(shops, baselines, shapes, number_of_rounds)


async def _reads(telemetry: Mapping[str, str], plan: Plan) -> Rows:
    async with running(Variant(telemetry)) as shop:
        return await reads.measure(shop, plan.fewer_rounds)


async def _pages(plan: Plan) -> Rows:
    async with running(Variant(storefront=True)) as shop:
        return await pages.measure(shop, plan.fewer_rounds)


async def _memory(plan: Plan) -> Rows:
    """Return megabytes of each service; orders come last, for they use the other services as well."""
    shape = Shape(3, 16, plan.calls // _CALLS_AN_ORDER)
    async with running(Variant()) as shop:
        rows = await reads.memory_under_load(shop, plan.calls)
        checkout = await reads.memory(shop.pids["checkout"], shape.orders, lambda: orders.run(shop, shape))
        return {**rows, "checkout": checkout}


async def _start(plan: Plan) -> Rows:
    """Return seconds from exec to SERVING: of the whole shop at once, then of each service alone."""

    async def whole() -> Figures:
        async with running(Variant()) as shop:
            return {"seconds": shop.seconds_to_serve}

    async with running(Variant()) as shop:

        async def alone(name: str) -> Figures:
            await shop.shop[name].stop()
            await shop.shop[name].start()
            return {"seconds": await shop.shop[name].wait_until_serving()}

        measurements: dict[str, Measurement] = {reads.ECHO: _bare_start}
        measurements |= {process.name: partial(alone, process.name) for process in shop.shop}
        made = await rounds.interleaved(measurements, plan.fewer_rounds)
    made |= await rounds.interleaved({"whole shop": whole}, plan.fewer_rounds)
    return {name: rounds.row(figures) for name, figures in made.items()}


async def _bare_start() -> Figures:
    started = time.monotonic()
    async with reads.bare_echo():
        return {"seconds": time.monotonic() - started}


# Measured only by name: they would make the whole too long.
EXTRA = ("reads-all", "tls", "floods")
# By their names on the command line: a title and what measures them.
SECTIONS: dict[str, tuple[str, Section]] = {
    "orders": ("orders, 10 % sampled", _orders),
    "journal": ("orders beside the naive checkout, which has no journal", partial(_beside, _CHECKOUTS)),
    "sampling": ("orders by sampling ratio", _sampling),
    "stores": ("orders by stores", partial(_beside, _STORES)),
    "tls": ("orders over TLS", _tls),
    "reads": ("reads, 10 % sampled", partial(_reads, SAMPLED)),
    "reads-all": ("reads, all sampled", partial(_reads, ALL_SAMPLED)),
    "pages": ("pages, 10 % sampled", _pages),
    "memory": ("memory midway and after all calls", _memory),
    "start": ("seconds from exec to SERVING", _start),
    "idle": ("CPU without load", lambda plan: idle.measure(plan.fewer_rounds)),
    "disk": ("bytes on disk per finished order", lambda _plan: disk.measure()),
    "floods": ("memory under floods", lambda _plan: floods.measure()),
    "employees": ("employee-api", lambda _plan: employees.measure()),
}
