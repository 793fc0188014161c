"""PostgreSQL's SQLSTATEs, and the words of a server that turned a connection away. What is said of each trouble is `trouble`'s.

The codes: https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from state.trouble import Trouble

_STATES = {
    "25006": Trouble.READ_ONLY,
    "25P03": Trouble.AWAY,  # idle in transaction for too long: the session was ended
    "25P04": Trouble.AWAY,
    "28000": Trouble.LOGIN,
    "28P01": Trouble.LOGIN,
    "3D000": Trouble.NO_DATABASE,
    "40001": Trouble.LOCKED,
    "40P01": Trouble.LOCKED,
    "42501": Trouble.NO_RIGHTS,
    "53100": Trouble.FULL,
    "55P03": Trouble.LOCKED,
    "57014": Trouble.LOCKED,  # a statement timeout of the server's own
    "58030": Trouble.BROKEN_DISK,
    "XX001": Trouble.DAMAGED,
    "XX002": Trouble.DAMAGED,
}
_CLASSES = {
    "08": Trouble.AWAY,
    "22": Trouble.STRANGE_VALUE,
    "3F": Trouble.STRANGE_TABLES,
    "42": Trouble.STRANGE_TABLES,
    "53": Trouble.CROWDED,
    "57": Trouble.AWAY,
    "58": Trouble.BROKEN_DISK,
}
# libpq keeps the SQLSTATE of a refused connection to itself; what follows are its and the server's words for people.
_REFUSALS = (
    ("authentication failed", Trouble.LOGIN),
    ("no password supplied", Trouble.LOGIN),
    ("pg_hba.conf", Trouble.LOGIN),
    ("is not permitted to log in", Trouble.LOGIN),
    ("permission denied for database", Trouble.NO_RIGHTS),
    ("too many", Trouble.CROWDED),
    ("connection slots", Trouble.CROWDED),
    ("invalid connection option", Trouble.BAD_ADDRESS),
    ("unrecognized configuration parameter", Trouble.BAD_ADDRESS),
    ("invalid value for parameter", Trouble.BAD_ADDRESS),
    ("invalid integer value", Trouble.BAD_ADDRESS),
    ("certificate", Trouble.BAD_ADDRESS),
    ("sslmode", Trouble.BAD_ADDRESS),
    ("does not support ssl", Trouble.BAD_ADDRESS),
)


def recognise(error: DBAPIError) -> Trouble:
    """Return what is wrong."""
    state = str(getattr(error.orig, "sqlstate", None) or "")
    if state:
        return _STATES.get(state) or _CLASSES.get(state[:2], Trouble.OTHER)
    if error.connection_invalidated:
        return Trouble.AWAY
    return _of_refusal(str(error.orig).lower()) if error.statement is None else Trouble.STRANGE_VALUE


def _of_refusal(reply: str) -> Trouble:
    if "does not exist" in reply:
        return Trouble.LOGIN if 'role "' in reply else Trouble.NO_DATABASE
    return next((trouble for words, trouble in _REFUSALS if words in reply), Trouble.AWAY)
