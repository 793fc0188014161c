#!/bin/sh
# A copy of the ledger while runs are at work: `backup.sh FOLDER` writes eventsync-TIME.db or eventsync-TIME.dump there, whole or
# not at all, and prints its name. What is in EVENTSYNC_STATE_URL decides which.
#
#   EVENTSYNC_STATE_URL=sqlite:///.eventsync/state.db backup.sh /var/backups/eventsync
#   EVENTSYNC_STATE_URL=postgresql://eventsync@db/eventsync PGPASSWORD_FILE=pw KEEP=14 backup.sh /var/backups/eventsync
#
# KEEP copies are kept, the oldest beyond go; all of them if it is not said. Needs python3 for SQLite, pg_dump for PostgreSQL, of
# the server's version or later. Exit code 2: not as it is called or set up; 1: there is no copy, and why is on stderr.
set -eu
umask 077

fail() {
  echo "backup.sh: $2" >&2
  exit "$1"
}

sqlite_copy() {
  command -v python3 >/dev/null || fail 2 "python3 is not here: SQLite is copied with it"
  # In one step: a copy in many would begin anew with each row that a run settles. A file that is not there is not made.
  python3 - "$1" "$2" <<'PYTHON'
import sqlite3
import sys
from pathlib import Path
from urllib.parse import quote

origin, copy = Path(sys.argv[1]).resolve(), sys.argv[2]
try:
    source = sqlite3.connect(f"file:{quote(str(origin))}?mode=rw", uri=True, timeout=30)
    target = sqlite3.connect(copy)
    source.backup(target)
    target.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
    found = target.execute("PRAGMA integrity_check").fetchone()[0]
    target.close()
except sqlite3.Error as error:
    sys.exit(f"backup.sh: cannot copy {origin}: {error}")
if found != "ok":
    sys.exit(f"backup.sh: {origin} is not sound: {found}; `eventsync state verify` tells more")
PYTHON
}

postgres_copy() {
  command -v pg_dump >/dev/null || fail 2 "pg_dump is not here: PostgreSQL is copied with it"
  pg_dump --dbname="$1" --format=custom --no-owner --no-privileges --file="$2" || fail 1 "pg_dump made no copy, see above"
  pg_restore --list "$2" >/dev/null || fail 1 "what pg_dump wrote cannot be read"
}

[ $# -eq 1 ] || fail 2 "say where to: backup.sh FOLDER"
folder=$1
[ -d "$folder" ] || fail 2 "there is no folder $folder"
case "${KEEP:-1}" in *[!0-9]* | 0) fail 2 "KEEP: so many copies, 1 at least" ;; esac
case "${EVENTSYNC_STATE_URL:-}" in
  postgres*://*:?*@*) fail 2 "the URL holds a password, which all see who list the processes: keep it in PGPASSWORD_FILE, or in a file that PGPASSFILE names" ;;
esac
if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$PGPASSWORD_FILE")
  export PGPASSWORD
fi

name="eventsync-$(date -u +%Y%m%dT%H%M%SZ)"
url=${EVENTSYNC_STATE_URL:-sqlite:///.eventsync/state.db}
part="$folder/.$name.part"
trap 'rm -f "$part" "$part-journal"' EXIT
case "$url" in
  sqlite:///*)
    suffix=db
    sqlite_path=${url#sqlite:///}
    sqlite_copy "${sqlite_path%%\?*}" "$part"
    ;;
  postgres*://*)
    suffix=dump
    postgres_copy "postgresql://${url#*://}" "$part"
    ;;
  *) fail 2 "EVENTSYNC_STATE_URL is no address of SQLite or PostgreSQL" ;;
esac
mv -f "$part" "$folder/$name.$suffix"
echo "$folder/$name.$suffix"

if [ -n "${KEEP:-}" ]; then # by name, which is by time
  find "$folder" -maxdepth 1 -name "eventsync-*Z.$suffix" | sort -r | tail -n "+$((KEEP + 1))" | while IFS= read -r old; do
    rm -f -- "$old"
  done
fi
