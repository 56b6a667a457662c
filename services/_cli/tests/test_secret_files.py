from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shop_cli.local import secret_files


def test_concurrent_starts_create_one_secret_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "HMAC_KEY"
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = set(threads.map(secret_files.load_or_create, [path] * 8))
    assert [len(secret) for secret in found] == [64]
    assert [file.stat().st_mode & 0o777 for file in path.parent.iterdir()] == [0o600]


def test_each_file_has_a_secret_of_its_own(tmp_path: Path) -> None:
    assert secret_files.load_or_create(tmp_path / "a") != secret_files.load_or_create(tmp_path / "b")
