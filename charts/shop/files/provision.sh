#!/bin/sh
# Runs in the PostgreSQL container after each of its starts: every role in ROLES has its login, its password (from
# <ROLE>_PASSWORD) and a database of its own name that nobody else may enter.
set -eu
export PGHOST=127.0.0.1 PGUSER=postgres PGDATABASE=postgres

# The entry point's temporary first server listens on a socket only, so what answers here is the real one.
until pg_isready --quiet; do sleep 0.5; done

# shellcheck disable=SC2153 # ROLES comes from the pod
for role in $ROLES; do
    export ROLE="$role"
    ROLE_PASSWORD=$(printenv "${role}_PASSWORD")
    export ROLE_PASSWORD
    psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --file /etc/provision/provision.sql
done
