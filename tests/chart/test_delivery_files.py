"""The Dockerfile, the workflows, skaffold.yaml and the update bot agree with each other and with the chart.

Their linters and schemas run in `make check`.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shop_cli.local.processes import inherited

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / ".github" / "scripts"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE_TEXT = (ROOT / ".github/workflows/release.yml").read_text()
RELEASE = yaml.safe_load(RELEASE_TEXT)
# As tests/repository/test_imports.py requires.
WITH_OWN_PACKAGES = {"checkout", "employee-api", "load-generator"}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def images() -> dict[str, str]:
    """Return the folder of each image by its name, as the Makefile and the release find them."""
    command = ["make", "--silent", "list-images"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dict(line.split() for line in listed.splitlines())


def artifacts() -> dict[str, dict[str, Any]]:
    """Return skaffold's artifacts by the names of their images, those of its profiles included."""
    parsed = yaml.safe_load((ROOT / "skaffold.yaml").read_text())
    patches = [patch for profile in parsed["profiles"] for patch in profile.get("patches", [])]
    added = [patch["value"] for patch in patches if patch["path"] == "/build/artifacts/-"]
    return {artifact["image"]: artifact for artifact in [*parsed["build"]["artifacts"], *added]}


def test_images_run_grpc_with_the_settings_of_the_tests() -> None:
    switches, verbosity = (inherited({})[f"GRPC_{name}"] for name in ("EXPERIMENTS", "VERBOSITY"))
    assert f"GRPC_VERBOSITY={verbosity} GRPC_EXPERIMENTS={switches}\n" in (ROOT / "Dockerfile").read_text()
    assert f'"GRPC_EXPERIMENTS", "{switches}"' in (ROOT / "tests/kit/src/shop_kit/plugin.py").read_text()


def test_images_contain_the_bytecode_that_they_run() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    levels = re.findall(r"PYTHONOPTIMIZE=(\d)", dockerfile)
    # Python would compile all other bytecode at each start, and could not store it.
    assert re.findall(r"compileall -q(?: -o (\d))?", dockerfile) == levels * 3


def test_images_install_only_packages_whose_hashes_are_locked() -> None:
    installed = re.findall(r"pip install[^&]*", (ROOT / "Dockerfile").read_text())
    assert len(installed) == 3
    assert [command for command in installed if not {"--require-hashes", "--no-deps"} <= set(command.split())] == []


@pytest.mark.parametrize(
    "file", [ROOT / "Makefile", ROOT / "protos/generate.sh", *WORKFLOWS], ids=lambda file: file.stem
)
def test_tools_are_installed_from_locks_with_hashes(file: Path) -> None:
    # `uv pip install`, the Makefile's, checks the hashes of a lock that has some by itself.
    installing = re.compile(r"(?<!\$\(UV\) )\b(pip install|pipx run|uv run|uvx|npx|npm install)\b")
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if installing.search(line) and "--require-hashes" not in line] == []


def test_a_release_scans_each_image_with_packages_of_its_own() -> None:
    (condition,) = (
        step["if"]
        for step in RELEASE["jobs"]["image"]["steps"]
        if step.get("uses", "").startswith("anchore/scan-action")
    )
    assert set(re.findall(r'"([\w-]+)"', condition)) == WITH_OWN_PACKAGES


