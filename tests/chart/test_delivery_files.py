"""The Dockerfile, the workflows, skaffold.yaml and the update bot agree with each other and with the chart.

Their linters and schemas run in `make check`.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

from shop_cli.local.processes import inherited

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / ".github" / "scripts"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
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


def test_images_run_as_local_processes_and_the_chart_expect_and_contain_the_bytecode_for_it() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    switches, verbosity = (inherited({})[f"GRPC_{name}"] for name in ("EXPERIMENTS", "VERBOSITY"))
    assert f"GRPC_VERBOSITY={verbosity} GRPC_EXPERIMENTS={switches}\n" in dockerfile
    # A laboratory puts a folder of modules before these.
    assert "PYTHONPATH=/app:/packages" in dockerfile
    # Python would compile all other bytecode at each start, and could not store it.
    (level,) = re.findall(r"PYTHONOPTIMIZE=(\d)", dockerfile)
    assert re.findall(r"compileall -q(?: -o (\d))?", dockerfile) == [level] * 3


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
    approved = {name for name, job in jobs.items() if job.get("environment") == "release"}
    assert approved == {name for name, job in jobs.items() if "write" in job["permissions"].values()}
    assert approved == {"push", "chart", "sign", "publish"}
    assert {"runtime", "image"} <= needed_by("push")  # which scan what they build


def test_the_admission_policy_trusts_the_workflow_that_signs() -> None:
    (policy,) = yaml.safe_load_all((ROOT / "charts/shop/examples/kyverno.yaml").read_text())
    (identity,) = policy["spec"]["attestors"][0]["cosign"]["keyless"]["identities"]
    tag = f"@refs/tags/v{yaml.safe_load((ROOT / 'charts/shop/Chart.yaml').read_text())['appVersion']}"
    assert identity["subject"] == f"https://github.com/OWNER/shop/.github/workflows/release.yml{tag}"
    assert policy["spec"]["matchImageReferences"] == [{"glob": "ghcr.io/OWNER/shop/*"}]


def run_script(name: str, *arguments: str | Path, given: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / name), *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def test_the_published_chart_names_its_images_by_registry_tag_and_digest(tmp_path: Path) -> None:
    file = Path(shutil.copy(ROOT / "charts/shop/values.yaml", tmp_path))
    arguments = ("registry.example/owner/shop", "1.2.3", "https://git.example/runbooks", file)
    ended = run_script("chart_images.py", *arguments, given="".join(f"{name} {DIGEST}\n" for name in images()))
    assert ended.returncode == 0, ended.stderr
    values = yaml.safe_load(file.read_text())
    assert (values["image"]["registry"], values["image"]["repository"]) == ("registry.example", "owner/shop")
    built = {**values["services"], "load-generator": values["load"]}
    assert built.keys() == images().keys()
    assert {name for name, own in built.items() if own["image"] == {"tag": "1.2.3", "digest": DIGEST}} == built.keys()
    assert values["observability"]["runbookUrl"] == "https://git.example/runbooks"
    unknown = run_script("chart_images.py", *arguments, given=f"unknown {DIGEST}\n")
    assert unknown.returncode == 1


def test_a_release_adds_what_artifact_hub_shows(tmp_path: Path) -> None:
    chart, notes = tmp_path / "Chart.yaml", tmp_path / "notes.md"
    chart.write_text((ROOT / "charts/shop/Chart.yaml").read_text())
    notes.write_text("### Added\n\n- One thing that\n  takes two lines.\n\n### Fixed\n\nFor you:\n\n- `a: b`\n")
    image = "ghcr.io/owner/shop/cart:1.2.3@sha256:0123"
    run_script("chart_annotations.py", chart, notes, "https://git.example/shop", given=f"{image}\n")
    annotations = yaml.safe_load(chart.read_text())["annotations"]
    assert yaml.safe_load(annotations["artifacthub.io/images"]) == [{"name": "cart", "image": image}]
    assert yaml.safe_load(annotations["artifacthub.io/changes"]) == [
        {"kind": "added", "description": "One thing that takes two lines."},
        {"kind": "fixed", "description": "`a: b`"},
    ]


@pytest.mark.parametrize(
    ("version", "notes"), [("1.2.3", "- A."), ("1.2.4", None), ("1.2", None), ("Unreleased", None)]
)
def test_release_notes_are_the_changelog_section_of_a_version(tmp_path: Path, version: str, notes: str | None) -> None:
    (tmp_path / ".github/scripts").mkdir(parents=True)
    script = shutil.copy(SCRIPTS / "release_notes.sh", tmp_path / ".github/scripts")
    sections = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-22\n\n- A.\n\n## [1.2.2]\n\n- B.\n"
    (tmp_path / "CHANGELOG.md").write_text(sections)
    ended = subprocess.run([script, version], capture_output=True, text=True, check=False)
    assert (ended.stdout.strip() if ended.returncode == 0 else None) == notes


def test_each_service_in_development_gets_its_own_and_the_chassis_sources(values: dict[str, Any]) -> None:
    assert "\nREGISTRY ?= not-published.invalid/shop\n" in (ROOT / "Makefile").read_text()
    assert len(artifacts()) == len(images())
    locked = (ROOT / "Dockerfile").read_text().partition(" AS locked\n")[2].partition("\nFROM ")[0]
    # Each change of what this stage copies rebuilds all images.
    assert re.findall("^COPY (.*)", locked, re.MULTILINE) == [".ci/uv.sed uv.lock ./", "pyproject.toml ./"]
    for name, folder in images().items():
        artifact = artifacts()[f"not-published.invalid/shop/{name}"]
        arguments = artifact["docker"]["buildArgs"]
        assert (arguments["SERVICE"], arguments.get("FOLDER", f"services/{name}")) == (name, folder)
        if name in values["services"]:
            rules = {rule["src"]: (rule["strip"], rule["dest"]) for rule in artifact["sync"]["manual"]}
            own, chassis = f"{folder}/src/", "services/_chassis/src/"
            assert rules == {f"{own}**/*.py": (own, "/app"), f"{chassis}**/*.py": (chassis, "/app")}
            assert arguments["OWNER"] == "10001:10001"


RENOVATE = json.loads((ROOT / ".github/renovate.json").read_text())


@pytest.mark.parametrize("manager", RENOVATE["customManagers"], ids=lambda manager: manager["description"])
def test_each_pattern_of_the_update_bot_finds_a_version(manager: dict[str, Any]) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = [pattern.strip("/") for pattern in manager["managerFilePatterns"]]
    files = [path for path in listed if any(re.search(pattern, path) for pattern in folders)]
    for pattern in manager["matchStrings"]:
        expression = re.compile(pattern.replace("(?<", "(?P<"))
        assert any(expression.search((ROOT / path).read_text()) for path in files)


def undescribed(tree: yaml.MappingNode, lines: list[str]) -> Iterator[str]:
    """Yield each value that has no `# --` comment above it or above a key that it belongs to."""
    for key, value in tree.value:
        comment = takewhile(lambda line: line.lstrip().startswith("#"), reversed(lines[: key.start_mark.line]))
        if any(line.lstrip().startswith("# -- ") for line in comment):
            continue
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from undescribed(value, lines)
        else:
            yield f"line {key.start_mark.line + 1}: {key.value}"


def test_every_value_or_one_above_it_has_a_description() -> None:
    text = (ROOT / "charts/shop/values.yaml").read_text()
    tree = yaml.compose(text)
    assert isinstance(tree, yaml.MappingNode)
    assert [*undescribed(tree, text.splitlines())] == []
