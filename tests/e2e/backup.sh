#!/usr/bin/env bash
# A drill: restores an older back-up of checkout's database beside newer records of payment, shipping and email, with the
# commands in charts/shop/docs/data.md. All customers repeat their orders; nothing may be charged, shipped or confirmed
# twice. Needs an installed release on the cluster that KUBECONFIG names, where nothing else places orders meanwhile and
# email has no SMTP_URL.
#
#   NAMESPACE, RELEASE   namespace and name of the release (shop, shop)
set -euo pipefail
cd "$(dirname "$0")/../.."

namespace=${NAMESPACE:-shop} release=${RELEASE:-shop}
saved=(1 2 3) lost=(4 5 6 7 8 9) # every third customer sends no idempotency key
run=$(date +%s)
declare -A first second third

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
k() { kubectl --namespace "$namespace" "$@"; }
work=$(mktemp -d) forwards=()
trap 'stop_forwards; rm -rf "$work"' EXIT
make --silent setup
PATH=$PWD/.venv/bin:$PATH
if k get secret "$release-authority" --output=json >"$work/authority" 2>/dev/null; then
    python tests/e2e/certificate.py "$work/tls" <"$work/authority"
    export TLS_FOLDER=$work/tls TLS_RELEASE=$release
fi

# ------------------------------------------------------------------ the documented commands

# Their blocks are counted from the beginning of the section.
server=$release-postgresql-0
if k get statefulset "$release-postgresql" >/dev/null 2>&1; then
    database=postgresql back_up=1 restore=2 reconcile=3
elif k get service "$release-pg-required-rw" >/dev/null 2>&1; then
    server=service/$release-pg-required-rw
    database=postgresql back_up=1 restore=2 reconcile=3
else
    database=sqlite back_up=4 restore=5 reconcile=3
fi

documented() { # NUMBER: run a block of commands in the page's section on back-ups, for this release
    awk -v wanted="$1" '
        /^## / { section = ($0 == "## How are databases backed up and restored?") }
        /^```$/ { inside = 0 }
        section && inside && block == wanted
        section && /^```sh$/ { inside = 1; block++ }' charts/shop/docs/data.md |
        sed -e "s|shop-postgresql-0|$server|" -e "s/\bshop-/$release-/g" -e "s/instance=shop/instance=$release/" \
            -e "s/--namespace shop/--namespace $namespace/" >"$work/commands.sh"
    [[ -s $work/commands.sh ]] || fail "the page has no block $1"
    (cd "$work" && bash -euo pipefail commands.sh)
}

query() { # SERVICE SQL: run a statement in the database of a service
    if [[ $database == postgresql ]]; then
        k exec "$server" --quiet -- psql --username=postgres --dbname="$1" --quiet --tuples-only --no-align \
            --command="$2"
    else
        k exec "deployment/$release-$1" -- python -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row)' "/data/$1.db" "$2"
    fi
}

# ------------------------------------------------------------------ local ports

forward() { # SERVICE PORTS...
    local log=$work/forward-$1 service=$1; shift
    # Without k(): of a function, $! would be a shell, and its end not that of kubectl.
    kubectl --namespace "$namespace" port-forward "service/$release-$service" "$@" >"$log" 2>&1 &
    forwards+=($!)
    for _ in $(seq 60); do
        [[ $(grep -c 'Forwarding from 127' "$log") != "$#" ]] || return 0
        kill -0 "${forwards[-1]}" 2>/dev/null || break
        sleep 0.5
    done
    fail "$service is not forwarded: $(cat "$log")"
}

# Not the usual local ports: from 32768 on, any outgoing connection may have one.
export CART_ADDR=localhost:20051 PRODUCT_CATALOG_ADDR=localhost:20053 CHECKOUT_ADDR=localhost:20058
export CHECKOUT_INTERNAL_ADDR=localhost:21058 SHIPPING_INTERNAL_ADDR=localhost:21054
export PAYMENT_INTERNAL_ADDR=localhost:21056 EMAIL_INTERNAL_ADDR=localhost:21057

forward_all() { # to the pods of this moment
    stop_forwards
    forward cart 20051:50051
    forward product-catalog 20053:50051
    forward checkout 20058:50051 21058:50052
    forward shipping 21054:50052
    forward payment 21056:50052
    forward email 21057:50052
}

