#!/bin/sh
# The way back: `restore.sh FILE` puts a copy that backup.sh made in the place of the ledger at EVENTSYNC_STATE_URL. Only while
# no run is at work and none can start; what was there is kept beside it (SQLite) or was to be dumped before (PostgreSQL).
#
#   EVENTSYNC_STATE_URL=sqlite:///.eventsync/state.db restore.sh /var/backups/eventsync/eventsync-20310501T030000Z.db
#   EVENTSYNC_STATE_URL=postgresql://eventsync@db/eventsync restore.sh /backups/eventsync-20310501T030000Z.dump
#
# Exit code 2: not as it is called or set up, and nothing was changed; 1: it could not be done, and the ledger is as it was.
# Afterwards: `eventsync state verify`, and a first run by hand.
set -eu
umask 077

fail() {
  echo "restore.sh: $2" >&2
  exit "$1"
}

sqlite_back() {
  command -v python3 >/dev/null || fail 2 "python3 is not here: SQLite is restored with it"
  python3 - "$1" "$2" <<'PYTHON'
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from urllib.parse import quote

copy, place = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()


def asked(path, *questions):
    with sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=1, isolation_level=None) as database:
        answers = [database.execute(question).fetchone()[0] for question in questions]
    database.close()
    return answers


def stop(words):
    sys.exit(f"restore.sh: {words}")


part = place.with_name(f".{place.name}.part")
try:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(copy, part)
    sound, ledgers = asked(part, "PRAGMA integrity_check", "SELECT count(*) FROM sqlite_master WHERE name = 'sync_run'")
except (OSError, sqlite3.Error) as error:
    part.unlink(missing_ok=True)
    stop(f"{copy} cannot be read as a state DB: {error}")
if sound != "ok" or not ledgers:
    part.unlink(missing_ok=True)
    stop(f"{copy} is no sound state DB: {sound if ledgers else 'it has no ledger'}")
if place.exists():
    try:
        # All of it in one file, and nobody at work on it: else this cannot be had.
        asked(place, "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        part.unlink(missing_ok=True)
        stop(f"{place} is in use ({error}): stop what uses it, then again")
    except sqlite3.DatabaseError:
        pass  # damaged: that may be why it is replaced
kept = f"{place.name}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
# Also what lies beside a state DB that is lost: SQLite would take such a log for the copy's own, and write its pages into it.
for ending in ("", "-wal", "-shm", "-journal"):
    left = place.with_name(place.name + ending)
    if left.exists():
        left.rename(place.with_name(kept + ending))
        print(f"what was there: {place.with_name(kept + ending)}")
os.replace(part, place)
print(f"restored: {place}")
PYTHON
}

postgres_back() {
  command -v pg_restore >/dev/null || fail 2 "pg_restore is not here: PostgreSQL is restored with it"
  pg_restore --list "$1" | grep -q " TABLE DATA .* sync_run " || fail 2 "$1 is no dump of a state DB"
  others=$(psql --dbname="$2" --no-psqlrc --tuples-only --no-align --command \
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'eventsync'") ||
    fail 1 "the database cannot be asked, see above"
  [ "$others" -eq 0 ] || fail 2 "$others connections of eventsync are open: stop what uses the state DB, then again"
  pg_restore --dbname="$2" --clean --if-exists --no-owner --no-privileges --single-transaction --exit-on-error "$1" ||
    fail 1 "pg_restore changed nothing, see above"
  echo "restored: $1"
}

[ $# -eq 1 ] || fail 2 "say what from: restore.sh FILE"
[ -f "$1" ] || fail 2 "there is no file $1"
case "${EVENTSYNC_STATE_URL:-}" in
  postgres*://*:?*@*) fail 2 "the URL holds a password, which all see who list the processes: keep it in PGPASSWORD_FILE, or in a file that PGPASSFILE names" ;;
esac
if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$PGPASSWORD_FILE")
  export PGPASSWORD
fi

url=${EVENTSYNC_STATE_URL:-sqlite:///.eventsync/state.db}
case "$url" in
  sqlite:///*)
    sqlite_path=${url#sqlite:///}
    sqlite_back "$1" "${sqlite_path%%\?*}"
    ;;
  postgres*://*) postgres_back "$1" "postgresql://${url#*://}" ;;
  *) fail 2 "EVENTSYNC_STATE_URL is no address of SQLite or PostgreSQL" ;;
esac
