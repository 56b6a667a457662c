#!/usr/bin/env bash
# The shop on PostgreSQL of the operator CloudNativePG, on the cluster that KUBECONFIG names: primaries are killed without
# grace while customers order; no ledger entry may be lost or double. Then the control, whose ledgers are replicated
# asynchronously and lose commits, each of which the reconciliation must name. Each step is a function; without arguments
# all steps run in order.
#
#   NAMESPACE, RELEASE   namespaces' prefix and release name (stores, shop)
#   HELM_ARGS            additional arguments of helm, such as "-f my-values.yaml"
#   ORDERS, KILLS        orders in all, and primaries killed meanwhile (10000, 20)
#   IN_FLIGHT            orders at once (16)
#   GAP_SECONDS          the longest time without a successful order (15)
set -euo pipefail
cd "$(dirname "$0")/../.."

prefix=${NAMESPACE:-stores} release=${RELEASE:-shop} orders=${ORDERS:-10000} kills=${KILLS:-20} in_flight=${IN_FLIGHT:-16}
longest=${GAP_SECONDS:-15} namespace=$prefix
read -ra helm_args <<<"${HELM_ARGS:-}"
steps=(install_shop ledgers_survive carts_survive restored_backup remove_shop control)
ledgers=$release-pg-required

log() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
k() { kubectl --namespace "$namespace" "$@"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wait_for() { # SECONDS WHAT COMMAND...
    local until=$((SECONDS + $1)) what=$2; shift 2
    until "$@"; do
        ((SECONDS < until)) || fail "not within the time: $what"
        sleep 1
    done
}

install() { # HELM_ARGS...: in a namespace that enforces Pod Security restricted
    local begun=$SECONDS deployment
    kubectl create namespace "$namespace"
    kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
    # The reconciliation runs when the test says so, and counts records that are missing now.
    helm install "$release" charts/shop --namespace "$namespace" --set postgresql.cloudnativepg.enabled=true \
        --set-string 'reconciliation.schedule=0 0 29 2 *' --set reconciliation.graceMinutes=0 "${helm_args[@]}" "$@" >/dev/null
    for deployment in $(k get deployment --output name); do k rollout status --timeout=8m "$deployment" >/dev/null; done
    # A standby begins with a checkpoint, which PostgreSQL spreads over minutes.
    wait_for 600 "healthy clusters" healthy
    printf 'every pod is ready after %s s\n' "$((SECONDS - begun))"
    k get pods
}

uninstall() { # and the Clusters, which outlive the release
    helm uninstall "$release" --namespace "$namespace" --wait >/dev/null
    kubectl delete namespace "$namespace" >/dev/null
}

# ------------------------------------------------------------------ clusters

healthy() { # of all clusters, each instance is ready
    local states
    states=$(k get clusters.postgresql.cnpg.io --output \
        jsonpath='{range .items[*]}{.spec.instances}/{.status.readyInstances} {.status.phase}{"\n"}{end}') &&
        [[ -n $states ]] && ! grep --invert-match --quiet '^\([0-9]*\)/\1 Cluster in healthy state$' <<<"$states"
}

primary() { k get clusters.postgresql.cnpg.io "$ledgers" --output jsonpath='{.status.currentPrimary}'; }

sql() { # DATABASE STATEMENT
    k exec "$(primary)" --container=postgres -- psql --quiet --tuples-only --no-align --dbname="$1" --command="$2"
}

kill_primary() { # [delayed]: kill the primary, if delayed a second after its standbys got the last commits
    local pod uid
    wait_for 300 "healthy clusters" healthy
    pod=$(primary) uid=$(k get pod "$(primary)" --output jsonpath='{.metadata.uid}')
    if [[ ${1-} == delayed ]]; then
        # shellcheck disable=SC2016 # expands in the pod
        k exec "$pod" --container=postgres -- \
            sh -c 'kill -STOP $(psql --tuples-only --no-align --command="SELECT pid FROM pg_stat_replication")'
        sleep 1
    fi
    date +%s >>"$work/kills"
    k delete pod "$pod" --grace-period=0 --force >/dev/null 2>&1
    wait_for 180 "another primary" has_other_primary "$uid"
}

has_other_primary() { # UID
    local uid
    uid=$(k get pod "$(primary)" --output jsonpath='{.metadata.uid}' 2>/dev/null) && [[ $uid != "$1" ]] &&
        [[ $(sql postgres 'SELECT pg_is_in_recovery()' 2>/dev/null) == f ]]
}

# ------------------------------------------------------------------ customers

start() { # ARGS...: run orders.py in a pod
    k create configmap e2e-stores --from-file=tests/{e2e/orders,e2e/load,kit/src/shop_smoke}.py \
        --from-file=smoke_cart.py=services/cart/tests/smoke.py \
        --from-file=smoke_checkout.py=services/checkout/tests/smoke.py --dry-run=client --output=yaml |
        k apply -f - >/dev/null
    k apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: e2e-stores, labels: {app.kubernetes.io/name: test, app.kubernetes.io/instance: $release}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      image: $(k get deployment "$release-checkout" --output jsonpath='{.spec.template.spec.containers[0].image}')
      imagePullPolicy: IfNotPresent
      command: [python, /scripts/orders.py$(printf ', "%s"' "$@")]
      env:
        - {name: CART_ADDR, value: "$release-cart:50051"}
        - {name: CHECKOUT_ADDR, value: "$release-checkout:50051"}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: scripts, mountPath: /scripts}]
  volumes: [{name: scripts, configMap: {name: e2e-stores}}]
