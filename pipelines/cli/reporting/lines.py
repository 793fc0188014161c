"""Rows in the words of the page for a partner's editor, who knows their own file and nothing of ours.

Which rows stand in which section is `sections`'; what the operator is told of the same rows is `listed_row`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mappings.delivery import Answer
from mappings.refusals import REASON_TEXTS, Reason
from mappings.row_key import RowKey
from pipelines.cli.payload_diff import payload_diff, shown
from pipelines.cli.reporting.page import Change, Line, Point
from state.enums import DriftKind, EntryState
from state.ledger.row_record import OtherEntry, RowRecord
from state.views.views import ProblemRecord

_LONGEST = 300
"""Characters of one text; an editor recognises a cell by its beginning."""
_PLAIN = {
    "startAt": "start",
    "endAt": "end",
    "channelId": "channel",
    "classifications": "kind of event",
    "coverImage": "cover image",
    "timezone": "time zone",
}


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells rows. `since`: what came later is new, None: nothing is; `link`: where an event is seen, with `{id}`, or ""."""

    since: datetime | None = None
    link: str = ""

    def problem(
        self, record: ProblemRecord, first_met: datetime, online: Mapping[RowKey, int], like: OtherEntry | None = None
    ) -> Line:
        """Return the line of a row that could not be used, is held back, or is used with a warning.

        `online`: events of such rows; `like`: the entry that a held row resembles.
        """
        event_id = online.get(record.row_key)
        points = tuple(_point(reason) for reason in record.reasons)
        if like is not None:
            points = (Point(f"It looks like the event with the identifier {text_of(str(like))}."),)
        cells = tuple((text_of(name), text_of(cell)) for name, cell in record.cells.items() if cell)
        return Line(
            at=text_of(record.origin),
            name=text_of(f"identifier {record.row_key}") if record.row_key else "without an identifier",
            is_new=self._is_new(first_met),
            event_id=event_id,
            link=self._link(event_id),
            points=points,
            cells=cells,
            note="" if event_id is None else "An earlier version of this row is online, and stays as it is.",
        )

    def entry(self, record: RowRecord) -> Line:
        """Tell of an event that is online, waits, or was not accepted."""
        points: tuple[Point, ...] = ()
        if record.state is EntryState.DELIVERED:
            points = (Point("As a draft: one of us has to publish it."),) if _said(record)["status"] == "draft" else ()
        else:
            points = _standing(record)
        return self._line(record, points, is_new=self._is_new(record.created_at))

    def drift(self, record: RowRecord) -> Line:
        """Tell what the source says now in place of what is online."""
        if record.drift_kind is DriftKind.CANCELLED:
            return self._line(record, (Point("Called off in your file; it is removed by hand."),))
        if record.drift_kind is DriftKind.TO_PUBLISH:
            return self._line(record, (Point("It went out as a draft; your file says that it may be published now."),))
        if record.drift_kind is DriftKind.RETURNED:
            return self._line(
                record, (Point("It was removed by hand, and is in your file again. We decide whether it goes online."),)
            )
        fields = [one for one in payload_diff(record.shown, record.drift_body or record.shown) if one.is_changed]
        changes = tuple(Change(_plain(one.path), text_of(shown(one.delivered)), text_of(shown(one.now))) for one in fields)
        return self._line(record, () if changes else (Point("Its cover image is another one."),), changes)

    def earlier(self, record: RowRecord) -> Line:
        """Return the line of an event whose earlier versions have to be removed."""
        events = ", ".join(map(str, record.earlier_event_ids))
        return self._line(record, (Point(f"Earlier versions that are still online: event {events}."),))

    def vanished(self, record: RowRecord) -> Line:
        """Tell that the source has the row no longer, or that a rule leaves it out."""
        since = "" if record.vanished_at is None else f" since the read of {record.vanished_at:%Y-%m-%d}"
        is_new = record.vanished_at is not None and self._is_new(record.vanished_at)
        said = "Left out of what is put online" if record.vanished_by else "Not in your file"
        return self._line(record, (Point(f"{said}{since}."),), is_new=is_new)

    def _line(
        self, record: RowRecord, points: tuple[Point, ...], changes: tuple[Change, ...] = (), *, is_new: bool = False
    ) -> Line:
        said = _said(record)
        return Line(
            at=text_of(record.origin),
            name=text_of(said["title"] or record.row_key),
            when=said["when"],
            is_new=is_new,
            event_id=record.event_id,
            link=self._link(record.event_id),
            points=points,
            changes=changes,
        )

    def _is_new(self, at: datetime) -> bool:
        return self.since is not None and at >= self.since

    def _link(self, event_id: int | None) -> str:
        return "" if event_id is None else self.link.replace("{id}", str(event_id))


def text_of(text: str) -> str:
    """Return a partner's text, cut to the length that a page shows."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _point(reason: Reason) -> Point:
    where = reason.column or _plain(reason.field)
    return Point(REASON_TEXTS[reason.code], text_of(where), text_of(reason.found), text_of(reason.hint))


def _standing(record: RowRecord) -> tuple[Point, ...]:
    match record.state:
        case EntryState.PENDING:
            return (Point("It waits to be sent."),)
        case EntryState.BLOCKED:
            return (Point("Its channel cannot be used by us at present. Nothing for you to do."),)
        case EntryState.REFUSED:
            return (_refusal(record.answer),)
        case _:
            return (Point("It was sent, and we are finding out whether it has arrived. Nothing for you to do."),)


def _refusal(answer: Answer | None) -> Point:
    if answer is None:
        return Point("The service did not accept it.")
    said = answer.issue or answer.message
    return Point(f"The service says: {text_of(said)}" if said else "The service did not accept it.", _plain(answer.field))


def _said(record: RowRecord) -> dict[str, str]:
    """Return what its payload says: title, when it starts, and whether it is a draft."""
    body = record.event
    zone = body.get("timezone")
    when = " ".join(str(body.get("startAt", ""))[:16].split("T"))
    return {
        "title": str(body.get("title", "")),
        "when": text_of(f"{when} ({zone})" if zone and when else when),
        "status": str(body.get("status", "")),
    }


def _plain(path: str) -> str:
    """Return a field of the payload in words, `approxLocation.city` as `approx location, city`."""
    first, dot, rest = path.partition(".")
    spelt = _PLAIN.get(first) or "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in first)
    return f"{spelt}, {rest.replace('.', ', ')}" if dot else spelt
