#!/usr/bin/env bash
# Installs the shop on the cluster that KUBECONFIG names and tests it there: orders, in the storefront and without it, chart
# tests, restored back-ups, network policies, upgrade and restart under load and with customers, scaling, telemetry,
# sizing, reinstallation, shops side by side, any user id, production values over TLS. Each step is a
# function; without arguments all steps run in order. mesh.sh, which sources this file, has those of a mesh.
#
#   NAMESPACE, RELEASE   namespace, which must not exist, and release name (shop, shop)
#   HELM_ARGS            additional arguments of helm, such as "-f my-values.yaml"
#   LOAD_RATE            rounds of load per second (2); a round makes every service's smoke call and lists employees
#   CUSTOMER_RATE        sessions of customers per second (1)
#   TLS                  if it is 1, with mutual TLS, whose certificates are replaced under load
#   ROTATION_MINUTES     for so long (30)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

namespace=${NAMESPACE:-shop} release=${RELEASE:-shop} rate=${LOAD_RATE:-2} customer_rate=${CUSTOMER_RATE:-1}
read -ra helm_args <<<"${HELM_ARGS:-}"
rotations=()
make --silent setup
if [[ ${TLS:-} == 1 ]]; then
    helm_args+=(-f tests/e2e/tls-values.yaml)
    rotations=(rotation)
    more_mounts=', {name: tls, mountPath: /tls}'
    more_volumes=', {name: tls, secret: {secretName: e2e-tls}}'
fi
# The gRPC services: those that have a smoke call.
services=()
for smoke in services/[a-z]*/tests/smoke.py; do services+=("$(cut -d / -f 2 <<<"$smoke")"); done
steps=(server_side_apply missing_images install_shop order_by_notes order_in_storefront helm_tests restored_backup
    restored_sqlite_backup network_policies upgrade_under_load telemetry restart_under_load "${rotations[@]}"
    replace_key_under_load scale_and_spread scale_storefront size_checkout restart_with_customers
    reinstall remove_everything side_by_side any_user production_tls)

log() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
k() { kubectl --namespace "$namespace" "$@"; }
work=$(mktemp -d)

wait_until_ready() {
    local workload
    for workload in $(k get deployment,statefulset --selector "app.kubernetes.io/instance=$release" --output name); do
        k rollout status --timeout=5m "$workload" >/dev/null
    done
}

# Load must continue until the last replaced pod has ended: nothing may fail then, either.
wait_for_old_pods() {
    for _ in $(seq 180); do
        [[ $(k get pods --output jsonpath='{.items[*].metadata.deletionTimestamp}') ]] || return 0
        sleep 1
    done
    fail "old pods do not end"
}

query() { # ROLE SQL: run a query in the database of a role
    k exec "$release-postgresql-0" -- psql --username=postgres --dbname="$1" --tuples-only --no-align --command="$2"
}

prometheus=http://127.0.0.1:19090 forward=
forward_prometheus() {
    [[ -z $forward ]] || kill "$forward" 2>/dev/null || true
    kubectl --namespace "$namespace" port-forward "service/$release-prometheus" 19090:9090 >/dev/null &
    forward=$!
    sleep 3
}
trap '[[ -z $forward ]] || kill "$forward" 2>/dev/null || true; rm -rf "$work"' EXIT

visit() { # RESOURCE ACTION: be a visitor of the storefront behind a Service or pod, in the session of earlier visits
    local forwarded status=0
    # Not by the function k, whose subshell would end instead of kubectl.
    kubectl --namespace "$namespace" port-forward "$1" 18080:8080 >/dev/null &
    forwarded=$!
    for _ in $(seq 30); do
        ! curl --silent --fail --output /dev/null http://127.0.0.1:18080/healthz || break
        sleep 1
    done
    kill -0 "$forwarded" 2>/dev/null || fail "no port-forward to $1"
    .venv/bin/python tests/e2e/storefront.py http://127.0.0.1:18080 "$work/cookies" "$2" || status=$?
    kill "$forwarded" 2>/dev/null || true
    wait "$forwarded" 2>/dev/null || true
    ((status == 0)) || fail "$2 by way of $1"
}

