#!/bin/sh
# Replaces the HMAC key of a service: payment, checkout or storefront. At no time does a replica refuse requests that
# another one has accepted: first every replica accepts the new key, then every replica uses it, and later the old key
# is removed.
#
#   replace-hmac-key.sh begin SERVICE     adds a new key and uses it
#   replace-hmac-key.sh finish SERVICE    removes the old key: from then on repeats of older requests are refused, and
#                                         sessions of visitors who have not been back since `begin` are lost
#
# RELEASE is the release, or its `fullnameOverride`, NAMESPACE its namespace (shop, shop), SECRET the Secret
# (<release>-<service>).
set -eu

release=${RELEASE:-shop} namespace=${NAMESPACE:-shop}
step=${1:?begin or finish} service=${2:?payment, checkout or storefront}
secret=${SECRET:-$release-$service} variable=HMAC_KEY
[ "$service" != storefront ] || variable=SESSION_KEY

k() { kubectl --namespace "$namespace" "$@"; }
fail() { echo "$*" >&2; exit 1; }

use() { # KEYS: the first one is used, all are accepted
  # Standard input, because other users of this machine can read a program's arguments.
  printf '{"stringData": {"%s": "%s"}}' "$variable" "$1" | k patch secret "$secret" --patch-file /dev/stdin
  old=$(k get pod --selector "app.kubernetes.io/instance=$release,app.kubernetes.io/name=$service" --output name)
  k rollout restart "deployment/$release-$service"
  k rollout status --timeout=10m "deployment/$release-$service"
  # Stopping pods serve for another minute.
  # shellcheck disable=SC2086 # several names
  k wait --for=delete --timeout=10m $old
}

keys=$(k get secret "$secret" --output "jsonpath={.data.$variable}" | base64 -d)
case $step in
  begin)
    [ "$keys" = "${keys#*,}" ] || fail "$secret has two keys: a replacement has begun"
    new=$(openssl rand -hex 32)
    use "$keys,$new"
    use "$new,$keys"
    ;;
  finish)
    [ "$keys" != "${keys#*,}" ] || fail "$secret has one key: no replacement has begun"
    use "${keys%%,*}"
    ;;
  *) fail "expected begin or finish" ;;
esac
