#!/usr/bin/env bash
# production.sh FOLDER NAMESPACE [HELM_ARGS...]: installs values-production.yaml, with servers that accept TLS only in the
# namespace `databases`, and places an order; then replaces the certificate authority and checks that connections fail.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$1 namespace=$2; shift 2
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
k() { kubectl --namespace "$namespace" "$@"; }
d() { kubectl --namespace databases "$@"; }
psql() { d exec -i postgresql -- psql --username=postgres --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 "$@"; }

certificate() { # NAME OPENSSL_ARGS...: a key and a certificate
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" \
        -keyout "$folder/$1.key" -out "$folder/$1.crt" "${@:2}" 2>/dev/null
}

start_servers() { # HELM_ARGS...
    local server usage=keyUsage=critical,keyCertSign # Python 3.13 rejects an authority without it
    certificate ca -addext "$usage"
    certificate other-ca -addext "$usage"
    kubectl create namespace databases
    printf 'local all all trust\nhostssl all all all scram-sha-256\n' >"$folder/pg_hba.conf"
    for server in postgresql valkey; do
        certificate "$server" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -addext basicConstraints=critical,CA:FALSE \
            -addext "subjectAltName=DNS:$server.databases.svc"
        d create secret generic "$server-tls" --from-file="tls.crt=$folder/$server.crt" \
            --from-file="tls.key=$folder/$server.key" --from-file="$folder/pg_hba.conf"
    done
    helm template chart charts/shop "$@" >"$folder/chart.yaml"
    sed -e "s|POSTGRESQL_IMAGE|$(image_of postgres)|" -e "s|VALKEY_IMAGE|$(image_of valkey)|" \
        tests/e2e/tls-servers.yaml | d apply -f -
    d wait --for=condition=Ready --timeout=2m pod/postgresql pod/valkey
    for role in shipping payment email checkout employee_api; do
        psql --command="CREATE ROLE $role LOGIN PASSWORD '$role-password'" --command="CREATE DATABASE $role OWNER $role"
    done
}

image_of() { # NAME: an image in the chart
    grep --only-matching --max-count=1 "image: [^ ]*/$1:[^ ]*" "$folder/chart.yaml" | sed 's/^image: //'
}

create_secrets() {
    local key; key=$(openssl rand -hex 32)
    k create secret generic storefront --from-literal=SESSION_KEY="$key"
    k create secret generic payment --from-literal=HMAC_KEY="$key" --from-literal=database-password=payment-password
    k create secret generic shipping --from-literal=database-password=shipping-password
    k create secret generic email --from-literal=database-password=email-password
    k create secret generic checkout --from-literal=HMAC_KEY="$key"
    k create secret generic checkout-database \
        --from-literal=uri=postgresql://checkout:checkout-password@postgresql.databases.svc:5432/checkout
    k create secret generic employee-api --from-literal=database-password=employee_api-password
    k create secret generic valkey --from-literal=valkey-password=valkey-password
    k create secret generic smtp --from-literal=url= # no mail server: confirmations wait in the spool
    k create secret generic postgresql-ca --from-file="ca.crt=$folder/ca.crt"
    k create secret generic valkey-ca --from-file="ca.crt=$folder/ca.crt"
}

replace_authority() {
    for name in postgresql-ca valkey-ca; do
        k create secret generic "$name" --from-file="ca.crt=$folder/other-ca.crt" --dry-run=client --output=yaml |
            k replace -f -
    done
    k delete pod --selector 'app.kubernetes.io/name in (cart, payment)' --grace-period=1 >/dev/null
}

log_contains() { # SECONDS TEXT KUBECTL_LOGS_ARGS...
    for _ in $(seq "$1"); do
        if k logs "${@:3}" 2>/dev/null | grep --max-count=1 --only-matching "$2"; then return; fi
        sleep 1
    done
    fail "no $2 in the log of ${*:3}"
}

start_servers "$@"
kubectl create namespace "$namespace"
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
create_secrets
helm install shop charts/shop --namespace "$namespace" -f charts/shop/values-production.yaml \
    -f tests/e2e/production-values.yaml "$@" >/dev/null
for deployment in $(k get deployment --output name); do k rollout status --timeout=5m "$deployment" >/dev/null; done
echo "every pod is ready"
helm test shop --namespace "$namespace" --logs | sed -n '/^POD LOGS/,$p'
connections="pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE client_addr IS NOT NULL"
psql --command="SELECT usename, version, count(*) FROM $connections GROUP BY 1, 2 ORDER BY 1"
plain=$(psql --command="SELECT count(*) FROM $connections AND NOT ssl")
[[ $plain == 0 ]] || fail "$plain connections without TLS"
echo "with another certificate authority:"
replace_authority
log_contains 60 'certificate verify failed' deployment/shop-cart
log_contains 90 'certificate verify failed' deployment/shop-payment --container=migrate
helm uninstall shop --namespace "$namespace" >/dev/null
kubectl delete namespace "$namespace" databases --wait=false >/dev/null
