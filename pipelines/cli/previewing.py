"""The command `preview` at work: rows are read and mapped, shown and counted; nothing is written anywhere.

How rows are counted is `preview_account`'s.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, assert_never

from connectors.sources.catalogue import open_source
from mappings.engine import Directory, RowMapper, compile_feed
from mappings.schema import FeedMapping
from mappings.vocabulary import REASON_TEXTS, Absorbed, MappedRow, Reason, Rejection, RowOutcome, Skipped
from pipelines.cli.asking import ask_lists
from pipelines.cli.feed_files import named_mapping
from pipelines.cli.output import Output, Progress
from pipelines.cli.preview_account import PreviewAccount
from pipelines.clock import now
from pipelines.settings import Settings, current_settings

_UNMAPPED_COLUMNS = ("column", "value", "rows", "hint")


@dataclass(frozen=True, slots=True)
class Known:
    """What mappings are resolved against, and why that is not what the service says, if it is not."""

    directory: Directory
    why_offline: str = ""


def preview_feed(word: str, *, shown: int, is_whole: bool, as_json: bool) -> int:
    """Show the first `shown` rows of a feed's source and what becomes of them; with `is_whole` count all of them.

    Raises:
        SyncError: the mapping is broken, names a channel that the key does not have, or the source cannot be read.
    """
    settings, output = current_settings(), Output(json=as_json)
    mapping = named_mapping(settings, word)
    known = _known(settings)
    mapper = compile_feed(mapping, known.directory, now())
    account = PreviewAccount()
    with (
        output.progress(f"reading {mapping.feed}") as bar,
        closing(_read(mapping, mapper, account, bar, None if is_whole else shown)) as outcomes,
    ):
        first = list(islice(outcomes, shown))
        deque(outcomes if is_whole else (), maxlen=0)
    account.is_whole = is_whole or account.read < shown
    output.document(_document(mapping, known, first, account))
    if not as_json:
        _show(output, mapping, known, first, account)
    return 0


def _known(settings: Settings) -> Known:
    if not settings.base_url or not settings.api_key.get_secret_value():
        return Known(Directory(), "no service is configured")
    lists = ask_lists(settings)
    refusal = lists.refusal
    return Known(lists.directory, " ".join(str(refusal).split()) if refusal else "")


def _read(
    mapping: FeedMapping, mapper: RowMapper, account: PreviewAccount, bar: Progress, most: int | None
) -> Generator[RowOutcome, None, None]:
    """Yield what becomes of each row, counted, up to `most` of them."""
    with open_source(mapping.source, mapping.path.parent, mapper.columns).read() as reading:
        for row in islice(reading.rows, most):
            outcome = mapper(row)
            account.take(outcome)
            bar.advance()
            yield outcome


def _document(mapping: FeedMapping, known: Known, first: Iterable[RowOutcome], account: PreviewAccount) -> dict[str, Any]:
    return {
        "feed": mapping.feed,
        "lists": "offline" if known.why_offline else "live",
        "why_offline": known.why_offline,
        "rows": [_row(outcome) for outcome in first],
        "account": account.document(),
    }


def _row(outcome: RowOutcome) -> dict[str, Any]:
    row: dict[str, Any] = {"place": outcome.origin.place, "row_key": outcome.row_key}
    match outcome:
        case MappedRow():
            cover = {"cover": outcome.cover} if outcome.cover else {}
            return {**row, "event": json.loads(outcome.body), **cover, "warnings": outcome.warnings}
        case Rejection():
            return {**row, "rejected": outcome.reasons, "warnings": ()}
        case Skipped():
            return {**row, "skipped": outcome.because, "warnings": ()}
        case Absorbed():
            return {**row, "absorbed": outcome.into, "warnings": ()}
        case _:
            assert_never(outcome)


def _show(output: Output, mapping: FeedMapping, known: Known, first: Iterable[RowOutcome], account: PreviewAccount) -> None:
    if known.why_offline:
        output.note(f"offline ({known.why_offline}): channel ids are stand-ins, classifications are not looked up\n")
    for outcome in first:
        output.note(_told(outcome))
    output.note(_account_line(account))
    for name, counts in (("left out", account.skipped), ("problems", account.codes)):
        if counts:
            output.note(f"  {name}: " + ", ".join(f"{label} {count:,}" for label, count in counts.most_common()))
    if account.unmapped:
        rows = [(one.column, one.found, one.count, one.hint) for one in account.unmapped]
        output.table("values that no lookup knows", _UNMAPPED_COLUMNS, rows)
    output.note(f"nothing was written or sent; `eventsync run {mapping.feed} --dry-run` compares with what was sent before")


def _told(outcome: RowOutcome) -> str:
    match outcome:
        case MappedRow():
            payload = json.dumps(json.loads(outcome.body), indent=2, ensure_ascii=False)
            cover = [f"cover image: {outcome.cover.url}"] if outcome.cover else []
            extra = [*cover, *(f"warning: {_reason(reason)}" for reason in outcome.warnings)]
            return _block(f"{outcome.origin}  event {outcome.row_key}", [*payload.splitlines(), *extra])
        case Rejection():
            head = f"{outcome.origin}  REJECTED {outcome.row_key}".rstrip()
            return _block(head, [_reason(reason) for reason in outcome.reasons])
        case Skipped():
            return f"{outcome.origin}  left out: {outcome.because}\n"
        case Absorbed():
            return f"{outcome.origin}  {outcome.into}: another row of the key {outcome.row_key} speaks for it\n"
        case _:
            assert_never(outcome)


def _block(head: str, lines: Iterable[str]) -> str:
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"


def _reason(reason: Reason) -> str:
    where = reason.field or "the row"
    cell = f" (column {reason.column}, found {reason.found!r})" if reason.column else ""
    return f"{where}{cell}: {REASON_TEXTS[reason.code]} {reason.hint}".rstrip()


def _account_line(account: PreviewAccount) -> str:
    terms = [f"events {account.events:,}", f"left out {account.skipped.total():,}"]
    terms += [f"{how} {count:,}" for how, count in account.absorbed.items()]
    so_far = "the whole source" if account.is_whole else "so far; --all reads the whole source"
    expanded = f" + expanded {account.expanded:,}" if account.expanded else ""
    return f"read {account.read:,} ({so_far}){expanded} = {' + '.join([*terms, f'rejected {account.rejected:,}'])}"
