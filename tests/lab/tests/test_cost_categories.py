"""Categories of the cost table."""

import pytest

from shop_lab.bench.cost_categories import category, is_blocked, parse, shares

SITE = "/shop/.venv/lib/python3.11/site-packages"
LOOP = "Loop__run (loop.c:20313)"


def test_a_stack_belongs_to_its_innermost_frame_that_has_a_category() -> None:
    saga = "Saga.run (/shop/services/checkout/src/checkout_service/saga.py:7)"
    log = f"debug ({SITE}/structlog/_output.py:3)"
    copy = "copy (/usr/lib/python3.11/copy.py:80)"
    assert category((LOOP, saga)) == "saga, executor, placing"
    assert category((LOOP, saga, copy)) == "saga, executor, placing"
    assert category((LOOP, saga, log, copy)) == "logs"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (f"0x7fc5 ({SITE}/grpc/_cython/cygrpc.cpython-311-x86_64-linux-gnu.so)", "gRPC and wake-ups"),
        ("_upb_Decoder_DecodeMessage (google/_upb/_message.abi3.so)", "protobuf and codec"),
        ("validate (/shop/services/checkout/src/checkout_service/requests.py:60)", "validation"),
        ("Order.total (/shop/services/checkout/src/checkout_service/domain.py:20)", "saga, executor, placing"),
        ("getpid (/usr/lib/x86_64-linux-gnu/libc.so.6)", "other"),
    ],
)
def test_frames_have_categories_by_module_and_function(frame: str, expected: str) -> None:
    assert category((frame,)) == expected


def test_a_thread_that_waits_uses_no_processor() -> None:
    assert is_blocked(("uv__io_poll (linux.c:1452)", "epoll_pwait (libc.so.6)"))
    assert is_blocked(("get (queue.c:1)", "pthread_cond_timedwait (libc.so.6)", "0x7f3f16 (libc.so.6)"))
    assert not is_blocked(("send (socket.c:1)", "sendmsg (libc.so.6)"))
    assert not is_blocked(("read (/shop/services/x/src/x/reader.py:1)",))


def test_the_samples_of_a_thread_are_shared_among_categories() -> None:
    profile = "\n".join(
        [
            f"thread (11): MainThread;{LOOP};info ({SITE}/structlog/_base.py:1) 3",
            f"thread (11): MainThread;{LOOP} 1",
            f"thread (11): MainThread;{LOOP};epoll_wait (libc.so.6) 90",
            "thread (12): commit_0;execute (/shop/services/payment/src/payment_service/ledger/sql.py:9) 5",
        ]
    )
    assert shares(parse(profile)) == {
        11: {"logs": 0.75, "asyncio, the loop, hops between threads": 0.25},
        12: {"commits on their thread": 1.0},
    }


def test_the_time_of_a_thread_that_was_only_seen_waiting_is_that_of_its_name() -> None:
    profile = "thread (5): commit_0;epoll_wait (libc.so.6) 9\nthread (6): MainThread;epoll_wait (libc.so.6) 9"
    assert shares(parse(profile)) == {5: {"commits on their thread": 1.0}, 6: {"other": 1.0}}
