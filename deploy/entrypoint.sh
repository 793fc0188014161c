#!/bin/sh
# What every container of the image starts with: the password of PostgreSQL from its file, what a code server finds before it
# serves, then the command itself. A word that is no program of the image is a verb of `eventsync`.
set -eu

if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$PGPASSWORD_FILE")
  export PGPASSWORD # read by the library of PostgreSQL itself, so that no address holds a password
fi

case "${1:-}" in
  dagster)
    if [ "${2:-}" = code-server ]; then
      python -m pipelines.before_serving
    fi
    exec "$@"
    ;;
  celery | dagster-daemon | dagster-webserver | eventsync | python | sh) exec "$@" ;;
  *) exec eventsync "$@" ;;
esac
