#!/usr/bin/env bash
# Checks the third-party images of rendered manifests against their registries. Each tag must exist, and so must a digest
# beside it: a tag that is rebuilt moves on from the digest.
#
#   helm template shop charts/shop --set observability.enabled=true | tests/e2e/image_tags.sh
set -euo pipefail

mapfile -t images < <(grep --only-matching --perl-regexp '\bimage: "?\K[^\s"]+' | grep -v '^not-published.invalid/' | sort -u)
((${#images[@]} > 0)) || { echo "FAILED: no images" >&2; exit 1; }
wrong=0
for image in "${images[@]}"; do
    for name in "${image%@*}" "$image"; do
        docker buildx imagetools inspect "$name" >/dev/null || { echo "WRONG: $name"; wrong=1; }
    done
done
printf '%s images\n' "${#images[@]}"
exit "$wrong"
