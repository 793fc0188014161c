#!/bin/sh
# What every container of the image starts with: the passwords of PostgreSQL and Redis from their files, what a code server finds
# before it serves, then the command itself. A word that is no program of the image is a verb of `eventsync`.
set -eu

if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$PGPASSWORD_FILE")
  export PGPASSWORD # read by the library of PostgreSQL itself, so that no address holds a password
fi

if [ -n "${REDIS_PASSWORD_FILE:-}" ]; then
  password=$(cat "$REDIS_PASSWORD_FILE") # of letters and digits, as it is part of an address
  export CELERY_BROKER_URL="redis://:$password@${REDIS_HOST:-redis}/0" CELERY_RESULT_BACKEND="redis://:$password@${REDIS_HOST:-redis}/1"
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