stop_forwards() {
    [[ ${#forwards[@]} == 0 ]] || { kill "${forwards[@]}"; wait "${forwards[@]}"; } 2>/dev/null || true
    forwards=()
}

# ------------------------------------------------------------------ customers; each has one cart, card and address

customer() { printf 'drill-%s-%s' "$run" "$1"; }
has_key() { (($1 % 3)); }

card() { # NUMBER: a number in a range that is reserved for tests, with its check digit
    local digits sum=0 digit place
    digits=$(printf '400000%09d' "$1")
    for place in {0..14}; do
        digit=$((${digits:place:1} * (place % 2 ? 1 : 2)))
        sum=$((sum + digit / 10 + digit % 10))
    done
    printf '%s%s' "$digits" $(((10 - sum % 10) % 10))
}

fill_cart() { # NUMBER
    shop cart add "$(customer "$1")" "$product" --quantity "$1"
}

order() { # NUMBER: order what is in the cart; print the order's id, or the reason of the refusal
    local name output status no_response=4 key=()
    name=$(customer "$1")
    ! has_key "$1" || key=(--key "$name")
    for _ in $(seq 10); do
        status=0
        output=$(SHOP_CARD=$(card "$1") shop order "$name" --street "$name" --email "$name@example.com" \
            "${key[@]}" --json 2>&1) || status=$?
        ((status == no_response)) || break
        sleep 1
    done
    sed -n 's/.*"order_id": "\([^"]*\)".*/\1/p; s/^\([A-Z_]*\): .*/\1/p' <<<"$output"
}

wait_until_settled() { # no order is in progress, so every e-mail was accepted and every cart cleared
    for _ in $(seq 60); do
        [[ $(shop orders list --json --state CHARGING --state VOIDING --state SHIPPED) ]] || return 0
        sleep 1
    done
    fail "orders are still in progress"
}

# ------------------------------------------------------------------ checks

expect() { # WHAT EXPECTED ACTUAL
    [[ $2 == "$3" ]] || fail "$1: expected $2, not $3"
}

unknown_orders() { # those of this drill that the reconciliation finds; its exit status is 1 then
    local status=0
    documented "$reconcile" >"$work/found" || status=$?
    expect "exit status of the reconciliation" 1 "$status"
    ! grep -v '^Kind\|^UNKNOWN_ORDER' "$work/found" >&2 || fail "the records disagree"
    sed -n 's/^UNKNOWN_ORDER *\([^ ]*\).*/\1/p' "$work/found" | sort | comm -12 - <(ids_of "${!first[@]}")
}

ids_of() { # NUMBERS...
    for number in "$@"; do echo "${first[$number]}"; done | sort
}

count() { # TEXT FILE: lines that contain the text
    grep --count --fixed-strings -- "$1" "$2" || true
}

# ------------------------------------------------------------------ the drill

place() { # NUMBERS...
    for number in "$@"; do
        fill_cart "$number"
        first[$number]=$(order "$number")
        [[ ${first[$number]} =~ ^[0-9a-f-]{36}$ ]] || fail "order $number: ${first[$number]:-no response}"
    done
    wait_until_settled
}

check_orders() { # compare ledger, manifest and spool with the orders; print a table
    local number charges shipments letters
    query payment "SELECT charge_key FROM charges WHERE state = 'CHARGED' AND recorded_at >= '$begun'" >"$work/charges"
    query payment "SELECT count(*) FROM charges WHERE state = 'CHARGED' AND recorded_at >= '$begun' GROUP BY card_hmac" \
        >"$work/charges-of-cards"
    query shipping "SELECT parcel FROM shipments WHERE state = 'SHIPPED'" >"$work/parcels"
    query email "SELECT recipient FROM letters" >"$work/recipients"
    row order key placed repeated 'filled again' charges shipments e-mails
    for number in "${saved[@]}" "${lost[@]}"; do
        charges=$(count "${first[$number]}:" "$work/charges")
        shipments=$(count "\"$(customer "$number")\"" "$work/parcels")
        letters=$(count "$(customer "$number")@" "$work/recipients")
        row "$number" "$(has_key "$number" && echo yes || echo no)" "$(when_placed "$number")" \
            "$(compared "$number" "${second[$number]}")" "$(compared "$number" "${third[$number]:--}")" \
            "$charges" "$shipments" "$letters"
        expect "charges, shipments and e-mails of order $number" "1 1 1" "$charges $shipments $letters"
    done
    expect "charges of each card" "$(for number in "${!first[@]}"; do echo 1; done)" "$(cat "$work/charges-of-cards")"
}

row() { printf '%-6s %-4s %-14s %-14s %-14s %8s %10s %7s\n' "$@"; }
when_placed() { if [[ " ${saved[*]} " == *" $1 "* ]]; then echo "before back-up"; else echo "after back-up"; fi; }
compared() { if [[ $2 == "${first[$1]}" ]]; then echo "the same order"; else echo "$2"; fi; }

forward_all
product=$(shop products list --json | sed -n '1s/.*"id": "\([^"]*\)".*/\1/p')
begun=$(query payment "SELECT CURRENT_TIMESTAMP")
place "${saved[@]}"
documented "$back_up"
echo "checkout's database is backed up"
place "${lost[@]}"
query checkout "CREATE TABLE of_a_later_release (number integer)"

started=$SECONDS
documented "$restore"
echo "the back-up is restored, after $((SECONDS - started)) s"
query checkout "SELECT count(*) FROM of_a_later_release" >"$work/later" 2>&1 || true
grep --quiet 'does not exist\|no such table' "$work/later" || fail "a table of a later release: $(cat "$work/later")"
forward_all
expect "orders that the reconciliation finds" "$(ids_of "${lost[@]}")" "$(unknown_orders)"

for number in "${saved[@]}" "${lost[@]}"; do second[$number]=$(order "$number"); done
for number in "${saved[@]}"; do expect "the repeat of order $number" "${first[$number]}" "${second[$number]}"; done
for number in "${lost[@]}"; do expect "the repeat of order $number" CART_EMPTY "${second[$number]}"; done
keyless=()
for number in "${lost[@]}"; do
    if ! has_key "$number"; then keyless+=("$number"); continue; fi
    fill_cart "$number"
    third[$number]=$(order "$number")
    # It was charged for another cart, whose items are gone: what is in this one is not part of it.
    expect "the repeat of order $number with a full cart" ORDER_NEEDS_REVIEW "${third[$number]}"
    shop orders settle "${first[$number]}" --dismissed "delivered before the restore" --by drill >/dev/null
done
wait_until_settled
check_orders
expect "orders that the reconciliation still finds" "$(ids_of "${keyless[@]}")" "$(unknown_orders)"
echo "the reconciliation listed the ${#lost[@]} lost orders, and after the repeats the ${#keyless[@]} without a key"