# Checksum of generated passwords and keys: an upgrade must not change it.
secrets() {
    k get secret --selector "app.kubernetes.io/instance=$release" --sort-by=.metadata.name \
        --output jsonpath='{range .items[*]}{.metadata.name} {.data}{"\n"}{end}' | grep --invert-match -e '^[^ ]*-tls ' -e '^[^ ]*-authority ' | sha256sum
}

create_namespace() { # NAME: one that enforces Pod Security restricted
    kubectl create namespace "$1"
    kubectl label namespace "$1" pod-security.kubernetes.io/enforce=restricted >/dev/null
}

# ------------------------------------------------------------------ pods that run a script in an image of the shop

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
  # Never ready, so that no Service selects it as one of its own pods.
  readinessGates: [{conditionType: example.com/never}]
  automountServiceAccountToken: false
  ${account:+serviceAccountName: $account}
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      image: $image
      imagePullPolicy: IfNotPresent
      command: [${command#, }]
      env:
$(for service in "${services[@]}"; do
        printf '        - {name: %s_ADDR, value: "%s-%s%s:50051"}\n' "$(tr a-z- A-Z_ <<<"$service")" "$release" "$service" \
            "${balancing:+-clusterip}"
    done)
        - {name: EMPLOYEE_API_URL, value: "http://$release-employee-api:8000"}
        ${rotations:+- {name: TLS_FOLDER, value: /tls\}}
        ${balancing:+- {name: BALANCING, value: $balancing\}}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: scripts, mountPath: /scripts}${more_mounts-}]
  volumes: [{name: scripts, configMap: {name: e2e-scripts}}${more_volumes-}]
YAML
}

