"""A laboratory on a cluster: a release with `lab.enabled`, in a namespace with the label `shop/lab=true`."""

import base64
import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chassis.tls.certificates import Certificates
from shop_lab.incidents import upkeep_job
from shop_lab.incidents.state import Record
from shop_lab.incidents.targets import CannotAct, Endpoint, NoLaboratory
from shop_lab.incidents.upkeep import MANAGER

LABEL = "shop/lab"
_RUN_LABEL = "shop/run"
_INTERNAL_PORT = 50052
_KUBECTL_SECONDS = 120.0
_ROLLOUT_SECONDS = "180s"
_VALKEY = 'c=valkey-cli; [ -S /tmp/valkey.sock ] && c="valkey-cli -s /tmp/valkey.sock"; $c --no-auth-warning {}'
_END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"
# Ends the background shell whose name is a token, but neither this one nor those that it starts.
_END = 'for p in /proc/[0-9]*; do [ "${p#/proc/}" = $$ ] || ! grep -qa "$0" "$p/cmdline" || kill "${p#/proc/}"; done'


@dataclass(frozen=True)
class Cluster:
    """A release on the cluster that KUBECONFIG names. What kubectl refuses is raised as CannotAct, in one line."""

    namespace: str
    release: str

    def require_laboratory(self) -> None:
        """Raise NoLaboratory unless namespace and release are meant for one."""
        labels = json.loads(self.kubectl("get", "namespace", self.namespace, "--output=json"))["metadata"].get(
            "labels", {}
        )
        if labels.get(LABEL) != "true":
            raise NoLaboratory(
                f"the namespace {self.namespace} has no label {LABEL}=true: kubectl label namespace sets it"
            )
        selector = f"--selector={LABEL}=true,app.kubernetes.io/instance={self.release}"
        if not self.kubectl("get", "deployment", selector, "--output=name"):
            raise NoLaboratory(f"the release {self.release} is no laboratory: helm upgrade it with lab.enabled=true")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace and return what it prints."""
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=_KUBECTL_SECONDS, check=False
            )
        except FileNotFoundError as error:
            raise CannotAct("kubectl is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise CannotAct(f"kubectl {arguments[0]} did not end in {_KUBECTL_SECONDS:g} s") from error
        if done.returncode:
            raise CannotAct(f"kubectl {arguments[0]}: {' '.join(done.stderr.split()) or done.returncode}")
        return done.stdout

    def name(self, component: str) -> str:
        return f"{self.release}-{component}"

    # ------------------------------------------------------------------ objects

    def get(self, url: str) -> Any:
        """Return the object at a URL of the API, None if there is none."""
        try:
            return json.loads(self.kubectl("get", "--raw", url))
        except CannotAct as error:
            if "NotFound" in error.message or "not found" in error.message:
                return None
            raise

    def resource(self, target: str) -> Any:
        """Return the object `kind/component`. Raise CannotAct if there is none."""
        kind, _, component = target.partition("/")
        return json.loads(self.kubectl("get", kind, self.name(component), "--output=json", "--show-managed-fields"))

    def create(self, manifest: Mapping[str, Any]) -> None:
        self.kubectl("create", "--filename=-", stdin=json.dumps(manifest))

    def patch(self, change: Mapping[str, Any], *options: str) -> Any:
        """Make a change, as `upkeep` describes it, and return the object."""
        kind, name = change["url"].split("/")[-2:]
        patch = (f"--type={change['type']}", f"--patch={json.dumps(change['patch'])}")
        command = ("patch", kind, name, *patch, f"--field-manager={MANAGER}", "--output=json", *options)
        return json.loads(self.kubectl(*command))

    def delete(self, url: str) -> None:
        kind, name = url.split("/")[-2:]
        self.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")

    # ------------------------------------------------------------------ records

    def save(self, record: Record) -> None:
        """Store the record in a Secret, before anything acts."""
        labels = {LABEL: "true", _RUN_LABEL: record.token}
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name(record.token), "labels": labels},
            "data": {"state": base64.b64encode(record.dump().encode()).decode()},
        }
        self.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=json.dumps(manifest))

    def records(self) -> list[Record]:
        found = json.loads(self.kubectl("get", "secret", f"--selector={_RUN_LABEL}", "--output=json"))["items"]
        own = [secret for secret in found if secret["metadata"]["name"].startswith(f"{self.release}-")]
        return [Record.load(base64.b64decode(secret["data"]["state"]).decode()) for secret in own]

    def forget(self, record: Record) -> None:
        kinds = "job,rolebinding,role,serviceaccount,secret"
        self.kubectl("delete", kinds, f"--selector={_RUN_LABEL}={record.token}", "--ignore-not-found", "--wait=false")

    def guard(self, record: Record) -> None:
        """Start a pod that restores the objects: stores, failpoints and customers end by themselves."""
        if record.changed_objects:
            checkout, labels = self.resource("deployment/checkout"), {LABEL: "true", _RUN_LABEL: record.token}
            self.create(upkeep_job.manifests(self.namespace, self.name(record.token), record, checkout, labels))

    # ------------------------------------------------------------------ what mechanisms need

    @contextmanager
    def endpoints(self, service: str) -> Iterator[Sequence[Endpoint]]:
        """Forward a local port to each ready pod of a service."""
        selector = f"--selector=app.kubernetes.io/instance={self.release},app.kubernetes.io/name={service}"
        found = json.loads(self.kubectl("get", "pods", selector, "--output=json"))["items"]
        pods = [pod["metadata"]["name"] for pod in found if _is_ready(pod)]
        with ExitStack() as stack:
            certificates = stack.enter_context(self._certificates())
            yield [
                Endpoint(
                    pod,
                    f"127.0.0.1:{stack.enter_context(self.forwarded(f'pod/{pod}', _INTERNAL_PORT))}",
                    certificates,
                    self.name(service) if certificates else "",
                )
                for pod in sorted(pods)
            ]

    @contextmanager
    def _certificates(self) -> Iterator[Certificates | None]:
        secret = self.get(f"/api/v1/namespaces/{self.namespace}/secrets/{self.name('lab-tls')}")
        if secret is None:
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            for file in ("tls.crt", "tls.key", "ca.crt"):
                Path(folder, file).write_bytes(base64.b64decode(secret["data"][file]))
            yield Certificates.load(folder)

    @contextmanager
    def forwarded(self, resource: str, port: int) -> Iterator[int]:
        """Forward a free local port to a pod or Service, and yield it. Raise CannotAct."""
        command = ["kubectl", "--namespace", self.namespace, "port-forward", resource, f":{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                found = re.search(r"127\.0\.0\.1:(\d+)", line)
                if found is None:
                    raise CannotAct(f"cannot reach port {port} of {resource}: {line.strip()}")
                yield int(found[1])
            finally:
                process.terminate()

    def restart(self, service: str) -> None:
        """Restart the pods of a service, and wait until their successors are ready."""
        deployment = f"deployment/{self.name(service)}"
        self.kubectl("rollout", "restart", deployment)
        self.kubectl("rollout", "status", deployment, f"--timeout={_ROLLOUT_SECONDS}")

    def query(self, store: str, database: str, statement: str) -> str:
        script = _psql(database, statement) if store == "postgresql" else _VALKEY.format(statement)
        lines = self._exec(store, script).splitlines()
        if store == "valkey" and lines and lines[0].startswith("ERR"):
            raise CannotAct(f"valkey: {lines[0]}")
        return lines[-1] if lines else ""  # of CONFIG GET the value

    def background(self, store: str, database: str, statements: Sequence[str], token: str) -> None:
        if store == "postgresql":
            script = _psql(database, *map(_paused, statements), application=token)
        else:
            script = "; ".join(f"sleep {text}" if text.isdecimal() else _VALKEY.format(text) for text in statements)
        # An orphan's parent is PID 1: PostgreSQL takes one that fails for a crash of its own, and restarts.
        self._exec(store, f"sh -c {shlex.quote(f'{script}; true')} {token} >/dev/null 2>&1 &")

    def end_background(self, store: str, token: str) -> None:
        if store == "postgresql":
            self._exec(store, _psql("postgres", _END_SESSIONS.format(token)))
        else:
            self._exec(store, _END, token)

    def _exec(self, store: str, script: str, *arguments: str) -> str:
        return self.kubectl("exec", f"{self.name(store)}-0", "--", "sh", "-c", script, *arguments)

    def send_customers(self, settings: Mapping[str, str], program: str = "") -> None:
        """Start a Job of the load generator's pod; the cluster ends it, too."""
        labels = {LABEL: "true", _RUN_LABEL: settings["SEED"]}
        name, deployment = self.name(f"{settings['SEED']}-customers"), self.resource("deployment/load-generator")
        self.create(upkeep_job.customers(name, deployment, settings, program, labels))

    def end_customers(self, seed: str) -> None:
        self.delete(f"/jobs/{self.name(f'{seed}-customers')}")

    # ------------------------------------------------------------------ what is observed

    def compare(self) -> list[str]:
        """Run the release's reconciliation now, with a grace of a minute. Return the kinds of mismatches."""
        job = self.name("reconciliation-now")
        self.delete(f"/jobs/{job}")
        manifest = self.kubectl(
            "create", "job", job, f"--from=cronjob/{self.name('reconciliation')}", "--dry-run=client", "--output=json"
        )
        self.create(upkeep_job.with_grace(json.loads(manifest), minutes=1))
        self.kubectl("wait", f"job/{job}", "--for=jsonpath={.status.conditions[0].status}=True", "--timeout=110s")
        lines = [json.loads(line) for line in self.kubectl("logs", f"job/{job}").splitlines() if line.startswith("{")]
        self.delete(f"/jobs/{job}")
        if "reconciled" not in {line.get("event") for line in lines}:  # it ends without this if a service is down
            raise CannotAct("the reconciliation could not read all records")
        return [line["kind"] for line in lines if line.get("event") == "mismatch"]

    def version(self) -> str:
        """Return the tag of checkout's image."""
        (container,) = self.resource("deployment/checkout")["spec"]["template"]["spec"]["containers"]
        return str(container["image"].rpartition(":")[2])


def _paused(statement: str) -> str:
    return f"SELECT pg_sleep({statement})" if statement.isdecimal() else statement


def _psql(database: str, *statements: str, application: str = "psql") -> str:
    """Return a command that runs all statements in one session."""
    commands = " ".join(f"--command={shlex.quote(statement)}" for statement in statements)
    options = "--no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --username=postgres"
    return f"PGAPPNAME={application} psql {options} --dbname={database} {commands}"


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def url_of(manifest: Mapping[str, Any]) -> str:
    """Return an object's URL in the API."""
    version, kind, metadata = manifest["apiVersion"], manifest["kind"].lower(), manifest["metadata"]
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    group = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{group}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
