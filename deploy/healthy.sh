#!/bin/sh
# Whether the part that a container runs answers; which part that is, the command of its first process says.
# Another process may be named by its number: `healthy.sh 4711`.
set -eu

answers() {
  exec python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$1"
}

command=$(tr '\0' ' ' <"/proc/${1:-1}/cmdline")
case "$command" in
  *code-server*) exec dagster api grpc-health-check --socket "$DAGSTER_CODE_SERVER_SOCKET" ;;
  *pipelines.dagster_ui*) answers "http://127.0.0.1:${WEB_PORT:-3000}/server_info" ;;
  *" metrics "*) answers "http://127.0.0.1:${METRICS_PORT:-9464}/-/healthy" ;;
  *dagster-daemon*) exec dagster-daemon liveness-check ;;
  *) exit 0 ;; # a verb of the command line does its work as long as it runs
esac
