import json
from pathlib import Path

from shop_cli.local import service_logs
from shop_cli.local.service_logs import lines_of_trace, read_log


def write(folder: Path, service: str, *lines: str) -> Path:
    path = folder / f"{service}.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def event(text: str, at: int = 1, trace_id: str = "") -> str:
    return json.dumps(
        {"event": text, "level": "info", "time": f"2026-01-01T00:00:0{at}Z", "trace_id": trace_id, "n": 1}
    )


def test_the_last_lines_are_returned_oldest_first_with_the_fields_of_their_events(tmp_path: Path) -> None:
    path = write(tmp_path, "cart", *map(event, ("one", "two", "three")), event("four", trace_id="abc"))
    *_, before, line = read_log(path, 3)
    assert (before.event, line.event) == ("three", "four")
    assert len(read_log(path, 3)) == 3
    assert (line.service, line.level, line.fields, line.trace_id) == ("cart", "info", {"n": 1}, "abc")


def test_text_that_is_not_json_is_an_event_and_a_missing_log_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "cart.log"
    assert read_log(path, 5) == []
    write(tmp_path, "cart", "Traceback", "[1]")
    assert [line.event for line in read_log(path, 5)] == ["Traceback", "[1]"]


def test_the_lines_of_a_trace_come_from_all_logs_by_time(tmp_path: Path) -> None:
    cart = write(tmp_path, "cart", event("late", 3, "abc"), event("other", 1, "def"))
    payment = write(tmp_path, "payment", event("early", 2, "abc"))
    assert [line.event for line in lines_of_trace([cart, payment], "abc")] == ["early", "late"]


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    line = event("x" * 1_000)
    path = write(tmp_path, "cart", *[line] * (service_logs._MAX_BYTES // 1_000 + 1_000))
    assert len(read_log(path, 10**6)) <= service_logs._MAX_BYTES // 1_000
