"""Folders of certificates, replaced as Kubernetes replaces mounted Secrets."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from chassis.tls.authority import Authority, Issued

HOUR = timedelta(hours=1)


def new_authority(name: str = "test") -> Authority:
    return Authority.create(name, timedelta(days=1))


def spiffe_id(service: str) -> str:
    return f"spiffe://shop.local/ns/local/sa/{service}"


def issue(authority: Authority, service: str, valid: timedelta = HOUR) -> Issued:
    """Issue a certificate for a local service."""
    return authority.issue(["localhost"], spiffe_id(service), valid, ["127.0.0.1"])


def replace(folder: Path, **files: bytes) -> None:
    """Replace files of a folder in one step, as Kubernetes does: `crt`, `key` and `ca`. The others remain."""
    names = {"crt": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
    data, link = folder / uuid4().hex, folder / "next"
    data.mkdir(parents=True)
    for short, name in names.items():
        (data / name).write_bytes(files[short] if short in files else (folder / name).read_bytes())
    link.symlink_to(data.name)
    link.rename(folder / "..data")
    for name in names.values():
        if not (folder / name).exists():
            (folder / name).symlink_to(f"..data/{name}")


def renew(folder: Path, authority: Authority, service: str, *trusted: Authority) -> Path:
    """Replace a folder's files by a new certificate, trusting its authority and others. Return the folder."""
    issued = issue(authority, service)
    authorities = b"".join(found.certificate for found in (authority, *trusted))
    replace(folder, crt=issued.certificate, key=issued.key, ca=authorities)
    return folder