YAML
    k wait --for=condition=Ready --timeout=2m pod/e2e-stores >/dev/null
    : >"$work/kills"
    kubectl --namespace "$namespace" logs --follow e2e-stores >"$work/log" &
    following=$!
}

count() { grep --count --extended-regexp "$1" "$work/log" || true; }
at_least() { (($(count "$2") >= $1)); } # NUMBER LINES

finish() { # stop the pod, which must succeed
    k exec e2e-stores -- python -c 'import os, signal; os.kill(1, signal.SIGTERM)'
    wait_for 180 "the end of the customers" ended
    wait "$following" || true
    [[ $(k get pod e2e-stores --output jsonpath='{.status.phase}') == Succeeded ]] || { tail "$work/log"; fail "customers"; }
    k delete pod e2e-stores >/dev/null
}

ended() { [[ $(k get pod e2e-stores --output jsonpath='{.status.phase}') =~ Succeeded|Failed ]]; }

gaps() { # for each kill, the longest time without a successful order from it on
    awk -v longest="$longest" 'FNR == NR { if ($1 == "gap") { begin[++n] = $2; seconds[n] = $3 } next }
        { most = 0; for (i = 1; i <= n; i++) if (begin[i] > $1 - 3 && begin[i] < $1 + 10 && seconds[i] > most) most = seconds[i]
          printf "kill %2d: %4.1f s without a successful order\n", FNR, most; if (most > all) all = most }
        END { printf "longest: %.1f s\n", all; exit all > longest }' "$work/log" "$work/kills"
}

# ------------------------------------------------------------------ records

reconcile() { # run the reconciliation; its log is in $work/reconciled, the result its exit status
    k delete job e2e-reconcile --ignore-not-found >/dev/null
    k create job e2e-reconcile --from="cronjob/$release-reconciliation" >/dev/null
    wait_for 300 "the end of the reconciliation" job_ended
    k logs job/e2e-reconcile >"$work/reconciled"
    [[ $(k get job e2e-reconcile --output jsonpath='{.status.succeeded}') == 1 ]]
}

job_ended() { [[ $(k get job e2e-reconcile --output jsonpath='{.status.conditions[*].type}') =~ Complete|Failed ]]; }

# Compare the orders that customers saw succeed with both ledgers. Sets `lost` and `double`, the orders' ids.
compare_ledgers() {
    local ledger table
    sed -n 's/^order //p' "$work/log" | sort -u >"$work/orders"
    : >"$work/lost"; : >"$work/double"
    for ledger in payment:charges:charge_key:CHARGED shipping:shipments:shipment_key:SHIPPED; do
        IFS=: read -r database table key state <<<"$ledger"
        sql "$database" "SELECT split_part($key, ':', 1) FROM $table WHERE state = '$state'" | sort >"$work/$table"
        uniq "$work/$table" | comm -23 "$work/orders" - >>"$work/lost"
        uniq --repeated "$work/$table" >>"$work/double"
        printf '%-10s %6d entries\n' "$table" "$(wc -l <"$work/$table")"
    done
    sort -u -o "$work/lost" "$work/lost"
    printf '%d orders succeeded, %d calls were repeated; %d orders lost an entry, %d have one twice\n' \
        "$(wc -l <"$work/orders")" "$(count '^repeated')" "$(wc -l <"$work/lost")" "$(wc -l <"$work/double")"
}

