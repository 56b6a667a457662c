#!/usr/bin/env bash
# Installs the employee API alone, in two replicas that enforce authorization, and replaces all of its pods twice while
# clients work with it: a rolling restart and an upgrade. No request fails, every session is kept, no write is lost or
# doubled; and the replicas limit failed logins together.
#
#   NAMESPACE, RELEASE   namespace, which must not exist, and release name (employees, shop)
#   HELM_ARGS            additional arguments of helm, such as "--set image.tag=e2e"
#   SECONDS_OF_LOAD      (150)
set -euo pipefail
cd "$(dirname "$0")/../.."

namespace=${NAMESPACE:-employees} release=${RELEASE:-shop} seconds=${SECONDS_OF_LOAD:-150}
read -ra helm_args <<<"${HELM_ARGS:-}"
api=$release-employee-api email=grace@example.com
password=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
k() { kubectl --namespace "$namespace" "$@"; }
log() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

wait_until_replaced() {
    k rollout status --timeout=5m "deployment/$api" >/dev/null
    for _ in $(seq 120); do
        [[ $(k get pods --output jsonpath='{.items[*].metadata.deletionTimestamp}') ]] || return 0
        sleep 1
    done
    fail "old pods do not end"
}

log "install"
kubectl create namespace "$namespace"
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
helm install "$release" charts/shop --namespace "$namespace" -f tests/e2e/employees-values.yaml "${helm_args[@]}" >/dev/null
k rollout status --timeout=5m "statefulset/$release-postgresql" >/dev/null
k rollout status --timeout=5m "deployment/$api" >/dev/null
k exec --stdin "deployment/$api" -- python -m employee_api add-user --name "Grace Hopper" --email "$email" --role ceo \
    <<<"$password"

log "clients work while all pods are replaced, by a restart and by an upgrade"
image=$(k get deployment "$api" --output jsonpath='{.spec.template.spec.containers[0].image}')
k create configmap clients --from-file=tests/{e2e/load,kit/src/shop_smoke}.py
k create secret generic client --from-literal=email="$email" --from-literal=password="$password"
k apply -f - <<YAML
apiVersion: v1
kind: Pod
metadata: {name: clients, labels: {app.kubernetes.io/name: test, app.kubernetes.io/instance: $release}}
spec:
  restartPolicy: Never
  # Never ready, so that no Service selects it.
  readinessGates: [{conditionType: example.com/never}]
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      image: $image
      imagePullPolicy: IfNotPresent
      command: [python, /scripts/load.py, "$seconds", "10", employee-api]
      env:
        - {name: EMPLOYEE_API_URL, value: "http://$api:8000"}
        - {name: EMAIL, valueFrom: {secretKeyRef: {name: client, key: email}}}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: client, key: password}}}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: scripts, mountPath: /scripts}]
  volumes: [{name: scripts, configMap: {name: clients}}]
YAML
for _ in $(seq 90); do [[ $(k logs clients 2>/dev/null) != *started* ]] || break; sleep 1; done
[[ $(k logs clients) == *started* ]] || fail "the clients did not start"
begun=$SECONDS
k rollout restart "deployment/$api" >/dev/null
wait_until_replaced
echo "restarted after $((SECONDS - begun)) s"
helm upgrade "$release" charts/shop --namespace "$namespace" --reset-then-reuse-values \
    --set-string defaults.podAnnotations.upgraded=yes >/dev/null
wait_until_replaced
echo "upgraded after $((SECONDS - begun)) s"
((SECONDS - begun < seconds)) || fail "the clients ended too early"
for _ in $(seq $((seconds + 60))); do
    phase=$(k get pod clients --output jsonpath='{.status.phase}')
    [[ $phase != Succeeded && $phase != Failed ]] || break
    sleep 1
done
k logs clients | tail -n 12
[[ $phase == Succeeded ]] || fail "the clients ended as $phase"

log "failed logins count for all replicas"
forwards=()
trap 'kill "${forwards[@]}" 2>/dev/null || true' EXIT
port=18100
for pod in $(k get pods --selector app.kubernetes.io/name=employee-api --output name); do
    kubectl --namespace "$namespace" port-forward "$pod" "$port:8000" >/dev/null & forwards+=($!)
    port=$((port + 1))
done
sleep 3
log_in() { # PORT PASSWORD: print the status of a login from an unknown device
    curl --silent --output /dev/null --write-out '%{http_code}' "http://127.0.0.1:$1/api/auth/login" \
        --header 'Content-Type: application/json' --data "{\"email\": \"$email\", \"password\": \"$2\"}"
}
for _ in $(seq 12); do log_in 18100 wrong >/dev/null; done
status=$(log_in 18101 wrong)
[[ $status == 429 ]] || fail "the other replica answered $status"
echo "after failures on one replica the other one answers $status"

kill "${forwards[@]}" 2>/dev/null || true
helm uninstall "$release" --namespace "$namespace" >/dev/null
kubectl delete namespace "$namespace" --wait=false >/dev/null
