#!/usr/bin/env bash
# Installs the shop with customers, all signals and a mail relay, and runs incidents.py on it: about three quarters of an
# hour. Then runs the commands of the runbooks.
#
#   NAMESPACE, RELEASE   namespace, which must not exist, and release name (incidents, shop)
#   HELM_ARGS            additional arguments of helm, such as "-f my-values.yaml"
#   WARM_UP_SECONDS      of customers before the first incident (120)
#   incidents.sh [NAME...]   only these incidents; the dashboards of error budgets need ten minutes
set -euo pipefail
cd "$(dirname "$0")/../.."

namespace=${NAMESPACE:-incidents} release=${RELEASE:-shop} warm_up=${WARM_UP_SECONDS:-120}
read -ra helm_args <<<"${HELM_ARGS:-}"
k() { kubectl --namespace "$namespace" "$@"; }
# The recorder of alerts is the laboratory's.
make --silent setup
export PATH=$PWD/.venv/bin:$PATH

kubectl create namespace "$namespace"
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
helm install "$release" charts/shop --namespace "$namespace" -f tests/e2e/incident-values.yaml "${helm_args[@]}" >/dev/null
image=$(k get deployment "$release-checkout" --output jsonpath='{.spec.template.spec.containers[0].image}')
k create configmap mail-relay --from-file=tests/e2e/mail_relay.py
sed "s,IMAGE,$image," tests/e2e/mail-relay.yaml | k apply -f -
for workload in $(k get deployment,statefulset --output name); do
    k rollout status --timeout=5m "$workload" >/dev/null
done
k get pods

forwards=()
trap 'kill "${forwards[@]}" 2>/dev/null || true' EXIT
kubectl --namespace "$namespace" port-forward "service/$release-prometheus" 19090:9090 >/dev/null & forwards+=($!)
kubectl --namespace "$namespace" port-forward "service/$release-alertmanager" 19093:9093 >/dev/null & forwards+=($!)
echo "customers arrive for $warm_up s before the first incident"
sleep "$warm_up"
python3 tests/e2e/incidents.py "$namespace" "$release" http://127.0.0.1:19090 http://127.0.0.1:19093 "$@"
echo "every query of the dashboards has a result"
python3 tests/e2e/dashboards.py http://127.0.0.1:19090
echo "the commands of the runbooks"
python3 tests/e2e/runbooks.py "$namespace" "$release"
