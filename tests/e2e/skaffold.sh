#!/usr/bin/env bash
# Runs `skaffold dev` on a copy of the sources: opens the storefront and places an order through its port-forwards, changes
# a source file, waits until the running pod serves the change, and places another order.
#
#   HELM_VALUES   a values file for the chart, if the cluster needs one
#   BASE          another base image (default: the Dockerfile's)
set -euo pipefail
cd "$(dirname "$0")/../.."

copy=$(mktemp -d)
git archive HEAD | tar -x -C "$copy"
cd "$copy"
if [[ ${HELM_VALUES:-} ]]; then
    sed -i "s|^        skipBuildDependencies: true|&\n        valuesFiles: [$HELM_VALUES]|" skaffold.yaml
fi
if [[ ${BASE:-} ]]; then sed -i "s|^ARG BASE=.*|ARG BASE=$BASE|" Dockerfile; fi

skaffold dev --auto-build=true >skaffold.log 2>&1 &
skaffold=$!
finish() {
    kill -INT "$skaffold" 2>/dev/null || true
    wait "$skaffold" || true
    rm -rf "$copy"
}
trap finish EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; tail -n 40 skaffold.log >&2; exit 1; }

wait_until() { # EXPECTATION SECONDS COMMAND...
    local expectation=$1 deadline=$((SECONDS + $2)); shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || fail "$expectation"
        kill -0 "$skaffold" 2>/dev/null || fail "skaffold ended"
        sleep 1
    done
    printf 'ok: %s\n' "$expectation"
}

place_order() {
    local product
    product=$(grpcurl -plaintext localhost:50053 shop.ProductCatalogService/ListProducts |
        sed -n 's/.*"id": "\(.*\)".*/\1/p' | head -n 1)
    grpcurl -plaintext -d '{"user_id": "dev", "item": {"product_id": "'"$product"'", "quantity": 1}}' \
        localhost:50051 shop.CartService/AddItem &&
        grpcurl -plaintext -d '{"user_id": "dev", "user_currency": "EUR", "email": "dev@example.com",
            "address": {"street_address": "Kanalstr. 1", "city": "Berlin", "country": "Germany", "zip_code": 10115},
            "credit_card": {"credit_card_number": "4242424242424242", "credit_card_cvv": 123,
            "credit_card_expiration_year": 2099, "credit_card_expiration_month": 12}}' \
            localhost:50058 shop.CheckoutService/PlaceOrder
}

serves_the_change() {
    grpcurl -plaintext -d '{"context_keys": ["kitchen"]}' localhost:50059 shop.AdService/GetAds |
        grep -q '"text": "synced: '
}
pods() {
    kubectl --namespace shop get pods --selector app.kubernetes.io/part-of=shop \
        --output jsonpath='{range .items[*]}{.metadata.name}={.status.containerStatuses[0].restartCount} {end}'
}

started=$SECONDS
wait_until "skaffold waits for changes" 1500 grep -q "Watching for changes" skaffold.log
printf 'after %s s\n' "$((SECONDS - started))"
wait_until "the storefront through skaffold's port-forwards" 60 \
    curl --silent --fail --output /dev/null http://localhost:8080/
wait_until "an order through skaffold's port-forwards" 60 place_order
before=$(pods)

started=$SECONDS
sed -i 's/text=ad\.text/text="synced: " + ad.text/' services/ad/src/ad_service/service.py
wait_until "the running pod serves the change" 60 serves_the_change
printf 'after %s s\n' "$((SECONDS - started))"
grep -E "Syncing [0-9]+ files" skaffold.log || fail "no file was synced"
[[ $(pods) == "$before" ]] || fail "pods were replaced: $before, then $(pods)"
wait_until "an order after the change" 60 place_order
echo "skaffold dev works"
