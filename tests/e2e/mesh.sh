#!/usr/bin/env bash
# Installs the shop into Istio's mesh, with sidecars, on the cluster that KUBECONFIG names, and tests it there: orders, jobs
# that end, who may call what, restart and upgrade under load, traces, and the switch of a release that runs, with what the
# mesh costs. Variables and helpers are those of cluster.sh; istiod must be in the namespace istio-system.
# shellcheck source=tests/e2e/cluster.sh
source "$(dirname "$0")/cluster.sh"

balancing=mesh account="$release-test"
steps=(install_in_mesh order_by_notes order_in_storefront helm_tests jobs_end mesh_networks mesh_callers
    mesh_restart_under_load mesh_upgrade_under_load one_trace switch_under_load)

# The load is one of the tests' callers, with all that it calls.
mesh_values() {
    sed "s|spiffe://.*|spiffe://cluster.local/ns/$namespace/sa/$release-test:|; s|enabled: true|enabled: false|" \
        tests/e2e/tls-values.yaml
}

install_in_mesh() {
    log "install into a namespace of the mesh that enforces Pod Security restricted: every pod gets a native sidecar"
    local begun=$SECONDS without
    create_namespace "$namespace"
    kubectl label namespace "$namespace" istio-injection=enabled >/dev/null
    helm install "$release" charts/shop --namespace "$namespace" -f <(mesh_values) --set mesh=sidecar \
        --set observability.enabled=true "${helm_args[@]}" >/dev/null
    wait_until_ready
    printf 'every pod is ready after %s s\n' "$((SECONDS - begun))"
    without=$(k get pods --output json | jq -r '.items[] |
        select([.spec.initContainers[]? | select(.name == "istio-proxy" and .restartPolicy == "Always")] == []) | .metadata.name')
    [[ -z $without ]] || fail "without a native sidecar: $without"
    k get pods
}

jobs_end() {
    log "jobs end beside their sidecars: the reconciliation of the CronJob"
    k delete job e2e-reconciliation --ignore-not-found >/dev/null
    k create job e2e-reconciliation --from="cronjob/$release-reconciliation" >/dev/null
    k wait --for=condition=Complete --timeout=4m job/e2e-reconciliation
    k logs job/e2e-reconciliation -c reconciliation | tail -n 2
    k delete job e2e-reconciliation >/dev/null
}

mesh_networks() {
    log "network policies deny by default as without a mesh: a foreign pod reaches nothing, a caller only its callees"
    local balancing='' account='' outside='sidecar.istio.io/inject: "false"'
    run_pod e2e-foreign "{e2e: foreign, $outside}" probe.py none
    finish_pod e2e-foreign 120
    run_pod e2e-caller "{app.kubernetes.io/name: recommendation, app.kubernetes.io/instance: $release, $outside}" \
        probe.py product-catalog
    finish_pod e2e-caller 120
}

# Each method of a service with its address, by reflection in its own pod, which the mesh does not see.
methods_of() { # SERVICE
    k exec --stdin "deployment/$release-$1" -c "$1" -- python - <<'PYTHON' | sed "s/^/$release-$1-clusterip:/"
import os
import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
for port in filter(None, (os.environ["PORT"], os.environ.get("INTERNAL_PORT"))):
    database = ProtoReflectionDescriptorDatabase(grpc.insecure_channel(f"localhost:{port}"))
    pool = DescriptorPool(database)
    for name in database.get_services():
        if name.startswith("shop."):
            for method in pool.FindServiceByName(name).methods:
                print(port, f"{name}/{method.name}")
PYTHON
}

mesh_callers() {
    log "each caller by its service account: what the chart declares is admitted, every other call is refused by a proxy"
    local service account accounts more_mounts=', {name: table, mountPath: /table}'
    local more_volumes=', {name: table, configMap: {name: e2e-table}}' running=()
    # As installed by default, without what the load may call.
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values --set tls.callers=null >/dev/null
    for service in "${services[@]}"; do methods_of "$service"; done >"$work/methods"
    k get authorizationpolicy --output json >"$work/policies"
    printf '%s methods, %s policies\n' "$(wc -l <"$work/methods")" "$(jq '.items | length' "$work/policies")"
    k create configmap e2e-table --from-file="$work/methods" --from-file="$work/policies" --dry-run=client --output=yaml |
        k apply -f - >/dev/null
    # The mesh must refuse the calls, not the network.
    k apply -f - >/dev/null <<YAML
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: e2e-callers}
spec:
  podSelector: {matchLabels: {app.kubernetes.io/instance: $release, app.kubernetes.io/component: service}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {e2e: callers}}}], ports: [{port: 50051}, {port: 50052}]}]
