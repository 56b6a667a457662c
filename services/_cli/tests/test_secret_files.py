from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shop_cli.local import secret_files


def test_concurrent_starts_create_one_secret_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "HMAC_KEY"
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = set(threads.map(secret_files.load_or_create, [path] * 8))
    assert [len(secret) for secret in found] == [64]
    assert secret_files.load_or_create(tmp_path / "another") not in found
    assert [file.stat().st_mode & 0o777 for file in path.parent.iterdir()] == [0o600]
