"""Which images the pods run, and how they are pinned."""

import json
import re
import runpy
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER_DIGEST = "sha256:" + "fedcba9876543210" * 4
OWN = "not-published.invalid/shop/"
IMAGE_TAGS = ROOT / "tests" / "e2e" / "image_tags.py"


def test_own_images_have_a_name_that_never_resolves_and_the_app_version(render: Any, values: dict[str, Any]) -> None:
    version = yaml.safe_load((ROOT / "charts/shop/Chart.yaml").read_text())["appVersion"]
    for name in values["services"]:
        assert render().container(name)["image"] == f"{OWN}{name}:{version}"


def test_own_images_run_as_their_user(render: Any, values: dict[str, Any]) -> None:
    pods = dict(render().pod_templates())
    own = [name for name, pod in pods.items() if pod["spec"]["containers"][0]["image"].startswith(OWN)]
    assert len(own) == len(values["services"]) + 2  # the pods of two tests
    assert {pods[name]["spec"]["securityContext"]["runAsUser"] for name in own} == {10001}


def test_the_notes_say_that_unpublished_images_must_be_built(render: Any) -> None:
    assert "No registry serves the images not-published.invalid/shop/" in render().notes
    assert "No registry serves" not in render({"image": {"registry": "registry.example.com"}}).notes


def test_a_service_s_tag_overrides_the_shared_one(render: Any) -> None:
    manifests = render({"image": {"tag": "1"}, "services": {"cart": {"image": {"tag": "2"}}}})
    assert manifests.container("cart")["image"] == f"{OWN}cart:2"
    assert manifests.container("ad")["image"] == f"{OWN}ad:1"


@pytest.mark.parametrize(
    ("image", "reference"), [({"digest": DIGEST}, f"@{DIGEST}"), ({"tag": "2", "digest": DIGEST}, f":2@{DIGEST}")]
)
def test_a_digest_stands_beside_the_service_s_own_tag_only(render: Any, image: dict[str, str], reference: str) -> None:
    manifests = render({"image": {"tag": "1"}, "services": {"cart": {"image": image}}})
    assert manifests.container("cart")["image"] == f"{OWN}cart{reference}"


def test_third_party_images_have_the_tag_of_an_exact_patch_release(values: dict[str, Any]) -> None:
    images = list(runpy.run_path(str(IMAGE_TAGS))["third_party_images"](values))
    assert len(images) == 6
    for image in images:
        version = r"\d+\.\d+" if image["repository"] == "library/postgres" else r"v?\d+\.\d+\.\d+"
        assert re.fullmatch(rf"{version}(-[a-z]+)?", image["tag"]), image["repository"]


def test_third_party_pods_run_the_tag_even_with_a_digest(render: Any) -> None:
    pinned = {"image": {"digest": DIGEST}}
    observability = dict.fromkeys(("collector", "jaeger", "prometheus", "grafana"), pinned)
    manifests = render({"postgresql": pinned, "valkey": pinned, "observability": {"enabled": True, **observability}})
    images = {pod["spec"]["containers"][0]["image"] for _, pod in manifests.pod_templates()}
    third_party = [image for image in images if not image.startswith(OWN)]
    assert len(third_party) == 6
    assert [image for image in third_party if not re.search(rf":[^:@/]+@{DIGEST}$", image)] == []


@pytest.mark.parametrize(
    ("stated", "in_registry", "status"),
    [("", DIGEST, 0), (DIGEST, DIGEST, 0), (DIGEST, OTHER_DIGEST, 1), ("", None, 1)],
    ids=["tag exists", "digest of the tag", "digest of another tag", "no such tag"],
)
def test_the_pipeline_rejects_a_missing_tag_and_a_digest_of_another_tag(
    tmp_path: Path, stated: str, in_registry: str | None, status: int
) -> None:
    image = {"registry": "docker.io", "repository": "valkey/valkey", "tag": "9.1.4", "digest": stated}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"image": {"registry": "x"}, "valkey": {"image": image}}))
    docker = tmp_path / "docker"
    answer = f"echo '{json.dumps({'digest': in_registry})}'" if in_registry else "false"
    docker.write_text(f'#!/bin/sh\n[ "$4" = docker.io/valkey/valkey:9.1.4 ] && {answer}\n')
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    ended = subprocess.run(
        [sys.executable, IMAGE_TAGS, tmp_path / "values.yaml"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
