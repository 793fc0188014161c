"""What became of a row, told: as a block of lines for people, as a document for scripts. Counting is `preview_account`'s."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, assert_never

from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, Skipped
from mappings.refusals import REASON_TEXTS, Reason
from pipelines.cli.preview_claims import Foreseen, Held

OutcomeKind = Literal["events", "rejected", "held", "skipped"]


def kind_of(outcome: Foreseen) -> OutcomeKind:
    """Return the word by which people ask for outcomes like this one; a row that another speaks for is no event."""
    match outcome:
        case MappedRow():
            return "events"
        case Rejection():
            return "rejected"
        case Held():
            return "held"
        case Skipped() | Absorbed() | Gone():
            return "skipped"
        case _:
            assert_never(outcome)


def outcome_document(outcome: Foreseen) -> dict[str, Any]:
    """Tell scripts: `event`, `rejected`, `held`, `skipped` or `absorbed`, with the row's place and key."""
    row: dict[str, Any] = {"place": outcome.origin.place, "row_key": outcome.row_key}
    match outcome:
        case MappedRow():
            cover = {"cover": outcome.cover} if outcome.cover else {}
            return {**row, "event": json.loads(outcome.body), **cover, "warnings": outcome.warnings}
        case Rejection():
            return {**row, "rejected": outcome.reasons, "warnings": ()}
        case Held():
            return {**row, "held": outcome.twin_key, "warnings": ()}
        case Skipped():
            return {**row, "skipped": outcome.because, "warnings": ()}
        case Absorbed():
            return {**row, "absorbed": outcome.into, "warnings": ()}
        case Gone():
            return {**row, "gone": True, "warnings": ()}
        case _:
            assert_never(outcome)


def outcome_told(outcome: Foreseen) -> str:
    """Tell people: the payload with its warnings, each reason with what would be accepted, or the rule's label."""
    match outcome:
        case MappedRow():
            payload = json.dumps(json.loads(outcome.body), indent=2, ensure_ascii=False)
            cover = [f"cover image: {outcome.cover.url}"] if outcome.cover else []
            outside = [f"outside the window: {outcome.outside}; compared with what was sent"] if outcome.outside else []
            extra = [*cover, *outside, *(f"warning: {reason_told(reason)}" for reason in outcome.warnings)]
            return _block(f"{outcome.origin}  event {outcome.row_key}", [*payload.splitlines(), *extra])
        case Rejection():
            head = f"{outcome.origin}  REJECTED {outcome.row_key}".rstrip()
            return _block(head, [reason_told(reason) for reason in outcome.reasons])
        case Held():
            return f"{outcome.origin}  HELD {outcome.row_key}: it looks like a copy of {outcome.twin_key}\n"
        case Skipped():
            return f"{outcome.origin}  left out: {outcome.because}\n"
        case Absorbed():
            return f"{outcome.origin}  {outcome.into}: another row of the key {outcome.row_key} speaks for it\n"
        case Gone():
            return f"{outcome.origin}  gone: its source says that {outcome.row_key or 'the row'} was deleted\n"
        case _:
            assert_never(outcome)


def reason_told(reason: Reason) -> str:
    """Tell one problem: where, what was found, what is wrong with it, what would be accepted."""
    where = reason.field or "the row"
    found = f"found {reason.found!r}" if reason.found else "empty"
    cell = f" (column {reason.column}, {found})" if reason.column else ""
    wrong = REASON_TEXTS[reason.code]
    return f"{where}{cell}: {wrong.removesuffix('.')}: {reason.hint}" if reason.hint else f"{where}{cell}: {wrong}"


def _block(head: str, lines: Iterable[str]) -> str:
    return "\n".join([head, *(f"  {line}" for line in lines)]) + "\n"
