#!/usr/bin/env bash
# Installs laboratories with customers, all signals and a mail relay, and runs incidents of the catalogue there: each must
# bite, be noticed by the alert that the catalogue names, and heal. Then runs the queries of the dashboards and the commands
# of the runbooks.
#
#   NAMESPACE, RELEASE   namespaces NAMESPACE-1 and so on, which must not exist, and release name (incidents, shop)
#   LABORATORIES         how many there are; each runs one incident at a time (1)
#   HELM_ARGS            additional arguments of helm, such as "-f my-values.yaml"
#   WARM_UP_SECONDS      of customers before the first incident (300)
#   OUT                  the folder of the records (runs)
#   DURATION             of each, such as 1h (as the catalogue says)
#   incidents.sh [FAULT...]   only these; ad-slow is an example and not among them
set -euo pipefail
cd "$(dirname "$0")/../../.."

prefix=${NAMESPACE:-incidents} release=${RELEASE:-shop} warm_up=${WARM_UP_SECONDS:-300} out=${OUT:-runs}
read -ra duration <<<"${DURATION:+--for $DURATION}"
read -ra helm_args <<<"${HELM_ARGS:-}"
make --silent setup
export PATH=$PWD/.venv/bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install() { # NAMESPACE
    local image workload
    kubectl create namespace "$1"
    kubectl label namespace "$1" pod-security.kubernetes.io/enforce=restricted shop/lab=true >/dev/null
    helm install "$release" charts/shop --namespace "$1" -f tests/lab/e2e/incident-values.yaml "${helm_args[@]}" >/dev/null
    image=$(kubectl --namespace "$1" get deployment "$release-checkout" --output jsonpath='{.spec.template.spec.containers[0].image}')
    kubectl --namespace "$1" create configmap mail-relay --from-file=tests/lab/e2e/mail_relay.py
    sed "s,IMAGE,$image," tests/lab/e2e/mail-relay.yaml | kubectl --namespace "$1" apply -f -
    for workload in $(kubectl --namespace "$1" get deployment,statefulset --output name); do
        kubectl --namespace "$1" rollout status --timeout=10m "$workload" >/dev/null
    done
}

next() { # take the next fault of the list
    (flock 9 && head -n 1 "$work/faults" && sed -i 1d "$work/faults") 9>"$work/lock"
}

memory() { # NAMESPACE: print the working set of its containers
    kubectl get nodes --output jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}' | while read -r node; do
        kubectl get --raw "/api/v1/nodes/$node/proxy/metrics/resource"
    done | awk -v "label=namespace=\"$1\"" '/^container_memory_working_set_bytes/ && index($0, label) { sum += $2 }
        END { printf "%.0f", sum / 2 ^ 20 }'
}

run_incidents() { # NAMESPACE
    local fault
    while fault=$(next) && [[ $fault ]]; do
        echo "$(date -u +%T) $1: $fault"
        shop incident run "$fault" --namespace "$1" --release "$release" --out "$out" "${duration[@]}" |
            sed --unbuffered "s/^/$fault: /" || echo "$fault differs" >>"$work/problems"
    done
}

if (($# == 0)); then
    for file in tests/lab/src/shop_lab/incidents/faults/*.yaml; do
        [[ $file == */ad-slow.yaml ]] || set -- "$@" "$(basename "$file" .yaml)"
    done
fi
printf '%s\n' "$@" >"$work/faults"
laboratories=$(seq -f "$prefix-%g" "${LABORATORIES:-1}")
for namespace in $laboratories; do install "$namespace"; done
echo "customers arrive for $warm_up s before the first incident"
sleep "$warm_up"
for namespace in $laboratories; do run_incidents "$namespace" & done
wait
for namespace in $laboratories; do
    restarts=$(kubectl --namespace "$namespace" get pods --output jsonpath='{range .items[*]}{.status.containerStatuses[0].restartCount}+{end}')
    echo "$namespace: $((${restarts}0)) restarts, $(memory "$namespace") MiB"
    [[ ${*//quiet/} == *[a-z]* ]] || ((${restarts}0 == 0)) || echo "$namespace restarts without a fault" >>"$work/problems"
done

kubectl --namespace "$prefix-1" port-forward "service/$release-prometheus" 19090:9090 >/dev/null &
trap 'kill $!; rm -rf "$work"' EXIT
sleep 3
echo "every query of the dashboards has a result"
python tests/e2e/dashboard_queries.py http://127.0.0.1:19090
echo "the commands of the runbooks"
python tests/e2e/runbooks.py "$prefix-1" "$release"
if [[ -s $work/problems ]]; then cat "$work/problems" >&2; exit 1; fi
