import time
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from chassis.settings import Settings, load
from chassis.telemetry import semconv
from chassis.telemetry.process_metrics import observe_certificates
from chassis.tls import certificates
from chassis.tls.certificates import Certificates
from shop_cli.local.authority import Authority
from shop_kit.certificates import HOUR, issue, issue_bad, new_authority, renew, replace
from shop_kit.metrics import measured

AUTHORITY, FOREIGN = new_authority(), new_authority("foreign")
GOOD, OTHER = issue(AUTHORITY, "cart"), issue(AUTHORITY, "cart")
EXPIRED = issue_bad(AUTHORITY, "cart", valid_from=-2 * HOUR, valid_until=-HOUR)
FUTURE = issue_bad(AUTHORITY, "cart", valid_from=HOUR, valid_until=2 * HOUR)
FROM_FOREIGN = issue(FOREIGN, "cart")
SELF_SIGNED = issue_bad(None, "cart")

BAD = [
    ({"crt": b"garbage"}, "no certificates with their key"),
    ({"crt": b"\xff\xfe\x00"}, "no certificates with their key"),
    ({"crt": GOOD.certificate[:300]}, "no certificates with their key"),
    ({"crt": b""}, "no certificates with their key"),
    ({"key": OTHER.key}, "no certificates with their key: KEY_VALUES_MISMATCH"),
    ({"key": GOOD.key[:100]}, "no certificates with their key"),
    ({"ca": b""}, "no certificates with their key"),
    ({"ca": b"\xff"}, "no certificates with their key"),
    ({"ca": AUTHORITY.certificate + FOREIGN.certificate[:300]}, "no certificates with their key"),
    ({"ca": FOREIGN.certificate}, "tls.crt is not valid by ca.crt: unable to get local issuer certificate"),
    ({"crt": EXPIRED.certificate, "key": EXPIRED.key}, "not valid by ca.crt: certificate has expired"),
    ({"crt": FUTURE.certificate, "key": FUTURE.key}, "not valid by ca.crt: certificate is not yet valid"),
    ({"crt": FROM_FOREIGN.certificate, "key": FROM_FOREIGN.key}, "not valid by ca.crt: unable to get local issuer"),
    ({"crt": SELF_SIGNED.certificate, "key": SELF_SIGNED.key}, "not valid by ca.crt: self"),
]


@pytest.fixture(autouse=True)
def look_at_each_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0)


def with_files(folder: Path, **files: bytes) -> Path:
    replace(folder, **{"crt": GOOD.certificate, "key": GOOD.key, "ca": AUTHORITY.certificate, **files})
    return folder


@pytest.mark.parametrize(("files", "problem"), BAD)
def test_unusable_files_end_the_start_with_one_line_that_names_the_setting(
    files: dict[str, bytes], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        load(Settings, {"TLS_FOLDER": str(with_files(tmp_path / "tls", **files))})
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith("TLS_FOLDER: ")
    assert problem in line


@pytest.mark.parametrize("missing", ["tls/tls.crt", "tls/tls.key", "tls/ca.crt", "tls"])
def test_a_missing_file_ends_the_start_with_a_line_that_names_the_setting(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_files(tmp_path / "tls")
    (tmp_path / missing).rename(tmp_path / "moved")
    with pytest.raises(SystemExit):
        load(Settings, {"TLS_FOLDER": str(folder)})
    assert capsys.readouterr().err == (
        "TLS_FOLDER: must be a folder with tls.crt, tls.key, ca.crt: No such file or directory\n"
    )


@pytest.mark.parametrize("files", [files for files, _ in BAD])
def test_unusable_files_replace_nothing_and_are_logged_once_until_good_ones_follow(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    loaded = Certificates.load(str(with_files(tmp_path / "tls")))
    before = loaded.current
    with_files(loaded.folder, **files)
    with capture_logs() as logs:
        assert [loaded.refresh() for _ in range(3)] == [before] * 3
    assert ([entry["event"] for entry in logs], loaded.failed_reloads) == (["certificates not reloaded"], 3)
    assert "PRIVATE KEY" not in repr((logs, before, GOOD))
    renew(loaded.folder, AUTHORITY, "cart")
    assert loaded.refresh() not in (before, None)
    assert (loaded.refresh(), loaded.failed_reloads) == (loaded.current, 3)


def test_a_folder_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    loaded = Certificates.load(str(with_files(tmp_path / "tls")))
    before = loaded.current
    (loaded.folder / "..data").unlink()
    assert (loaded.refresh(), loaded.refresh(), loaded.failed_reloads) == (before, before, 2)


def test_the_end_of_the_certificate_is_exported_also_while_its_replacement_is_garbage(tmp_path: Path) -> None:
    telemetry, read = measured()
    loaded = Certificates.load(str(with_files(tmp_path / "tls")))
    observe_certificates(telemetry, loaded)
    replace(loaded.folder, crt=b"garbage")
    exported = read()
    assert exported[semconv.CERTIFICATE_EXPIRY.name,] == loaded.current.expires_at > time.time()
    assert exported[semconv.CERTIFICATE_LIFETIME.name,] >= HOUR.total_seconds()
    assert read()[semconv.FAILED_RELOADS.name,] >= 1


def test_a_certificate_may_be_its_own_authority(tmp_path: Path) -> None:
    files = {"crt": SELF_SIGNED.certificate, "key": SELF_SIGNED.key, "ca": SELF_SIGNED.certificate}
    loaded = Certificates.load(str(with_files(tmp_path / "tls", **files)))
    ends = x509.load_pem_x509_certificate(SELF_SIGNED.certificate).not_valid_after_utc
    assert loaded.current.expires_at == ends.timestamp()


def test_a_certificate_ends_with_the_last_of_its_authorities(tmp_path: Path) -> None:
    short, long = Authority.create("short", HOUR), Authority.create("long", 3 * HOUR)
    issued = issue_bad(short, "cart", valid_until=5 * HOUR)
    folder = with_files(tmp_path / "tls", crt=issued.certificate, key=issued.key, ca=short.certificate)
    assert Certificates.load(str(folder)).current.expires_at == pytest.approx(time.time() + 3_600, abs=60)
    replace(folder, ca=short.certificate + long.certificate)
    assert Certificates.load(str(folder)).refresh().expires_at == pytest.approx(time.time() + 3 * 3_600, abs=60)