# ------------------------------------------------------------------ steps

install_shop() {
    log "install under Pod Security restricted and default deny, carts in PostgreSQL, too; helm test"
    install --set services.cart.store=postgresql,valkey.enabled=false
    helm test "$release" --namespace "$namespace" --logs | sed -n '/^POD LOGS/,$p'
}

ledgers_survive() {
    log "$kills primaries are killed without grace over $orders orders: nothing is lost or double"
    local number
    start repeat "$in_flight"
    for number in $(seq "$kills"); do
        wait_for 1200 "orders before kill $number" at_least $((number * orders / (kills + 1))) '^order'
        kill_primary
    done
    wait_for 1200 "$orders orders" at_least "$orders" '^order'
    wait_for 300 "healthy clusters" healthy
    finish
    gaps || fail "more than $longest s without a successful order"
    compare_ledgers
    [[ ! -s $work/lost && ! -s $work/double ]] || fail "lost: $(cat "$work/lost") double: $(cat "$work/double")"
    wait_for 600 "records that agree" reconcile
    echo "the reconciliation found no mismatch"
}

carts_survive() {
    log "500 concurrent additions to a cart are exact across a failover"
    start carts 500
    wait_for 120 "a first cart" at_least 1 '^cart'
    kill_primary
    wait_for 180 "a cart whose additions were repeated" at_least 1 '^cart 500 repeated [1-9]'
    finish
    grep '^cart' "$work/log"
}

restored_backup() {
    log "restore an older back-up of checkout's database; customers repeat their orders, and nothing doubles"
    NAMESPACE=$namespace RELEASE=$release tests/e2e/backup.sh
}

remove_shop() { uninstall; }

# Checkout's journal is in a cluster of its own, so that it still knows what the ledgers lose.
control() {
    log "the control: standbys get commits a second late; ledgers of required durability lose none, asynchronous ones do"
    namespace=$prefix-control
    install --set services.checkout.durability=preferred,services.email.durability=preferred
    start repeat "$in_flight"
    wait_for 300 "orders" at_least 100 '^order'
    kill_primary delayed
    wait_for 300 "orders after the failover" at_least $(($(count '^order') + 50)) '^order'
    finish
    compare_ledgers
    [[ ! -s $work/lost ]] || fail "lost in spite of required durability: $(cat "$work/lost")"
    wait_for 600 "records that agree" reconcile

    k patch clusters.postgresql.cnpg.io "$ledgers" --type=json \
        --patch '[{"op": "remove", "path": "/spec/postgresql/synchronous"}]' >/dev/null
    wait_for 120 "asynchronous replication" asynchronous
    for _ in $(seq "$kills"); do
        start repeat "$in_flight"
        wait_for 300 "orders" at_least 100 '^order'
        kill_primary delayed
        wait_for 300 "orders after the failover" at_least $(($(count '^order') + 50)) '^order'
        finish
        compare_ledgers
        [[ ! -s $work/lost ]] || break
    done
    [[ -s $work/lost ]] || fail "$kills kills lost nothing"
    sleep 30 # orders in progress
    ! reconcile || fail "the reconciliation found no mismatch"
    while read -r order; do grep --quiet "$order" "$work/reconciled" || fail "$order is not named"; done <"$work/lost"
    grep --fixed-strings --max-count=3 --file="$work/lost" "$work/reconciled"
    echo "the reconciliation names each of the $(wc -l <"$work/lost") orders that lost an entry"
    uninstall
}

asynchronous() { [[ -z $(sql postgres 'SHOW synchronous_standby_names') ]]; }

begun=$SECONDS
for step in "${@:-${steps[@]}}"; do "$step"; done
log "all steps passed in $((SECONDS - begun)) s"
