"""Which images the pods run, and how they are pinned."""

import re
from typing import Any

DIGEST = "sha256:" + "0123456789abcdef" * 4
OWN = "not-published.invalid/shop/"


def test_images_run_as_their_user_and_group(render: Any, values: dict[str, Any]) -> None:
    pods = [pod["spec"] for _, pod in render({"load": {"enabled": True}}).pod_templates()]
    own = [pod for pod in pods if pod["containers"][0]["image"].startswith(OWN)]
    assert len(own) == len(values["services"]) + 4  # the pods of two tests, of the reconciliation and of customers
    for pod in pods:
        ids = {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")}
        assert ids == {10001 if pod in own else 999}


def third_party_images(manifests: Any) -> list[str]:
    images = {pod["spec"]["containers"][0]["image"] for _, pod in manifests.pod_templates()}
    return [image for image in images if not image.startswith(OWN)]


def test_third_party_images_have_exact_tags_and_digests_unless_public_sources_do_not_agree_on_one(render: Any) -> None:
    images = third_party_images(render({"observability": {"enabled": True, "alertmanager": {"enabled": True}}}))
    assert len(images) == 8
    for image in images:
        release = r"\d+\.\d+" if "/postgres:" in image else r"v?\d+\.\d+\.\d+"
        assert re.fullmatch(rf"docker\.io/[a-z/-]+:{release}(-[a-z]+)?(@sha256:[0-9a-f]{{64}})?", image)
    without = {image.rpartition(":")[0] for image in images if "@" not in image}
    assert without == {"docker.io/valkey/valkey", "docker.io/grafana/grafana"}


def test_the_tag_of_a_third_party_image_may_carry_its_digest(render: Any) -> None:
    pinned = {"image": {"tag": f"1.2.3@{DIGEST}"}}
    components = dict.fromkeys(("collector", "jaeger", "prometheus", "loki", "alertmanager", "grafana"), pinned)
    manifests = render({"postgresql": pinned, "valkey": pinned, "observability": {"enabled": True, **components}})
    assert [image for image in third_party_images(manifests) if not re.search(rf":[^:@/]+@{DIGEST}$", image)] == []
