#!/usr/bin/env bash
# Installs the shop with two versions of the recommendation into Istio's mesh, on the cluster that KUBECONFIG names, and
# checks what charts/shop/docs/canary.md promises: shares by weight, the header of testers, refused callers, and rollouts of
# a version that is slow, one that fails and one that is good. Variables and helpers are those of cluster.sh; also
#
#   CALL_RATE, STEP_SECONDS   calls per second during a rollout (40), and how long a step takes (20)
# shellcheck source=tests/e2e/cluster.sh
source "$(dirname "$0")/cluster.sh"
export PATH=$PWD/.venv/bin:$PATH

# Calls are those of the storefront, whose network policies and name the pod has.
balancing=mesh account="$release-storefront" labels="{app.kubernetes.io/name: storefront, app.kubernetes.io/instance: $release}"
call_rate=${CALL_RATE:-40} step_seconds=${STEP_SECONDS:-20} storefront=http://127.0.0.1:18080
method=shop.RecommendationService/ListRecommendations
steps=(install_versions weights header undeclared rollouts pages)
# Helm 4 shares no field with kubectl, by which the rollout sets weights.
mapfile -t force < <(helm upgrade --help | grep --only-matching --max-count=1 -e --force-conflicts)

counts=
count() { # SECONDS CALLS RATE [VERSION [ADDRESS]]: make calls and set counts
    run_pod e2e-calls "$labels" recommendations.py "${@:2}"
    count_until "$1"
}

count_until() { # SECONDS
    counts=$(finish_pod e2e-calls "$1" | tail -n 1)
    echo "$counts"
}

check() { # EXPRESSION: of `answered`, `failed` and `slow` calls, and the sum of the first two
    python3 - "$counts" "$1" <<'PYTHON' || fail "$1 is not true"
import json, sys
found = json.loads(sys.argv[1])
found["calls"] = sum(found["answered"].values()) + sum(found["failed"].values())
sys.exit(not eval(sys.argv[2], found))
PYTHON
}

upgrade() { # V1 V2 FAILPOINTS: set the weights, and what v2 does wrong
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values "${force[@]}" \
        --set "services.recommendation.versions.v1.weight=$1,services.recommendation.versions.v2.weight=$2" \
        --set-string "services.recommendation.versions.v2.env.FAILPOINTS=$3" >/dev/null
    wait_until_ready
    wait_for_old_pods
}

install_versions() {
    log "install two versions into a namespace of the mesh"
    create_namespace "$namespace"
    kubectl label namespace "$namespace" istio-injection=enabled >/dev/null
    helm install "$release" charts/shop --namespace "$namespace" --set mesh=sidecar,reconciliation.enabled=false \
        --set services.recommendation.versions.v1.weight=90,services.recommendation.versions.v2.weight=10 \
        --set observability.enabled=true,observability.grafana.enabled=false,observability.loki.enabled=false \
        "${helm_args[@]}" >/dev/null
    wait_until_ready
    k get pods --selector app.kubernetes.io/name=recommendation
}

weights() {
    log "90/10: 2,000 calls, counted by the version in the trailing metadata"
    count 180 2000 50
    check 'not failed and 0.08 <= answered["v2"] / calls <= 0.12'
}

header() {
    log "a tester's header leads every call to a version"
    local version
    for version in v1 v2; do
        count 120 100 20 "$version"
        check "not failed and answered == {'$version': 100}"
    done
}

undeclared() {
    log "a caller that is not declared is refused at the address of all versions and at that of each"
    local address account="$release-ad"
    for address in "$release-recommendation"-{clusterip,v1,v2}; do
        count 120 20 20 "" "$address:50051"
        check 'not answered and failed and all("RBAC: access denied" in reason for reason in failed)'
    done
}

rollouts() {
    forward_prometheus
    roll_out slow "$method=stall:0.5" 1 120
    roll_out failing "$method=error" 1 120
    roll_out good "" 0 300
}

roll_out() { # NAME FAILPOINTS STATUS SECONDS: expect this exit status of a rollout under so many seconds of load
    log "a $1 version is rolled out"
    local status=0 begun
    upgrade 100 0 "$2"
    run_pod e2e-calls "$labels" recommendations.py "$((call_rate * $4))" "$call_rate"
    for _ in $(seq 90); do [[ $(k logs e2e-calls 2>/dev/null) != *started* ]] || break; sleep 1; done
    begun=$SECONDS
    python3 tests/e2e/rollout.py "$namespace" "$release" v1 v2 "$prometheus" "$step_seconds" || status=$?
    ((status == $3)) || fail "the rollout ended with $status"
    if (($3 == 0)); then
        count_until "$(($4 + 60))"
        check 'not failed and answered["v2"]'
        upgrade 0 100 "" # the values say what the rollout has done
    else
        ((SECONDS - begun <= 120)) || fail "it took $((SECONDS - begun)) s"
        count_until "$(($4 + 60))"
        check '(sum(failed.values()) + slow.get("v2", 0)) / calls <= 0.01'
    fi
}

pages() {
    log "pages show the version that a header leads to"
    kubectl --namespace "$namespace" port-forward "service/$release-storefront" 18080:8080 >/dev/null &
    local forwarded=$! version page
    for version in v1 v2; do
        for _ in $(seq 30); do # a page leaves recommendations out when they are slow
            page=$(curl --silent --header "shop-version: $version" "$storefront/products/copper-kettle") || true
            [[ $page != *"· $version</span>"* ]] || continue 2
            sleep 1
        done
        fail "no page shows $version"
    done
    kill "$forwarded"
}

run_steps "${@:-${steps[@]}}"
