"""Which images the pods run, and how they are pinned."""

import json
import re
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


def test_images_run_as_their_user_and_group(render: Any, values: dict[str, Any]) -> None:
    pods = [pod["spec"] for _, pod in render({"load": {"enabled": True}}).pod_templates()]
    own = [pod for pod in pods if pod["containers"][0]["image"].startswith(OWN)]
    assert len(own) == len(values["services"]) + 4  # the pods of two tests, of the reconciliation and of customers
    for pod in pods:
        ids = {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")}
        assert ids == {10001 if pod in own else 999}


@pytest.mark.parametrize(
    ("image", "reference"),
    [({"tag": "2"}, ":2"), ({"digest": DIGEST}, f"@{DIGEST}"), ({"tag": "2", "digest": DIGEST}, f":2@{DIGEST}")],
)
def test_a_service_s_tag_and_digest_replace_the_shared_tag(render: Any, image: dict[str, str], reference: str) -> None:
    manifests = render({"image": {"tag": "1"}, "services": {"cart": {"image": image}}})
    assert manifests.container("cart")["image"] == f"{OWN}cart{reference}"
    assert manifests.container("ad")["image"] == f"{OWN}ad:1"


def third_party_images(manifests: Any) -> list[str]:
    images = {pod["spec"]["containers"][0]["image"] for _, pod in manifests.pod_templates()}
    return [image for image in images if not image.startswith(OWN)]


def test_third_party_images_have_the_tag_of_an_exact_patch_release(render: Any) -> None:
    images = third_party_images(render({"observability": {"enabled": True}}))
    assert len(images) == 7
    for image in images:
        release = r"\d+\.\d+" if "/postgres:" in image else r"v?\d+\.\d+\.\d+"
        assert re.fullmatch(rf"docker\.io/[a-z/-]+:{release}(-[a-z]+)?(@sha256:[0-9a-f]{{64}})?", image)


def test_third_party_images_have_digests_unless_public_sources_do_not_agree_on_one(render: Any) -> None:
    images = third_party_images(render({"observability": {"enabled": True, "alertmanager": {"enabled": True}}}))
    without = {image.rpartition(":")[0] for image in images if "@" not in image}
    assert without == {"docker.io/valkey/valkey", "docker.io/grafana/grafana"}


def test_the_tag_of_a_third_party_image_may_carry_its_digest(render: Any) -> None:
    pinned = {"image": {"tag": f"1.2.3@{DIGEST}"}}
    components = dict.fromkeys(("collector", "jaeger", "prometheus", "loki", "alertmanager", "grafana"), pinned)
    manifests = render({"postgresql": pinned, "valkey": pinned, "observability": {"enabled": True, **components}})
    assert [image for image in third_party_images(manifests) if not re.search(rf":[^:@/]+@{DIGEST}$", image)] == []


@pytest.mark.parametrize(
    ("stated", "in_registry", "status"),
    [
        ("", {"": DIGEST}, 0),
        (f"@{DIGEST}", {"": DIGEST}, 0),
        (f"@{DIGEST}", {"": OTHER_DIGEST, f"@{DIGEST}": DIGEST}, 0),
        (f"@{DIGEST}", {"": OTHER_DIGEST}, 1),
        ("", {}, 1),
    ],
    ids=["tag exists", "digest of the tag", "digest that the tag had", "no such digest", "no such tag"],
)
def test_the_pipeline_rejects_a_missing_tag_and_a_missing_digest(
    tmp_path: Path, stated: str, in_registry: dict[str, str], status: int
) -> None:
    docker = tmp_path / "docker"
    answers = [
        f"docker.io/valkey/valkey:9.1.4{name}) echo '{json.dumps({'digest': digest})}' ;;"
        for name, digest in in_registry.items()
    ]
    docker.write_text("\n".join(["#!/bin/sh", 'case "$4" in', *answers, "*) false ;;", "esac\n"]))
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    ended = subprocess.run(
        [sys.executable, IMAGE_TAGS],
        input=f"image: not-published.invalid/shop/cart:1\nimage: docker.io/valkey/valkey:9.1.4{stated}\n",
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
