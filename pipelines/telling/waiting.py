"""What helps with each kind of rows that wait for a person."""

from __future__ import annotations

HELP = {
    "conflict": "`eventsync reconcile {feed}` looks for them, `eventsync resolve {feed} KEY` decides",
    "uncertain": "the next run sends them again; those too old for that: `eventsync reconcile {feed}`",
    "delivered_unconfirmed": "`eventsync reconcile {feed}` looks their ids up",
    "refused": "mend the source or the mapping; or as they are: `eventsync retry {feed}`",
    "blocked": "ask for access to their channels; the next run sends them again",
    "held": "`eventsync rows {feed} --state held` names the other events; `eventsync resolve {feed} KEY"
    " --same-as` moves the event to the new key, `--release` sends the row, `--ignore` leaves it held",
    "rejected": "`eventsync rows {feed} --state rejected --csv FILE` is for the partner",
    "drift": "`eventsync diff {feed}` shows them; change or publish them by hand, then `eventsync resolve {feed} KEY --applied`",
    "vanished": "remove them by hand if they are cancelled, then `eventsync resolve {feed} KEY --removed`; or `--ignore`",
    "earlier": "`eventsync rows {feed} --state earlier` names the events; remove them by hand, then"
    " `eventsync resolve {feed} KEY --removed`",
    "warning": "`eventsync rows {feed} --state warning` says what to look at;"
    " `eventsync resolve {feed} KEY --ignore` takes one off the list",
}
"""By the word that `rows --state` takes; `{feed}` stands for the feed's name."""