def test_the_base_image_has_an_exact_version_and_a_digest() -> None:
    base = r"^ARG BASE=docker\.io/library/python:\d+\.\d+\.\d+-\S+@sha256:[0-9a-f]{64}$"
    assert re.search(base, (ROOT / "Dockerfile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_every_job_states_its_permissions_and_its_time_limit(workflow: Path) -> None:
    parsed = yaml.safe_load(workflow.read_text())
    assert parsed["permissions"] == {}
    for name, job in parsed["jobs"].items():
        assert "permissions" in job, name
        assert "timeout-minutes" in job or "uses" in job, name


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_command_that_fails_in_a_pipe_fails_its_step(workflow: Path) -> None:
    # Only with the shell named does GitHub set pipefail.
    assert yaml.safe_load(workflow.read_text())["defaults"]["run"]["shell"] == "bash"


def needed_by(job: str) -> set[str]:
    """Return the jobs of a release that must succeed before this one starts."""
    direct = RELEASE["jobs"][job].get("needs", [])
    direct = {direct} if isinstance(direct, str) else set(direct)
    return direct.union(*(needed_by(name) for name in direct))


def test_a_release_starts_no_job_before_all_checks_pass() -> None:
    checks = {name for name, job in RELEASE["jobs"].items() if "uses" in job}
    called = {RELEASE["jobs"][name]["uses"].rpartition("/")[2] for name in checks}
    assert called == {workflow.name for workflow in WORKFLOWS} - {"release.yml", "rescan.yml"}
    assert [name for name in RELEASE["jobs"] if name not in checks and not checks <= needed_by(name)] == []


def test_a_release_is_published_after_its_chart_was_installed_from_the_registry() -> None:
    assert {"runtime", "image", "chart", "sign", "install"} <= needed_by("publish")
    writers = [name for name, job in RELEASE["jobs"].items() if job["permissions"].get("contents") == "write"]
    assert writers == ["publish"]


def test_what_signs_a_release_builds_nothing_and_waits_for_reviewers() -> None:
    jobs = RELEASE["jobs"]
    assert [name for name, job in jobs.items() if job["permissions"].keys() & {"id-token", "attestations"}] == ["sign"]
    actions = {step["uses"].partition("@")[0] for step in jobs["sign"]["steps"] if "uses" in step}
    assert actions == {"actions/download-artifact", "sigstore/cosign-installer", "actions/attest"}
    assert {name for name, job in jobs.items() if job.get("environment") == "release"} == {"sign", "publish"}


def test_every_image_is_signed_and_named_by_the_digest_that_its_build_gave(tmp_path: Path) -> None:
    (subjects,) = re.findall(r"subjects=\$\((.*?)\)\"\n", RELEASE_TEXT, re.DOTALL)
    printed = subprocess.run(["bash", "-c", subjects], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    built = {
        step["with"]["name"]
        for job in RELEASE["jobs"].values()
        for step in job.get("steps", ())
        if "upload" in step.get("uses", "")
    }
    assert {"digest-runtime", "digest-chart", "digest-${{ matrix.image.name }}"} <= built
    assert json.loads(printed) == [*images(), "runtime", "chart"]
    for name in ("runtime", "cart"):
        (tmp_path / f"digests/digest-{name}").mkdir(parents=True)
        (tmp_path / f"digests/digest-{name}/digest.txt").write_text(f"ghcr.io/owner/shop/{name} {DIGEST}\n")
    (command,) = re.findall(r"^ *(sed .* > digests.txt)$", RELEASE_TEXT, re.MULTILINE)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert (tmp_path / "digests.txt").read_text() == f"cart {DIGEST}\n"


def test_a_rescan_covers_the_images_that_a_release_scans() -> None:
    (scans,) = (yaml.safe_load(file.read_text())["jobs"]["scan"] for file in WORKFLOWS if file.stem == "rescan")
    assert set(scans["strategy"]["matrix"]["image"]) == {"runtime", *WITH_OWN_PACKAGES}


def test_the_admission_policy_trusts_the_workflow_that_signs() -> None:
    (policy,) = yaml.safe_load_all((ROOT / "charts/shop/examples/kyverno.yaml").read_text())
    (identity,) = policy["spec"]["attestors"][0]["cosign"]["keyless"]["identities"]
    tag = f"@refs/tags/v{yaml.safe_load((ROOT / 'charts/shop/Chart.yaml').read_text())['appVersion']}"
    assert identity["subject"] == f"https://github.com/OWNER/shop/.github/workflows/release.yml{tag}"
    assert policy["spec"]["matchImageReferences"] == [{"glob": "ghcr.io/OWNER/shop/*"}]


def test_a_release_builds_the_image_of_every_service_of_the_chart(values: dict[str, Any]) -> None:
    assert RELEASE["jobs"]["image"]["strategy"]["matrix"] == {"image": "${{ fromJSON(needs.plan.outputs.images) }}"}
    assert images().keys() == values["services"].keys() | {"load-generator"}


def test_the_published_chart_names_its_images_by_registry_tag_and_digest(tmp_path: Path) -> None:
    chart = shutil.copytree(ROOT / "charts/shop", tmp_path / "shop")
    subprocess.run(
        [
            *(sys.executable, SCRIPTS / "chart_images.py", "registry.example/owner/shop", "1.2.3"),
            *("https://git.example/runbooks", chart / "values.yaml"),
        ],
        input="".join(f"{name} {DIGEST}\n" for name in images()),
        text=True,
        check=True,
    )
    with_load = {"load": {"enabled": True}}
    rendered = subprocess.run(
        [sys.executable, Path(__file__).with_name("helm.py"), chart],
        input=json.dumps(["render", {"values": with_load, "name": "shop", "namespace": "shop"}]) + "\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    named = set(re.findall(r"registry\.example/[^\s\"\\]+", rendered))
    assert {image.partition("@")[2] for image in named} == {DIGEST}
    assert {re.split("[:@]", image)[0] for image in named} == {
        f"registry.example/owner/shop/{name}" for name in images()
    }
    assert "not-published" not in rendered
    assert "  runbookUrl: https://git.example/runbooks\n" in (chart / "values.yaml").read_text()


def test_a_chart_without_a_service_that_was_built_is_not_published(tmp_path: Path) -> None:
    values = shutil.copy(ROOT / "charts/shop/values.yaml", tmp_path)
    program = [sys.executable, str(SCRIPTS / "chart_images.py")]
    command = [*program, "registry.example/shop", "1.2.3", "https://git.example", str(values)]
    ended = subprocess.run(command, input=f"unknown {DIGEST}\n", capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "unknown" in ended.stderr


def test_a_release_adds_what_artifact_hub_shows(tmp_path: Path) -> None:
    chart, notes = tmp_path / "Chart.yaml", tmp_path / "notes.md"
    chart.write_text((ROOT / "charts/shop/Chart.yaml").read_text())
    notes.write_text("### Added\n\n- One thing that\n  takes two lines.\n\n### Fixed\n\nFor you:\n\n- `a: b`\n")
    image = "ghcr.io/owner/shop/cart:1.2.3@sha256:0123"
    script = SCRIPTS / "chart_annotations.py"
    command = [sys.executable, str(script), str(chart), str(notes), "https://git.example/shop"]
    subprocess.run(command, input=f"{image}\n", text=True, check=True)
    annotations = yaml.safe_load(chart.read_text())["annotations"]
    assert {key: yaml.safe_load(value) for key, value in annotations.items()} == {
        "artifacthub.io/category": "skip-prediction",
        "artifacthub.io/license": "Apache-2.0",
        "artifacthub.io/changes": [
            {"kind": "added", "description": "One thing that takes two lines."},
            {"kind": "fixed", "description": "`a: b`"},
        ],
        "artifacthub.io/images": [{"name": "cart", "image": image}],
        "artifacthub.io/links": [
            {"name": "source", "url": "https://git.example/shop"},
            {"name": "support", "url": "https://git.example/shop/issues"},
        ],
    }


def test_the_changelog_has_kinds_of_artifact_hub_only() -> None:
    kinds = set(re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def notes_of(version: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / ".github/scripts").mkdir(parents=True)
    script = shutil.copy(SCRIPTS / "release_notes.sh", folder / ".github/scripts")
    (folder / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-22\n\n- A.\n\n## [1.2.2]\n\n- B.\n"
    )
    return subprocess.run([script, version], capture_output=True, text=True, check=False)


def test_release_notes_are_the_changelog_section_of_the_version(tmp_path: Path) -> None:
    assert notes_of("1.2.3", tmp_path).stdout.strip() == "- A."


@pytest.mark.parametrize("version", ["1.2.4", "1.2", "Unreleased"])
def test_a_version_without_notes_is_not_released(tmp_path: Path, version: str) -> None:
    assert notes_of(version, tmp_path).returncode == 1


def test_make_and_skaffold_give_the_images_the_name_that_no_registry_serves() -> None:
    assert artifacts().keys() == {f"not-published.invalid/shop/{name}" for name in images()}
    assert "\nREGISTRY ?= not-published.invalid/shop\n" in (ROOT / "Makefile").read_text()


def test_each_service_in_development_gets_its_own_and_the_chassis_sources(values: dict[str, Any]) -> None:
    for name, folder in images().items():
        artifact = artifacts()[f"not-published.invalid/shop/{name}"]
        arguments = artifact["docker"]["buildArgs"]
        assert (arguments["SERVICE"], arguments.get("FOLDER", f"services/{name}")) == (name, folder)
        if name in values["services"]:
            rules = {rule["src"]: (rule["strip"], rule["dest"]) for rule in artifact["sync"]["manual"]}
            own, chassis = f"{folder}/src/", "services/_chassis/src/"
            assert rules == {f"{own}**/*.py": (own, "/app"), f"{chassis}**/*.py": (chassis, "/app")}
            assert arguments["OWNER"] == "10001:10001"


def test_the_host_ports_of_kind_are_no_local_ports_of_skaffold() -> None:
    nodes = yaml.safe_load((ROOT / "kind-config.yaml").read_text())["nodes"]
    on_host = {mapping["hostPort"] for node in nodes for mapping in node.get("extraPortMappings", [])}
    forwarded = yaml.safe_load((ROOT / "skaffold.yaml").read_text())["portForward"]
    assert on_host & {forward["localPort"] for forward in forwarded} == set()


RENOVATE = json.loads((ROOT / ".github/renovate.json").read_text())


@pytest.mark.parametrize("manager", RENOVATE["customManagers"], ids=lambda manager: manager["description"])
def test_each_pattern_of_the_update_bot_finds_a_version(manager: dict[str, Any]) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = [pattern.strip("/") for pattern in manager["managerFilePatterns"]]
    files = [path for path in listed if any(re.search(pattern, path) for pattern in folders)]
    for pattern in manager["matchStrings"]:
        expression = re.compile(pattern.replace("(?<", "(?P<"))
        assert any(expression.search((ROOT / path).read_text()) for path in files)


def described_keys(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key that has a `# --` comment above it."""
    path: list[str] = []
    described = False
    for line in text.splitlines():
        if key := re.match(r"( *)([A-Za-z][\w-]*):", line):
            path = [*path[: len(key[1]) // 2], key[2]]
            if described:
                yield tuple(path)
        described = line.lstrip().startswith("# -- ") or (described and not key)


def test_every_value_has_a_description(values: dict[str, Any]) -> None:
    described = set(described_keys((ROOT / "charts/shop/values.yaml").read_text()))

    def undescribed(tree: dict[str, Any], path: tuple[str, ...]) -> list[str]:
        missing = []
        for key, value in tree.items():
            if (*path, key) in described:
                continue
            if isinstance(value, dict) and value:
                missing += undescribed(value, (*path, key))
            else:
                missing.append(".".join((*path, key)))
        return missing

    assert undescribed(values, ()) == []
