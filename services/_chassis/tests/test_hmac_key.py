from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chassis import hmac_key


def test_concurrent_starts_create_one_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    database = tmp_path / "new" / "orders.db"
    with ThreadPoolExecutor(max_workers=8) as threads:
        keys = set(threads.map(hmac_key.load_or_create, [database] * 8))
    assert len(keys) == 1
    assert [len(key) for key in keys] == [64]
    assert [path.stat().st_mode & 0o777 for path in database.parent.iterdir()] == [0o600]


def test_each_database_has_a_key_of_its_own(tmp_path: Path) -> None:
    assert hmac_key.load_or_create(tmp_path / "a.db") != hmac_key.load_or_create(tmp_path / "b.db")
