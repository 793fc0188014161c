"""What can be wrong with a state DB, as one closed list, and what is said of each to people.

How a driver's error is recognised is told in `sqlite_codes` and `postgres_codes`.
"""

from __future__ import annotations

from enum import Enum

from mappings.errors import ConfigError, PermanentError, SyncError, TransientError


class StateUnavailableError(PermanentError):
    """The state DB cannot be opened, read or written until somebody mends it; what could not be recorded was not sent."""


class StateDamagedError(StateUnavailableError):
    """What lies there is no database, or one with broken pages."""


class StateBusyError(TransientError):
    """The state DB is held by another process for longer than we wait, or cannot be reached just now."""


class Trouble(Enum):
    """What is wrong, by who can do something about it."""

    LOCKED = "locked"
    AWAY = "away"
    CROWDED = "crowded"
    SLOW_POOL = "slow pool"
    OUT_OF_FILES = "out of files"
    READ_ONLY = "read-only"
    FULL = "full"
    BROKEN_DISK = "broken disk"
    DAMAGED = "damaged"
    MOVED = "moved"
    NOT_OPENED = "not opened"
    NO_DATABASE = "no database"
    LOGIN = "login"
    NO_RIGHTS = "no rights"
    BAD_ADDRESS = "bad address"
    STRANGE_TABLES = "strange tables"
    STRANGE_VALUE = "strange value"
    OTHER = "other"


WORDS: dict[Trouble, tuple[type[SyncError], str, str]] = {
    Trouble.LOCKED: (
        StateBusyError,
        "is held by another process",
        "run again when that one is done; `eventsync status` shows which run holds a feed",
    ),
    Trouble.AWAY: (
        StateBusyError,
        "cannot be reached, or the connection was lost",
        "run again when the server is back: nothing is lost. If it never was there, check EVENTSYNC_STATE_URL",
    ),
    Trouble.CROWDED: (
        StateBusyError,
        "has no room for another connection or its work",
        "run again later, or let the server take more (max_connections, memory)",
    ),
    Trouble.SLOW_POOL: (StateBusyError, "did not answer in time", "run again later; look at the load of the server"),
    Trouble.OUT_OF_FILES: (
        StateBusyError,
        "cannot be opened: this process or machine has too many files open",
        "end what holds them, or raise the limit (`ulimit -n`), then run again",
    ),
    Trouble.READ_ONLY: (
        StateUnavailableError,
        "is read-only",
        "let the user who runs this write to the file and its folder, or set EVENTSYNC_STATE_URL to another place",
    ),
    Trouble.FULL: (StateUnavailableError, "cannot be written: no room is left", "make room on its disk, then run again"),
    Trouble.BROKEN_DISK: (
        StateUnavailableError,
        "cannot be written or read: its disk fails, is full, or a quota or limit of file sizes is reached",
        "make room on its disk or mend it, then run again",
    ),
    Trouble.DAMAGED: (
        StateDamagedError,
        "is damaged",
        "restore it from a backup, or move it away: a run from an empty state DB sends the same keys again",
    ),
    Trouble.MOVED: (
        StateUnavailableError,
        "was deleted or replaced while it was in use",
        "run again: from an empty or older state DB the same keys are sent, and the service recognises them",
    ),
    Trouble.NOT_OPENED: (
        StateUnavailableError,
        "cannot be opened",
        "make the folder and give it to the user who runs this, or set EVENTSYNC_STATE_URL to a place that can be written",
    ),
    Trouble.NO_DATABASE: (
        StateUnavailableError,
        "does not exist on its server",
        "create it (`createdb`, encoding UTF8), or mend the name in EVENTSYNC_STATE_URL",
    ),
    Trouble.LOGIN: (
        StateUnavailableError,
        "does not let us in",
        "mend user and password in EVENTSYNC_STATE_URL, or the server's pg_hba.conf",
    ),
    Trouble.NO_RIGHTS: (
        StateUnavailableError,
        "does not let our role do what is needed",
        "its owner grants them: GRANT USAGE, CREATE ON SCHEMA public, and all rights on the tables there",
    ),
    Trouble.BAD_ADDRESS: (
        ConfigError,
        "cannot be connected to as EVENTSYNC_STATE_URL asks",
        "for example postgresql://user@host/name; after `?` stand libpq's own connection options",
    ),
    Trouble.STRANGE_TABLES: (
        StateUnavailableError,
        "does not have the tables that we expect",
        "`eventsync state verify` tells what differs; restore it from a backup, or set EVENTSYNC_STATE_URL to another place",
    ),
    Trouble.STRANGE_VALUE: (
        StateUnavailableError,
        "cannot keep a value",
        "a PostgreSQL database needs the encoding UTF8; else please report this as a fault of eventsync",
    ),
    Trouble.OTHER: (StateUnavailableError, "cannot be used", "check that it is reachable and that you may write to it"),
}
"""For each trouble the kind of error, what the database does or is, and what would help."""


def told(trouble: Trouble, name: str, reply: str) -> SyncError:
    """Return the error for people: `name` is the database's, `reply` what came back from it or from the system."""
    kind, what, hint = WORDS[trouble]
    return kind(f"the state DB {name} {what}: {reply}", hint=hint)
