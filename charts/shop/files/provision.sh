#!/bin/sh
# Runs after each start of the PostgreSQL container, idempotently. Each role in ROLES gets a login, the password in
# <ROLE>_PASSWORD and a database of the same name that only it may connect to.
set -eu
export PGHOST="${PGHOST:-127.0.0.1}" PGUSER=postgres PGDATABASE=postgres

# While it initializes, the image runs a temporary server on a socket only: what answers on TCP is the final one.
until pg_isready --quiet; do sleep 0.5; done

# shellcheck disable=SC2153 # ROLES is set by the pod
for role in $ROLES; do
    export ROLE="$role"
    ROLE_PASSWORD=$(printenv "${role}_PASSWORD")
    export ROLE_PASSWORD
    psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --file /etc/provision/provision.sql
done
