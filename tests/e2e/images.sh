#!/usr/bin/env bash
# Checks the built images, all or those named: size, user, contents, shared layers, and that the interpreter was built
# with PGO and LTO. Runs each with a read-only root and without a network, waits until it serves, and checks that SIGTERM
# to PID 1 ends it with status 0.
#
#   BUILDER         docker or podman (default: the first one found)
#   REGISTRY, TAG   as given to `make images`
set -euo pipefail
cd "$(dirname "$0")/../.."

builder=${BUILDER:-$(command -v docker || command -v podman)}
registry=${REGISTRY:-not-published.invalid/shop} tag=${TAG:-0.1.0}
max_bytes=$((225 * 1000 * 1000)) max_bytes_of_load_generator=$((250 * 1000 * 1000))
interpreter=tests/lab/src/shop_lab/world/interpreter.py
pinned_base=$(sed -n 's/^ARG BASE=//p' Dockerfile)
mapfile -t services < <(make --silent list-images | cut -d ' ' -f 1)
images=("${services[@]}")
if (($# > 0)); then images=("$@"); fi
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

probe='
import sys, urllib.request
pages = {"storefront": "8080/healthz", "employee-api": "8000/healthz", "load-generator": "8089/"}
if sys.argv[1] in pages:
    urllib.request.urlopen("http://127.0.0.1:" + pages[sys.argv[1]], timeout=2)
else:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    request = health_pb2.HealthCheckRequest(service="liveness")
    health_pb2_grpc.HealthStub(grpc.insecure_channel("127.0.0.1:50051")).Check(request, timeout=2)
'

inspect() { # NAME FORMAT
    "$builder" image inspect --format "$2" "$registry/$1:$tag"
}

check_contents() { # NAME
    local bytes user packages layers max=$max_bytes
    bytes=$(inspect "$1" '{{.Size}}')
    user=$(inspect "$1" '{{.Config.User}}')
    [[ $1 != load-generator ]] || max=$max_bytes_of_load_generator
    ((bytes <= max)) || fail "$1 has $bytes bytes"
    [[ $user == 10001:10001 ]] || fail "$1 runs as $user"
    packages=$("$builder" run --rm --network none --entrypoint sh "$registry/$1:$tag" \
        -c 'cd /app; ls -d *_service employee_api load_generator 2>/dev/null' || true)
    [[ $packages == "$(tr - _ <<<"$1")_service" || $packages == "$(tr - _ <<<"$1")" ]] || fail "$1 contains $packages"
    layers=$(inspect "$1" '{{json .RootFS.Layers}}')
    shared=${shared:-${layers%,*}}
    [[ ${layers%,*} == "$shared" ]] || fail "$1 and ${images[0]} differ in more than the last layer"
    printf '%-18s %4s MB  user %s' "$1" "$((bytes / 1000000))" "$user"
}

check_interpreter() { # NAME
    local flags
    # Only the pinned base has to have them: with another one, such as a developer's own, the flags are just printed.
    flags=$("$builder" run --rm --interactive --network none --entrypoint python "$registry/$1:$tag" - <"$interpreter") ||
        [[ $(inspect "$1" '{{index .Config.Labels "org.opencontainers.image.base.name"}}') != "$pinned_base" ]] ||
        fail "the interpreter of $1: $flags"
    printf '  %s' "$flags"
}

check_process() { # NAME
    local environment=(--env HOST=127.0.0.1) container key started code variable
    [[ $1 != employee-api ]] || environment+=(--env PORT=8000)
    # At this rate nobody arrives during the check.
    [[ $1 != load-generator ]] || environment+=(--env STOREFRONT_URL=http://127.0.0.1:1 --env RATE=0.00001)
    key=$(openssl rand -hex 32)
    environment+=(--env "HMAC_KEY=$key" --env "SESSION_KEY=$key")
    for service in "${services[@]}"; do
        variable=$(tr a-z- A-Z_ <<<"$service")
        environment+=(--env "${variable}_ADDR=127.0.0.1:1" --env "${variable}_INTERNAL_ADDR=127.0.0.1:1")
    done
    # As on OpenShift: a user that no image knows, in group 0.
    container=$("$builder" run --detach --user 12345:0 --network none --read-only --tmpfs /tmp --volume /data \
        "${environment[@]}" "$registry/$1:$tag")
    started=$SECONDS
    until "$builder" exec "$container" python -c "$probe" "$1" 2>/dev/null; do
        ((SECONDS - started < 60)) || { "$builder" logs "$container"; fail "$1 does not serve"; }
        sleep 0.5
    done
    "$builder" stop --time 30 "$container" >/dev/null
    code=$("$builder" inspect --format '{{.State.ExitCode}}' "$container")
    "$builder" rm --volumes "$container" >/dev/null
    [[ $code == 0 ]] || fail "$1 ended with status $code"
    printf '  SIGTERM -> exit %s\n' "$code"
}

for image in "${images[@]}"; do
    check_contents "$image"
    check_interpreter "$image"
    check_process "$image"
done