YAML
    account=''
    run_pod e2e-outside '{e2e: callers, sidecar.istio.io/inject: "false"}' mesh_callers.py /table/methods /table/policies
    finish_pod e2e-outside 300
    accounts=$(k get serviceaccount --selector "app.kubernetes.io/instance=$release" --output jsonpath='{.items[*].metadata.name}')
    for account in $accounts; do
        run_pod "e2e-as-$account" "{e2e: callers}" mesh_callers.py /table/methods /table/policies "$account"
        running+=("e2e-as-$account")
        ((${#running[@]} < 3)) || finish_callers
    done
    finish_callers
    k delete networkpolicy e2e-callers >/dev/null
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values -f <(mesh_values) >/dev/null
}

finish_callers() { # of mesh_callers: those that run
    local pod
    for pod in "${running[@]}"; do finish_pod "$pod" 300; done
    running=()
}

mesh_restart_under_load() {
    log "rolling restart of one service after the other under load: no call fails"
    under_load 480 restart_each
}

restart_each() {
    local name
    for name in "${services[@]}" storefront employee-api; do
        k rollout restart "deployment/$release-$name" >/dev/null
        k rollout status --timeout=5m "deployment/$release-$name" >/dev/null
    done
    wait_for_old_pods
}

mesh_upgrade_under_load() {
    log "helm upgrade replaces every pod of the services under load: no call fails"
    under_load 360 upgrade_in_mesh
}

upgrade_in_mesh() { # VALUES...: everything of the release, with new pods of services
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values "$@" \
        --set-string defaults.podAnnotations.upgraded="$(date +%s)" >/dev/null
    wait_until_ready
    wait_for_old_pods
}

one_trace() {
    log "spans of proxies and of the shop are in one trace: istiod gets the collector as a provider"
    local config restored provider found=0
    config=$(kubectl --namespace istio-system get configmap istio --output jsonpath='{.data.mesh}')
    restored=$(jq --null-input --arg mesh "$config" '{data: {mesh: $mesh}}')
    provider="
extensionProviders:
- name: e2e
  opentelemetry: {service: $release-otel-collector.$namespace.svc.cluster.local, port: 4317}"
    [[ $config != *extensionProviders* ]] || fail "istiod has providers already"
    kubectl --namespace istio-system patch configmap istio --type=merge \
        --patch "$(jq --null-input --arg mesh "$config$provider" '{data: {mesh: $mesh}}')" >/dev/null
    k apply -f - >/dev/null <<YAML
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: e2e}
spec: {tracing: [{providers: [{name: e2e}], randomSamplingPercentage: 100}]}
YAML
    sleep 10
    see_one_trace && found=1
    k delete telemetry e2e >/dev/null
    kubectl --namespace istio-system patch configmap istio --type=merge --patch "$restored" >/dev/null
    ((found == 1)) || fail "no such trace"
}

see_one_trace() {
    local trace jaeger found
    trace=$(helm test "$release" --namespace "$namespace" --logs | sed -n 's/^order .* trace \([0-9a-f]*\)$/\1/p')
    kubectl --namespace "$namespace" port-forward "service/$release-jaeger" 26686:16686 >/dev/null &
    jaeger=$!
    for _ in $(seq 30); do
        sleep 2
        found=$(curl --silent "http://127.0.0.1:26686/api/traces/$trace" |
            jq -r '.data[0] | .processes as $of | .spans[] | $of[.processID].serviceName' | sort | uniq -c) || continue
        [[ $found != *".$namespace"* || $found != *" checkout"* ]] || break
    done
    kill "$jaeger"
    printf 'trace %s, spans of\n%s\n' "$trace" "$found"
    # The service of a proxy's spans ends with its namespace.
    [[ $found == *"checkout.$namespace"* && $found == *"payment.$namespace"* && $found == *" checkout"$'\n'* ]]
}

switch_under_load() {
    log "a running release joins the mesh under load: pods first, then policies; no call fails, no store restarts"
    local namespace="$namespace-switch" account balancing test_pod_labels=$test_pod_labels stores
    create_namespace "$namespace"
    helm install "$release" charts/shop --namespace "$namespace" -f <(mesh_values) "${helm_args[@]}" >/dev/null
    wait_until_ready
    stores=$(k get pods --selector 'app.kubernetes.io/component in (database, cache)' --output jsonpath='{.items[*].metadata.uid}')
    account='' balancing=''
    measure none
    under_load 360 upgrade_in_mesh --set mesh=sidecar,meshPermissive=true
    account="$release-test" balancing=mesh test_pod_labels="${test_pod_labels%\}}, sidecar.istio.io/inject: \"true\"}"
    under_load 60 upgrade_policies
    helm_tests
    measure sidecar
    [[ $(k get pods --selector 'app.kubernetes.io/component in (database, cache)' --output jsonpath='{.items[*].metadata.uid}') == "$stores" ]] ||
        fail "a store was replaced"
    helm uninstall "$release" --namespace "$namespace" >/dev/null
    kubectl delete namespace "$namespace" --wait=false >/dev/null
}

upgrade_policies() {
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values --set meshPermissive=false >/dev/null
    sleep 20 # until proxies have them
    k get peerauthentication,authorizationpolicy --output name | wc -l
}

measure() { # LABEL: durations of calls, and CPU of all pods of the namespace for a call
    local before after seconds=90
    before=$(cpu_seconds)
    run_pod e2e-load "$test_pod_labels" load.py "$seconds" "$rate"
    finish_pod e2e-load "$((seconds + 120))" | tee "$work/measured"
    sleep 15 # the kubelet looks every ten seconds
    after=$(cpu_seconds)
    awk -v label="$1" -v before="$before" -v after="$after" \
        -v calls="$(sed -n 's/.*"calls": \([0-9]*\).*/\1/p' "$work/measured")" \
        'BEGIN {printf "%s: %.2f ms of CPU a call, proxies included\n", label, (after - before) * 1000 / calls}'
}

cpu_seconds() { # of all pods of the release that last
    local node; node=$(kubectl get nodes --output jsonpath='{.items[0].metadata.name}')
    kubectl get --raw "/api/v1/nodes/$node/proxy/metrics/resource" | awk -v of="{namespace=\"$namespace\",pod=" '
        index($1, "pod_cpu_usage_seconds_total" of) && !index($1, of "\"e2e-") {sum += $2} END {printf "%.3f\n", sum}'
}

run_steps "$@"
