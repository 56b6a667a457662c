#!/usr/bin/env bash
# Looks at the ten images: at most 200 MB, no root, only their own code; runs each with a read-only root and without a
# network, waits until it serves, and sees SIGTERM to PID 1 end it with status 0.
#
#   BUILDER   docker or podman (the first that is there)     REGISTRY, TAG   as given to `make images`
set -euo pipefail
cd "$(dirname "$0")/../.."

builder=${BUILDER:-$(command -v docker || command -v podman)} registry=${REGISTRY:-docker.io/shop} tag=${TAG:-0.1.0}
most_bytes=$((200 * 1000 * 1000))
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

serves='
import sys, urllib.request
if sys.argv[1] == "employee-api":
    urllib.request.urlopen("http://127.0.0.1:8000/healthz", timeout=2)
else:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    request = health_pb2.HealthCheckRequest(service="liveness")
    health_pb2_grpc.HealthStub(grpc.insecure_channel("127.0.0.1:50051")).Check(request, timeout=2)
'

look_at() { # NAME
    local name=$1 image="$registry/$1:$tag" container bytes user code begun
    bytes=$("$builder" image inspect --format '{{.Size}}' "$image")
    user=$("$builder" image inspect --format '{{.Config.User}}' "$image")
    ((bytes <= most_bytes)) || fail "$name has $bytes bytes"
    [[ $user == 10001:10001 ]] || fail "$name runs as $user"
    local packages
    packages=$("$builder" run --rm --network none --entrypoint sh "$image" -c 'cd /app; ls -d *_service employee_api 2>/dev/null' || true)
    [[ $packages == "$(tr - _ <<<"$name")_service" || $packages == "$(tr - _ <<<"$name")" ]] || fail "$name holds $packages"

    local environment=(--env HOST=127.0.0.1)
    [[ $name != employee-api ]] || environment+=(--env PORT=8000)
    for peer in CART PRODUCT_CATALOG SHIPPING CURRENCY PAYMENT EMAIL; do environment+=(--env "${peer}_ADDR=127.0.0.1:1"); done
    container=$("$builder" run --detach --network none --read-only --tmpfs /tmp --volume /data \
        "${environment[@]}" "$image")
    begun=$SECONDS
    until "$builder" exec "$container" python -c "$serves" "$name" 2>/dev/null; do
        ((SECONDS - begun < 60)) || { "$builder" logs "$container"; fail "$name does not serve"; }
        sleep 0.5
    done
    "$builder" stop --time 30 "$container" >/dev/null
    code=$("$builder" inspect --format '{{.State.ExitCode}}' "$container")
    "$builder" rm --volumes "$container" >/dev/null
    [[ $code == 0 ]] || fail "$name ended with status $code"
    printf '%-18s %4s MB  user %s  SIGTERM -> exit %s\n' "$name" "$((bytes / 1000000))" "$user" "$code"
}

images=()
for project in services/[a-z]*/pyproject.toml; do images+=("$(basename "$(dirname "$project")")"); done
for image in "${@:-${images[@]}}"; do look_at "$image"; done
(($# > 0)) || look_at employee-api
