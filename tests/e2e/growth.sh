#!/usr/bin/env bash
# Growth on the cluster that KUBECONFIG names, which needs metrics-server: under three times the load checkout grows from
# one replica to three and shrinks again, a drain is admitted with two replicas of everything, and two installs of one
# commit are the same. Variables, and how steps are chosen: see cluster.sh.
#
#   GROWTH_RATE   orders a second (20)
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/cluster.sh
source tests/e2e/cluster.sh
steps=(install_twice install_shop grow drain)
order_rate=${GROWTH_RATE:-20} busy=0

ready_replicas() { k get deployment "$release-checkout" --output jsonpath='{.status.readyReplicas}'; }

wait_for_replicas() { # NUMBER SECONDS
    for _ in $(seq "$2"); do [[ $(ready_replicas) != "$1" ]] || return 0; sleep 1; done
    fail "checkout has $(ready_replicas) replicas, not $1, after $2 s"
}

measure() { # set busy: the millicores that checkout uses
    local before after
    before=$(used | awk '$1 == "checkout" {print $2}')
    sleep 40
    after=$(used | awk '$1 == "checkout" {print $2}')
    busy=$(((after - before) * 10 / 40))
}

autoscale() { # MILLICORES: of which a replica uses 70 %
    local scaling=services.checkout.autoscaling
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values \
        --set "$scaling.enabled=true,$scaling.minReplicas=1,$scaling.maxReplicas=3,$scaling.cpuUtilization=70" \
        --set "services.checkout.resources.requests.cpu=$1m" >/dev/null
    wait_until_ready
    wait_for_old_pods
}

shrink() {
    wait_for_replicas 1 480
    wait_for_old_pods
}

record_replicas() { # print the time and the replicas whenever their number changes
    local last='' now
    while sleep 2 && [[ -d $work ]]; do # until the script ends
        now=$(ready_replicas) || continue
        [[ $now == "$last" ]] || printf '%4d s: %s replicas\n' "$SECONDS" "${now:-0}"
        last=$now
    done
}

grow() {
    log "three times the load: checkout grows from one replica to three and shrinks again, and no order fails"
    local only=(checkout) rate=$order_rate recorded
    under_load 75 measure
    # One replica then uses 80 % of its target, and three times the load needs three.
    autoscale "$((busy * 100 / 56))"
    printf '%s orders a second use %sm, of which 70 %% of the request %sm are the target\n' "$rate" "$busy" "$((busy * 100 / 56))"
    record_replicas >"$work/replicas" &
    recorded=$!
    under_load 120 sleep 90
    wait_for_replicas 1 1
    rate=$((3 * order_rate))
    under_load 240 wait_for_replicas 3 180 | tee "$work/grown"
    rate=$order_rate
    under_load 600 shrink
    kill "$recorded"
    cat "$work/replicas"
    awk -F '"in_time": ' 'NF > 1 {share = $2 + 0} END {print share * 100 " % in time meanwhile"; exit share < 0.8}' \
        "$work/grown" || fail "fewer than 80 % of the orders took less than 2.5 s"
}

drain() {
    log "with two replicas of every service, the API server admits the eviction of each pod"
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values \
        --set highAvailability=true >/dev/null
    wait_until_ready
    wait_for_old_pods
    k get poddisruptionbudget
    kubectl drain --selector kubernetes.io/hostname --pod-selector "app.kubernetes.io/instance=$release" \
        --ignore-daemonsets --delete-emptydir-data --force --dry-run=server --timeout=1m
}

install_twice() {
    log "two installs of one commit, with existing secrets, have the same manifest, byte for byte"
    local namespace="$namespace-twice" number command
    command=$(sed -n '/create secret generic shop-keys/,/^```/p' charts/shop/docs/data.md | sed '$d')
    for number in 1 2; do
        create_namespace "$namespace"
        bash -c "${command//--namespace shop/--namespace $namespace}"
        helm install "$release" charts/shop --namespace "$namespace" -f charts/shop/ci/existing-secret-values.yaml \
            "${helm_args[@]}" --wait --timeout=5m >/dev/null
        helm get manifest "$release" --namespace "$namespace" >"$work/manifest-$number"
        kubectl delete namespace "$namespace" >/dev/null
    done
    (cd "$work" && sha256sum manifest-1 manifest-2 && cmp manifest-1 manifest-2) || fail "the manifests differ"
}

run_steps "$@"
