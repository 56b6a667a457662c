#!/usr/bin/env bash
# Installs the shop on the cluster that KUBECONFIG names and shows that it works: order, tests, policies, upgrade and
# restart under load, scaling, telemetry, reinstallation. Steps are functions; without arguments all run in order.
#
#   NAMESPACE, RELEASE   where to and under what name (shop, shop); the namespace must not exist
#   HELM_ARGS            more arguments for helm, such as "-f my-values.yaml"
#   LOAD_RATE            rounds a second of the load (2); a round makes every service's smoke call and lists employees
set -euo pipefail
cd "$(dirname "$0")/../.."

namespace=${NAMESPACE:-shop} release=${RELEASE:-shop} rate=${LOAD_RATE:-2}
read -ra helm_args <<<"${HELM_ARGS:-}"
services=()
for project in services/[a-z]*/pyproject.toml; do services+=("$(basename "$(dirname "$project")")"); done
steps=(install_shop order_by_notes helm_tests policies_hold upgrade_under_load telemetry restart_under_load scale_and_spread
    reinstall remove_everything)

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
k() { kubectl --namespace "$namespace" "$@"; }
workloads() { k get deployment,statefulset --selector "app.kubernetes.io/instance=$release" --output name; }

all_ready() {
    local workload
    for workload in $(workloads); do k rollout status --timeout=5m "$workload" >/dev/null; done
}

# Until the last pod that is being replaced is gone: its end is part of what must fail nothing.
old_pods_gone() {
    for _ in $(seq 180); do
        [[ $(k get pods --output jsonpath='{.items[*].metadata.deletionTimestamp}') ]] || return 0
        sleep 1
    done
    fail "pods don't end"
}

query() { # ROLE SQL: asks the database of a role
    k exec "$release-postgresql-0" -- psql --username=postgres --dbname="$1" --tuples-only --no-align --command="$2"
}

prometheus=http://127.0.0.1:19090 forward=
forward_prometheus() {
    [[ -z $forward ]] || kill "$forward" 2>/dev/null || true
    kubectl --namespace "$namespace" port-forward "service/$release-prometheus" 19090:9090 >/dev/null &
    forward=$!
    sleep 3
}
trap '[[ -z $forward ]] || kill "$forward" 2>/dev/null || true' EXIT

# Checksums of all secrets: an upgrade must not change one.
secrets() {
    k get secret --selector "app.kubernetes.io/instance=$release" --sort-by=.metadata.name \
        --output jsonpath='{range .items[*]}{.metadata.name} {.data}{"\n"}{end}' | sha256sum
}

# ------------------------------------------------------------------ a pod of the shop's own image that runs a script

pod_manifest() { # NAME LABELS SCRIPT ARGS...
    local name=$1 labels=$2 script=$3 image; shift 3
    image=$(k get deployment "$release-checkout" --output jsonpath='{.spec.template.spec.containers[0].image}')
    local command; command=$(printf ', "%s"' python "/scripts/$script" "$@")
    cat <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $name, labels: $labels}
spec:
  restartPolicy: Never
  # Never ready, so that no Service takes it for one of its own pods.
  readinessGates: [{conditionType: example.com/never}]
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      image: $image
      imagePullPolicy: IfNotPresent
      command: [${command#, }]
      env:
$(for service in "${services[@]}"; do
        printf '        - {name: %s_ADDR, value: "%s-%s:50051"}\n' "$(tr a-z- A-Z_ <<<"$service")" "$release" "$service"
    done)
        - {name: EMPLOYEE_API_URL, value: "http://$release-employee-api:8000"}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: scripts, mountPath: /scripts}]
  volumes: [{name: scripts, configMap: {name: e2e-scripts}}]
YAML
}

