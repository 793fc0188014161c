"""What helps with each kind of rows that wait for a person, for whoever shows or tells of them.

Which kinds there are is `row_words`'.
"""

from __future__ import annotations

HELP = {
    "conflict": "`eventsync reconcile {feed}` looks for them, `eventsync resolve {feed} KEY` decides",
    "uncertain": "the next run sends them again; those too old for that: `eventsync reconcile {feed}`",
    "delivered_unconfirmed": "`eventsync reconcile {feed}` looks their ids up",
    "refused": "mend the source or the mapping; or as they are: `eventsync retry {feed}`",
    "blocked": "ask for access to their channels; the next run sends them again",
    "held": "`eventsync resolve {feed} KEY --resend` sends one, `--ignore` says that it is a copy",
    "rejected": "`eventsync rows {feed} --state rejected --csv FILE` is for the partner",
    "drift": "`eventsync diff {feed}` shows them; change or publish them by hand, then `eventsync resolve {feed} KEY --ignore`",
    "vanished": "remove them by hand if they are cancelled, then `eventsync resolve {feed} KEY --ignore`",
}
"""By the word that `rows --state` takes; `{feed}` stands for the feed's name."""