run_pod() { # NAME LABELS SCRIPT ARGS...
    local service scripts=(--from-file=tests/{e2e/{load,probe,orders,mesh_callers,recommendations},kit/src/shop_smoke}.py)
    for service in "${services[@]}"; do
        scripts+=("--from-file=smoke_${service//-/_}.py=services/$service/tests/smoke.py")
    done
    k create configmap e2e-scripts "${scripts[@]}" --dry-run=client --output=yaml | k apply -f - >/dev/null
    k delete pod "$1" --ignore-not-found >/dev/null
    ((${#rotations[@]} == 0)) || issue_certificate
    pod_manifest "$@" | k apply -f - >/dev/null
}

issue_certificate() { # to the pods that run a script
    k get secret "$release-authority" --output=json | .venv/bin/python tests/e2e/certificate.py "$work/tls"
    k create secret generic e2e-tls --type=kubernetes.io/tls --from-file="$work/tls" --dry-run=client --output=yaml |
        k apply --server-side --force-conflicts -f - >/dev/null
}

finish_pod() { # NAME SECONDS: wait for its end and print its log; fail if it failed
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

only=() # services whose calls alone are the load
test_pod_labels="{app.kubernetes.io/name: test, app.kubernetes.io/instance: $release}"

under_load() { # SECONDS COMMAND...: run the command during load; no call may fail
    local seconds=$1; shift
    run_pod e2e-load "$test_pod_labels" load.py "$seconds" "$rate" "${only[@]}"
    for _ in $(seq 90); do [[ $(k logs e2e-load 2>/dev/null) != *started* ]] || break; sleep 1; done
    [[ $(k logs e2e-load) == *started* ]] || fail "the load did not start"
    local begun=$SECONDS
    "$@"
    printf 'finished after %s s of %s s of load\n' "$((SECONDS - begun))" "$seconds"
    ((SECONDS - begun < seconds)) || fail "the load ended too early"
    finish_pod e2e-load "$((seconds + 60))"
}

# ------------------------------------------------------------------ steps

server_side_apply() {
    log "the API server accepts every render by server-side apply (dry run)"
    local values
    kubectl create namespace "$namespace-render" >/dev/null
    for values in charts/shop/ci/*.yaml charts/shop/values-production.yaml; do
        # Kinds that need custom resource definitions are left out.
        helm template render charts/shop --namespace "$namespace-render" -f "$values" --skip-tests \
            --set mesh=none,gateway.enabled=false,observability.serviceMonitor.enabled=false \
            --set observability.prometheusRule.enabled=false,tls.issuer=authority \
            --set postgresql.cloudnativepg.enabled=false >"$work/render.yaml"
        kubectl apply --server-side --dry-run=server --namespace "$namespace-render" -f "$work/render.yaml" \
            >"$work/applied" || fail "$values"
        printf '%-50s %s objects\n' "$values" "$(wc -l <"$work/applied")"
    done
    kubectl delete namespace "$namespace-render" >/dev/null
}

missing_images() {
    log "without built images, the events name the registry that does not exist"
    create_namespace "$namespace-missing"
    helm install missing charts/shop --namespace "$namespace-missing" --set image.tag=not-built >"$work/notes"
    grep 'No registry serves the images' "$work/notes"
    local events failure='Failed to pull image "not-published.invalid/shop/ad:not-built"'
    for _ in $(seq 60); do
        events=$(kubectl --namespace "$namespace-missing" get events --output jsonpath='{.items[*].message}')
        [[ $events != *"$failure"* ]] || break
        sleep 1
    done
    grep --only-matching "$failure" <<<"$events" || fail "no such event"
    helm uninstall missing --namespace "$namespace-missing" >/dev/null
    kubectl delete namespace "$namespace-missing" >/dev/null
}

install_shop() {
    log "install into an empty namespace that enforces Pod Security restricted"
    create_namespace "$namespace"
    local begun=$SECONDS
    helm install "$release" charts/shop --namespace "$namespace" "${helm_args[@]}" >/dev/null
    wait_until_ready
    printf 'every pod is ready after %s s\n' "$((SECONDS - begun))"
    k get pods
}

order_by_notes() {
    log "place an order with the commands in the notes"
    helm get notes "$release" --namespace "$namespace" | sed -n '/^Place an order without a browser:/,/^Run the/p' | sed '1d; $d' \
        >"$work/order.sh"
    bash "$work/order.sh" | tee "$work/order.json"
    grep -q '"shipping_tracking_id": "..*"\|"shippingTrackingId": "..*"' "$work/order.json" || fail "no order"
}

order_in_storefront() {
    log "open the storefront through a port-forward and order: a form that is sent twice is one order"
    rm -f "$work/cookies" # a session may place a limited number of orders
    visit "service/$release-storefront" fill
    visit "service/$release-storefront" order
}

helm_tests() {
    log "helm test"
    # Without what a mesh's proxies log.
    helm test "$release" --namespace "$namespace" --logs | awk '/^POD LOGS/ {shown = !/\(istio-/} shown'
}

restored_backup() {
    log "restore an older back-up of checkout's database; customers repeat their orders, and nothing doubles"
    NAMESPACE=$namespace RELEASE=$release tests/e2e/backup.sh
}

restored_sqlite_backup() {
    log "the same without database servers, on SQLite files in volumes"
    create_namespace "$namespace-sqlite"
    helm install "$release" charts/shop --namespace "$namespace-sqlite" -f charts/shop/ci/sqlite-values.yaml \
        "${helm_args[@]}" --wait --timeout=5m >/dev/null
    NAMESPACE=$namespace-sqlite RELEASE=$release tests/e2e/backup.sh
    helm uninstall "$release" --namespace "$namespace-sqlite" >/dev/null
    kubectl delete namespace "$namespace-sqlite" --wait=false >/dev/null
}

network_policies() {
    log "network policies: a foreign pod reaches nothing, a caller only its callees"
    run_pod e2e-foreign "{e2e: foreign}" probe.py none
    finish_pod e2e-foreign 120
    local labels="{app.kubernetes.io/name: recommendation, app.kubernetes.io/instance: $release}"
    run_pod e2e-caller "$labels" probe.py product-catalog
    finish_pod e2e-caller 120
}

upgrade_under_load() {
    log "helm upgrade under load replaces every pod and adds telemetry; no call fails, no secret changes"
    local before; before=$(secrets)
    under_load 180 upgrade_everything
    [[ $(secrets) == "$before" ]] || fail "the upgrade changed a secret"
    echo "secrets are unchanged"
}

upgrade_everything() {
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values \
        --set observability.enabled=true,telemetry.sampleRatio=0.2 \
        --set-string defaults.podAnnotations.upgraded="$(date +%s)" >/dev/null
    wait_until_ready
    wait_for_old_pods
}

telemetry() {
    log "telemetry: helm test finds the order's trace in Jaeger and its metrics in Prometheus"
    helm_tests
    log "every query of the dashboards has a result under load, and the collector is scraped"
    under_load 300 see_dashboards
}

see_dashboards() {
    forward_prometheus
    # A metric exists from its first sample on, and rules over days are evaluated every two minutes.
    local until=$((SECONDS + 240))
    order_in_storefront >/dev/null
    until python3 tests/e2e/dashboard_queries.py "$prometheus" >"$work/queries"; do
        ((SECONDS < until)) || { grep WRONG "$work/queries"; fail "a query has no result"; }
        order_in_storefront >/dev/null
        sleep 5
    done
    printf '%s queries\n' "$(wc -l <"$work/queries")"
}

restart_under_load() {
    log "rolling restart of all services under load"
    under_load 180 restart_everything
}

restart_everything() {
    for name in "${services[@]}" storefront employee-api; do k rollout restart "deployment/$release-$name" >/dev/null; done
    wait_until_ready
    wait_for_old_pods
}

rotation() {
    local before force minutes=${ROTATION_MINUTES:-30}
    log "every certificate is replaced each minute for $minutes minutes under load, their authority too: no call fails"
    before=$(pods)
    under_load "$(((minutes > 9 ? minutes : 9) * 60 + 300))" .venv/bin/python tests/e2e/rotation.py "$namespace" "$release" "$minutes"
    [[ $(pods) == "$before" ]] || fail "pods were replaced or restarted: $(diff <(echo "$before") <(pods))"
    log "an upgrade issues by the new authority; new pods, which trust it alone, reach the stores and each other"
    before=$(k get secret "$release-cart-tls" --output jsonpath='{.data}')
    # Helm 4 shares no field with kubectl, which replaced the certificates.
    mapfile -t force < <(helm upgrade --help | grep --only-matching --max-count=1 -e --force-conflicts)
    helm upgrade "$release" charts/shop --namespace "$namespace" --reuse-values "${force[@]}" >/dev/null
    [[ $(k get secret "$release-cart-tls" --output jsonpath='{.data}') != "$before" ]] ||
        fail "the upgrade renewed no certificate"
    restart_everything
    helm_tests
}

pods() { # names of the release's lasting pods, with the restarts of their containers
    k get pods --selector "app.kubernetes.io/instance=$release,app.kubernetes.io/component notin (job, test)" \
        --output jsonpath='{range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}{"\n"}{end}' |
        grep -v '^e2e-'
}

replace_key_under_load() {
    log "payment's HMAC key is replaced under load"
    under_load 420 replace_key
    [[ $(query payment 'SELECT count(DISTINCT hmac_key_id) FROM charges') == 2 ]] || fail "charges under both keys"
}

replace_key() {
    local step
    for step in begin finish; do
        RELEASE=$release NAMESPACE=$namespace charts/shop/replace-hmac-key.sh "$step" payment >/dev/null
    done
}

scale_and_spread() {
    log "scale product-catalog from 1 to 3 under load: each pod receives its share"
    under_load 240 scale_and_measure
    k scale "deployment/$release-product-catalog" --replicas=1 >/dev/null
    wait_until_ready
}

scale_and_measure() {
    k scale "deployment/$release-product-catalog" --replicas=3 >/dev/null
    wait_until_ready
    sleep 120 # the TTL of DNS, the age of a connection, a minute to measure, its export
    forward_prometheus
    local calls='rpc_server_call_duration_seconds_count{service_name="product-catalog"}'
    curl --silent --get "$prometheus/api/v1/query" \
        --data-urlencode "query=sum by (k8s_pod_name) (rate(${calls}[1m])) > 0" >"$work/calls"
    jq --raw-output '.data.result[] | "\(.metric.k8s_pod_name) \(.value[1])/s"' "$work/calls"
    jq --exit-status '[.data.result[].value[1] | tonumber] | length == 3 and min >= add / 5' "$work/calls" ||
        fail "the load is not spread"
}

scale_storefront() {
    log "scale the storefront from 1 to 3: a session continues at every pod"
    visit "service/$release-storefront" fill
    k scale "deployment/$release-storefront" --replicas=3 >/dev/null
    wait_until_ready
    local pod pods
    pods=$(k get pods --selector "app.kubernetes.io/instance=$release,app.kubernetes.io/name=storefront" --output name)
    [[ $(wc -l <<<"$pods") == 3 ]] || fail "not three pods: $pods"
    for pod in $pods; do visit "$pod" cart; done
    visit "${pods##*$'\n'}" order
    k scale "deployment/$release-storefront" --replicas=1 >/dev/null
    wait_until_ready
    wait_for_old_pods
}

size_checkout() {
    log "sizing: what an order costs each workload, and three replicas of checkout, with a CPU limit, beside one"
    local limits=/spec/template/spec/containers/0/resources/limits/cpu replicas one
    wait_for_old_pods
    place_orders 1200 48
    patch_checkout '{"op": "add", "path": "'"$limits"'", "value": "150m"}'
    for replicas in 1 3; do
        k scale "deployment/$release-checkout" --replicas="$replicas" >/dev/null
        wait_until_ready
        wait_for_old_pods
        # As many in flight for each replica: the more it has, the more of them share commits and calls.
        place_orders "$((replicas * 400))" "$((replicas * 16))"
        [[ $replicas != 1 ]] || one=$orders_a_second
    done
    patch_checkout '{"op": "remove", "path": "'"$limits"'"}'
    k scale "deployment/$release-checkout" --replicas=1 >/dev/null
    wait_until_ready
    wait_for_old_pods
    awk -v one="$one" -v three="$orders_a_second" \
        'BEGIN {printf "three replicas place %.2f times the orders of one\n", three / one; exit three < 2.2 * one}' ||
        fail "checkout does not scale"
}

patch_checkout() { k patch "deployment/$release-checkout" --type=json --patch "[$1]" >/dev/null; }

orders_a_second=0
place_orders() { # ORDERS IN_FLIGHT: of three lines; set orders_a_second, and print what an order costs each workload
    local before after stored
    run_pod e2e-orders "$test_pod_labels" orders.py burst "$1" 3 "$2"
    for _ in $(seq 180); do [[ $(k logs e2e-orders 2>/dev/null) != *filled* ]] || break; sleep 1; done
    before=$(used) stored=$(commits)
    finish_pod e2e-orders 300 | tee "$work/orders.json"
    sleep 2 # confirmations, telemetry
    after=$(used)
    orders_a_second=$(sed -n 's/.*"orders_a_second": \([0-9.]*\).*/\1/p' "$work/orders.json")
    printf '%-24s %10s %10s\n' workload "ms/order" "RSS MiB"
    paste <(echo "$before") <(echo "$after") | awk -v orders="$1" '
        {ms = ($5 - $2) * 10 / orders; sum += ms}
        ms >= 0.05 {printf "%-24s %10.2f %10.1f\n", $1, ms, $6 / 1024}
        END {printf "%-24s %10.2f\n", "all", sum}'
    (echo "$stored" && commits) | awk -v orders="$1" '
        NR == 1 {commits = $1; bytes = $2}
        END {printf "%.1f commits and %.1f kB of write-ahead log an order\n", ($1 - commits) / orders, ($2 - bytes) / orders / 1000}'
}

commits() { # so far, and bytes of the write-ahead log
    query postgres "SELECT sum(xact_commit) || ' ' || (pg_current_wal_lsn() - '0/0') FROM pg_stat_database"
}

used() { # for each workload: its name, hundredths of a second of CPU so far, resident KiB of its largest main process
    local name pod
    for name in "${services[@]}" storefront postgresql valkey; do
        for pod in $(k get pods --selector "app.kubernetes.io/instance=$release,app.kubernetes.io/name=$name" --output name); do
            k exec "$pod" --quiet -- sh -c 'grep VmRSS /proc/1/status; cat /proc/[0-9]*/stat 2>/dev/null'
        done | awk -v name="$name" '
            $1 == "VmRSS:" {if ($2 > most) most = $2; next}
            {sub(/.*\) /, ""); cpu += $12 + $13}
            END {print name "\t" cpu "\t" most}'
    done
}

restart_with_customers() {
    log "customers visit the storefront during a rolling restart of everything: no page fails"
    customers true
    k logs --follow "deployment/$release-load-generator" >"$work/customers.log" &
    local followed=$!
    for _ in $(seq 90); do ! grep -q '"event": "started"' "$work/customers.log" || break; sleep 1; done
    sleep 30 # some orders before the restart, some during it, some after it
    restart_everything
    sleep 30
    # A stopping pod prints its summary, after the sessions in flight; its network policy must last until then.
    k scale "deployment/$release-load-generator" --replicas=0 >/dev/null
    wait "$followed" || true
    customers false
    jq --raw-input 'fromjson? | select(.event == "summary")' "$work/customers.log" | tee "$work/summary"
    jq --exit-status '.orders > 0 and .errors == [] and .dropped == 0' "$work/summary" || fail "customers were not served"
}

customers() { # true or false
    helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values \
        --set "load.enabled=$1,load.rate=$customer_rate" >/dev/null
    wait_until_ready
}

reinstall() {
    log "uninstall and install again: secrets and data are kept"
    local before counted counts
    before=$(secrets)
    counts="SELECT count(*) FROM orders"
    counted=$(query checkout "$counts")
    helm get values "$release" --namespace "$namespace" --output yaml >"$work/values.yaml"
    helm uninstall "$release" --namespace "$namespace" --wait >/dev/null
    helm install "$release" charts/shop --namespace "$namespace" -f "$work/values.yaml" >/dev/null
    wait_until_ready
    [[ $(secrets) == "$before" ]] || fail "a secret changed"
    [[ $(query checkout "$counts") -ge $counted && $counted -gt 0 ]] || fail "orders are gone"
    printf '%s orders before, %s after\n' "$counted" "$(query checkout "$counts")"
    helm_tests
}

remove_everything() {
    log "uninstall, then delete what is kept with the documented command"
    local command
    command=$(grep '^kubectl --namespace shop delete secret,pvc' charts/shop/docs/data.md)
    helm uninstall "$release" --namespace "$namespace" --wait >/dev/null
    command=${command//--namespace shop/--namespace $namespace}
    bash -c "${command//instance=shop/instance=$release}"
    [[ -z $(k get secret,pvc --selector "app.kubernetes.io/instance=$release" --output name) ]] || fail "something is left"
}

side_by_side() {
    log "two shops in one namespace, by nameOverride and fullnameOverride: orders in each, one outlives the other"
    local shop shared="$namespace-shared"
    create_namespace "$shared"
    helm install one charts/shop --namespace "$shared" --set nameOverride=eu "${helm_args[@]}" --wait >/dev/null
    helm install two charts/shop --namespace "$shared" --set fullnameOverride=usa "${helm_args[@]}" --wait >/dev/null
    for shop in one two; do helm test "$shop" --namespace "$shared" >/dev/null || fail "tests of $shop"; done
    helm upgrade two charts/shop --namespace "$shared" --reset-then-reuse-values --set logLevel=debug --wait >/dev/null
    helm uninstall one --namespace "$shared" --wait >/dev/null
    helm test two --namespace "$shared" >/dev/null || fail "tests of two without one"
    kubectl --namespace "$shared" get statefulset,service --output name
    kubectl delete namespace "$shared" >/dev/null
}

any_user() {
    log "ids that the platform chooses, as OpenShift does: an order with a user id that no image knows, in group 0"
    local namespace="$namespace-any-user" ids='1000680000\n\1runAsGroup: 0\n\1fsGroup: 1000680000'
    create_namespace "$namespace"
    shop_of_any_user() {
        helm template "$release" charts/shop --namespace "$namespace" --set fixedIds=false "${helm_args[@]}" "$@" |
            sed "s/^\( *\)runAsNonRoot: true/&\n\1runAsUser: $ids/" | k apply -f - >/dev/null
    }
    shop_of_any_user --skip-tests
    wait_until_ready
    shop_of_any_user --show-only templates/tests/tests.yaml
    k wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=3m pod --selector app.kubernetes.io/name=test
    k exec "deployment/$release-checkout" -- id
    kubectl delete namespace "$namespace" >/dev/null
}

production_tls() {
    log "values-production.yaml with PostgreSQL and Valkey that accept TLS only"
    tests/e2e/production.sh "$work" "$namespace-production" "${helm_args[@]}"
}

run_steps() {
    local begun=$SECONDS step
    for step in "${@:-${steps[@]}}"; do "$step"; done
    log "all steps passed in $((SECONDS - begun)) s"
}

# Another script may have steps of its own.
[[ ${BASH_SOURCE[0]} != "$0" ]] || run_steps "$@"