run_pod() { # as pod_manifest: starts it
    local service package scripts=(--from-file=tests/e2e/load.py --from-file=tests/e2e/probe.py)
    for service in "${services[@]}"; do
        package=${service//-/_}
        scripts+=("--from-file=smoke_$package.py=services/$service/src/${package}_service/smoke.py")
    done
    k create configmap e2e-scripts "${scripts[@]}" --dry-run=client --output=yaml | k apply -f - >/dev/null
    k delete pod "$1" --ignore-not-found >/dev/null
    pod_manifest "$@" | k apply -f - >/dev/null
}

finish_pod() { # NAME SECONDS: waits for its end, prints its log; fails as it did
    local phase=
    for _ in $(seq "$2"); do
        phase=$(k get pod "$1" --output jsonpath='{.status.phase}')
        [[ $phase != Succeeded && $phase != Failed ]] || break
        sleep 1
    done
    k logs "$1" | tail -n 25
    k delete pod "$1" --wait=false >/dev/null
    [[ $phase == Succeeded ]] || fail "$1 ended as ${phase:-nothing}"
}

tester="{app.kubernetes.io/name: test, app.kubernetes.io/instance: $release}"

under_load() { # SECONDS COMMAND...: runs the command while load lasts; no call may fail
    local seconds=$1; shift
    run_pod e2e-load "$tester" load.py "$seconds" "$rate"
    for _ in $(seq 90); do [[ $(k logs e2e-load 2>/dev/null) != *started* ]] || break; sleep 1; done
    [[ $(k logs e2e-load) == *started* ]] || fail "the load did not start"
    local begun=$SECONDS
    "$@"
    printf 'done after %s s of a load of %s s\n' "$((SECONDS - begun))" "$seconds"
    ((SECONDS - begun < seconds)) || fail "the load ended before what it was to be beside"
    finish_pod e2e-load "$((seconds + 60))"
}

# ------------------------------------------------------------------ steps

install_shop() {
    say "install into an empty namespace that enforces Pod Security restricted"
    kubectl create namespace "$namespace"
    kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
    local begun=$SECONDS
    helm install "$release" charts/shop --namespace "$namespace" "${helm_args[@]}" >/dev/null
    all_ready
    printf 'every pod is Ready after %s s\n' "$((SECONDS - begun))"
    k get pods
}

order_by_notes() {
    say "an order by the lines that the notes print"
    helm get notes "$release" --namespace "$namespace" | sed -n '/^Place an order:/,/^Let the/p' | sed '1d; $d' >"${TMPDIR:-/tmp}/notes-order.sh"
    bash "${TMPDIR:-/tmp}/notes-order.sh" | tee "${TMPDIR:-/tmp}/notes-order.json"
    grep -q '"shipping_tracking_id": "..*"\|"shippingTrackingId": "..*"' "${TMPDIR:-/tmp}/notes-order.json" || fail "no order"
}

helm_tests() {
    say "helm test"
    helm test "$release" --namespace "$namespace" --logs | sed -n '/^POD LOGS/,$p'
}

policies_hold() {
    say "network policies: a stranger reaches nothing, a caller only its callees"
    run_pod e2e-stranger "{e2e: stranger}" probe.py none
    finish_pod e2e-stranger 120
    run_pod e2e-caller "{app.kubernetes.io/name: recommendation, app.kubernetes.io/instance: $release}" probe.py product-catalog
    finish_pod e2e-caller 120
}

upgrade_under_load() {
    say "helm upgrade under load: every pod is replaced, telemetry is added, nothing fails, secrets stay"
    local before; before=$(secrets)
    under_load 180 upgrade_everything
    [[ $(secrets) == "$before" ]] || fail "the upgrade changed a secret"
    echo "secrets are unchanged"
}

upgrade_everything() {
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values \
        --set observability.enabled=true,telemetry.sampleRatio=0.2 \
        --set-string defaults.podAnnotations.upgraded="$(date +%s)" >/dev/null
    all_ready
    old_pods_gone
}

telemetry() {
    say "telemetry: helm test finds the order's trace in Jaeger and its metrics in Prometheus"
    helm_tests
    say "every query of the dashboards is answered"
    forward_prometheus
    python3 tests/e2e/dashboards.py "$prometheus" || fail "a dashboard's query has no answer"
}

restart_under_load() {
    say "rolling restart of all ten services under load"
    under_load 180 restart_everything
}

restart_everything() {
    for name in "${services[@]}" employee-api; do k rollout restart "deployment/$release-$name" >/dev/null; done
    all_ready
    old_pods_gone
}

scale_and_spread() {
    say "scale product-catalog 1 -> 3 under load: each new pod gets its share"
    under_load 200 scale_and_measure
    k scale "deployment/$release-product-catalog" --replicas=1 >/dev/null
    all_ready
}

scale_and_measure() {
    k scale "deployment/$release-product-catalog" --replicas=3 >/dev/null
    all_ready
    sleep 70 # half a minute until DNS tells, a connection's age until it is asked, half a minute to measure
    forward_prometheus
    python3 tests/e2e/spread.py "$prometheus" product-catalog 3 || fail "the load is not spread"
}

reinstall() {
    say "uninstall, install again: secrets and data are kept"
    local before counted counts
    before=$(secrets)
    counts="SELECT count(*) FROM orders"
    counted=$(query checkout "$counts")
    helm get values "$release" --namespace "$namespace" --output yaml >"${TMPDIR:-/tmp}/e2e-values.yaml"
    helm uninstall "$release" --namespace "$namespace" --wait >/dev/null
    helm install "$release" charts/shop --namespace "$namespace" -f "${TMPDIR:-/tmp}/e2e-values.yaml" >/dev/null
    all_ready
    [[ $(secrets) == "$before" ]] || fail "a secret changed"
    [[ $(query checkout "$counts") -ge $counted && $counted -gt 0 ]] || fail "orders are gone"
    printf '%s orders before, %s after\n' "$counted" "$(query checkout "$counts")"
    helm_tests
}

remove_everything() {
    say "uninstall, then remove what is kept by the command in the chart's README"
    local command
    command=$(grep '^kubectl --namespace shop delete secret,pvc' charts/shop/README.md)
    helm uninstall "$release" --namespace "$namespace" --wait >/dev/null
    command=${command//--namespace shop/--namespace $namespace}
    bash -c "${command//instance=shop/instance=$release}"
    [[ -z $(k get secret,pvc --selector "app.kubernetes.io/instance=$release" --output name) ]] || fail "something is left"
}

begun=$SECONDS
for step in "${@:-${steps[@]}}"; do "$step"; done
say "all steps passed in $((SECONDS - begun)) s"
