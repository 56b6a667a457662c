#!/usr/bin/env bash
# Installs the published chart from its registry on the cluster that KUBECONFIG names, and runs its tests.
#
#   CHART   registry/path/shop@sha256:…      TOKEN   password of GITHUB_ACTOR for that registry
set -euo pipefail
cd "$(dirname "$0")/../.."

registry=${CHART%%/*}
docker login "$registry" --username "$GITHUB_ACTOR" --password-stdin <<<"$TOKEN"
helm registry login "$registry" --username "$GITHUB_ACTOR" --password-stdin <<<"$TOKEN"

identity="^https://github\.com/$GITHUB_REPOSITORY/\.github/workflows/release\.yml@refs/tags/v"
verify() {
    cosign verify --certificate-identity-regexp "$identity" \
        --certificate-oidc-issuer https://token.actions.githubusercontent.com "$1" >/dev/null
}

kubectl create namespace shop
kubectl label namespace shop pod-security.kubernetes.io/enforce=restricted
kubectl --namespace shop create secret docker-registry registry --docker-server "$registry" \
    --docker-username "$GITHUB_ACTOR" --docker-password "$TOKEN"

verify "$CHART"
helm install shop "oci://$CHART" --namespace shop --set 'image.pullSecrets={registry}' --set load.enabled=true \
    --wait --timeout 10m

# Services and customers run the images that the chart names by digest, and this workflow signed them.
own="${CHART%/charts/*}/shop/"
template='{range .items[*].spec.template.spec.containers[*]}{.image}{"\n"}{end}'
images=$(kubectl --namespace shop get deployments --output jsonpath="$template" | grep --fixed-strings "$own")
while read -r image; do
    [[ $image == *@sha256:* ]] || { echo "FAILED: $image is not named by digest" >&2; exit 1; }
    verify "$image"
done <<<"$images"
expected=$(make --silent list-images | wc -l)
[[ $(wc -l <<<"$images") == "$expected" ]] || { printf 'FAILED: not %s images:\n%s\n' "$expected" "$images" >&2; exit 1; }

helm test shop --namespace shop --logs
