#!/usr/bin/env bash
# Builds an image twice from nothing, with the time of the last commit as the time of every file, and compares the
# layers. Needs podman.
#
#   BASE   another base image (default: the Dockerfile's)
set -euo pipefail
cd "$(dirname "$0")/../.."

commit_time=$(git log -1 --format=%ct)
layers_of_a_build() {
    local image
    image=$(podman build --quiet --no-cache --timestamp "$commit_time" ${BASE:+--build-arg BASE="$BASE"} \
        --build-arg SERVICE=checkout .)
    podman image inspect --format '{{range .RootFS.Layers}}{{println .}}{{end}}' "$image"
}

first=$(layers_of_a_build)
second=$(layers_of_a_build)
printf '%s\n' "$first"
[[ $first == "$second" ]] || { printf 'FAILED: the second build has other layers:\n%s\n' "$second" >&2; exit 1; }
echo "both builds have the same layers"
