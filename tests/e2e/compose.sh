#!/usr/bin/env bash
# Runs compose.yaml: an order, then a cart that outlives a restart of the stores and is ordered. Removes everything at the end.
#
#   COMPOSE         docker compose or podman-compose (default: the first)
#   UP              how to start (default: --wait); --detach with a podman before 4.6, which can't wait for health
#   REGISTRY, TAG   as given to `make images`
set -euo pipefail
cd "$(dirname "$0")/../.."

make --silent setup
read -ra compose <<<"${COMPOSE:-docker compose}"
work=$(mktemp --directory)
trap '"${compose[@]}" down --volumes; rm -r "$work"' EXIT

visit() { # ACTION
    .venv/bin/python tests/e2e/storefront.py http://localhost:8080 "$work/cookies" "$1"
}

eventually() { # ACTION
    local started=$SECONDS
    until visit "$1"; do
        ((SECONDS - started < 120)) || { echo "FAILED: $1" >&2; exit 1; }
        sleep 2
    done
}

"${compose[@]}" up "${UP:---wait}"
eventually fill
eventually order
visit fill
"${compose[@]}" restart postgresql valkey
eventually cart
eventually order
