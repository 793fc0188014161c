"""The command `retry` at work: which rows it means, and what it tells of them.

What a retry is stands in `state.turned_away`.
"""

from __future__ import annotations

from mappings.errors import ConfigError
from mappings.refusals import did_you_mean
from pipelines.cli.at_hand import FeedAtHand, feed_at_hand, split_keys
from pipelines.cli.output import Output
from pipelines.settings import current_settings
from state.enums import EntryState
from state.ledger.turned_away import RETRIABLE, Retried
from state.views.views import RowFilter

_LEFT_ALONE = ("row key", "left alone, because")


def retry_rows(feed: str, keys: str | None, state: str | None, *, as_json: bool) -> int:
    """Make rows pending again and say how many; return 0.

    Raises:
        ConfigError: there is no such feed, state or row; nothing was changed.
        HeldByAnotherError: a run holds the feed.
    """
    settings, output = current_settings(), Output(json=as_json)
    states = _states(state)
    with feed_at_hand(settings, feed) as at_hand:
        row_keys = None if keys is None else split_keys(keys)
        unknown = [key for key in row_keys or () if not at_hand.books.rows(at_hand.book, RowFilter(row_key=key))]
        if unknown:
            raise at_hand.unknown(unknown)
        with at_hand.deciding("retry") as decisions:
            retried = decisions.retry(states, row_keys)
        _tell(output, at_hand, retried)
    return 0


def _states(word: str | None) -> tuple[EntryState, ...]:
    if word is None:
        return RETRIABLE
    known = {state.value: state for state in RETRIABLE}
    if word not in known:
        hint = did_you_mean(word, known) or f"there are {', '.join(known)}; other rows are decided on with `eventsync resolve`"
        raise ConfigError(f"--state {word}: rows in this state are not retried", hint=hint)
    return (known[word],)


def _tell(output: Output, at_hand: FeedAtHand, retried: Retried) -> None:
    count, feed = retried.refused + retried.blocked, at_hand.book.feed
    send = f"eventsync run {feed} --publish-only"
    output.document(
        {
            "feed": feed,
            "retried": {"refused": retried.refused, "blocked": retried.blocked},
            "left_alone": retried.left_alone,
            "to_send": send if count else None,
        }
    )
    kinds = ((retried.refused, "refused"), (retried.blocked, "blocked"))
    terms = [f"{number:,} {word}" for number, word in kinds if number]
    if count:
        output.note(f"{feed}: {' and '.join(terms)} row{'s' * (count != 1)} to be sent again")
        output.note(f"the next run sends them; at once: `{send}`")
    else:
        output.note(f"{feed}: no row to retry")
    if retried.left_alone:
        output.table(f"{feed}: left alone", _LEFT_ALONE, [(one.row_key, one.because) for one in retried.left_alone])
