"""Stop a drain whose answers show together that the mapping or the key is wrong, and not single rows.

Before anything is sent, what the feed sends is compared with the service's OpenAPI page; where the page announces that rows
will be refused, one row is sent first.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace

import structlog
from pydantic import TypeAdapter

from connectors.errors import ScopeMissingError
from connectors.event_api.answers import INDEXES, is_same_place, words_of
from connectors.event_api.contract_check import compare, upload_field
from connectors.event_api.delivery import EventApi
from connectors.event_api.openapi import NoPage, read_page
from mappings.delivery import Answer, Blocked, Intent, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from mappings.outgoing import Drift, outgoing_of
from mappings.spec.feed import FeedMapping
from pipelines.run.outcome import BrakeError
from pipelines.run.service import read_note, write_note
from state.notes import ServiceNotes

SAME_REFUSALS = 25
"""After so many first answers that are the same refusal (field and issue), the mapping is considered wrong."""
MOST_IN_A_ROW = 1000
"""So many equal refusals in a row stop any run, however long it is and even after deliveries."""
OUT_OF_SCOPE_IN_A_ROW = 1000
"""After so many rows in a row for whose channels the key lacks the scope, it is considered to lack it for all."""
PATIENT_ANSWERS = 10
"""After so many rows that neither pass nor are refused as announced, the page is ignored."""
_ROUNDING = 1e-9
"""Shares are binary fractions: 29 % of 100 must not be a little less than 29."""
_RULES = "3"
"""Version of the comparison: remembered results of another version are ignored."""
_SHOWN_ERRORS = 5


class SameRefusalError(BrakeError):
    """Rows are refused for a reason that is not their own. `reason` is equal for equal refusals."""

    def __init__(self, which: str, reason: str) -> None:
        super().__init__(
            f"{which} refused for the same reason: {reason}",
            brakes=("same refusal",),
            hint="mend the mapping, then run again: refused rows are sent anew when their payload changes; "
            "if it was the service that was wrong, `eventsync retry FEED` lets them go out as they are; "
            "the next run sends one row first, and the others once it has passed",
        )
        self.reason = reason


@dataclass(slots=True)
class SystemicFailure:
    """Stops a drain in which the same refusal comes again and again, or in which the key lacks the scope for every channel.

    `patience`: so many equal refusals in a row stop a run in which other rows have passed before. `stopped_by`: the reason for
    which an earlier run was stopped; then rows are sent one by one until one has passed. `scope_cause`: why rows of a drain
    that sent everything are still pending.
    """

    patience: int = MOST_IN_A_ROW
    stopped_by: str = ""
    scope_cause: SyncError | None = None
    has_passed: bool = False
    _are_all_equal: bool = True
    _refusals: int = 0
    _in_a_row: int = 0
    _issue: str | None = None
    _out_of_scope: int = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether rows are sent one by one because an earlier run was stopped and none has passed since."""
        return bool(self.stopped_by) and not self.has_passed

    def cause(self, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the run must stop, if it must."""
        if isinstance(verdict, Postponed):
            if not isinstance(verdict.cause, ScopeMissingError):
                return verdict.cause
            self._out_of_scope, self.scope_cause = self._out_of_scope + 1, verdict.cause
            return verdict.cause if self._out_of_scope >= OUT_OF_SCOPE_IN_A_ROW else None
        if isinstance(verdict, Uncertain):
            return None
        self._out_of_scope = 0
        if isinstance(verdict, Superseded):
            return None  # an old refusal that is repeated is not final: the row is sent once more under its next key
        if isinstance(verdict, Refusal):
            # A refusal of our own (a broken image in many rows) was never sent: it proves nothing about the mapping.
            return self._after_refusal(verdict.answer) if verdict.attempts else None
        self.has_passed = self.has_passed or isinstance(verdict, Receipt | Unconfirmed)
        self._in_a_row = 0
        return None

    def _after_refusal(self, answer: Answer) -> SyncError | None:
        issue = " ".join(filter(None, (answer.code, answer.field, answer.issue)))
        if self.is_doubtful and issue == self.stopped_by:
            return SameRefusalError("the row that was sent first after a stop was", issue)
        self._are_all_equal = self._are_all_equal and self._issue in {None, issue}
        self._refusals, self._in_a_row = self._refusals + 1, self._in_a_row + 1 if issue == self._issue else 1
        self._issue = issue
        if self._are_all_equal and not self.has_passed:
            is_enough, which = self._refusals >= SAME_REFUSALS, f"the first {self._refusals} rows were all"
        else:
            is_enough, which = self._in_a_row >= self.patience, f"{self._in_a_row} rows in a row were all"
        return SameRefusalError(which, issue) if is_enough else None


def patience_with(owed: int, bad_share: float | None) -> int:
    """Return how many equal refusals in a row stop a run that owes so many rows, once rows have passed.

    A partner may have listed bad rows side by side: as many as the feed allows (`rejected`; None: any) are no sign of more.
    """
    beyond = MOST_IN_A_ROW if bad_share is None else int(owed * bad_share + _ROUNDING) + 1
    return min(max(SAME_REFUSALS, beyond), MOST_IN_A_ROW)


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """A refusal that the service's page announces for every row.

    `fields`: paths in the payload that a refusal may name for it; none where the request as a whole is meant.
    """

    text: str
    fields: frozenset[str] = frozenset()

    def explains(self, answer: Answer) -> bool:
        """Whether a refusal is the announced one: it names such a field, as its field or in its words.

        Where the request as a whole is meant, it names no field. A 403 is never announced.
        """
        if not self.fields:
            return not answer.field and answer.status != 403
        if answer.status in {403, 404}:
            return False
        if answer.field:
            return any(is_same_place(answer.field, field) for field in self.fields)
        last_names = {INDEXES.sub("", field).rpartition(".")[2].casefold() for field in self.fields}
        return not last_names.isdisjoint(words_of(answer.issue, answer.message))


@dataclass(slots=True)
class CautiousStart:
    """While it `is_on`, one row is in flight at a time; never without doubts.

    `owed`: rows that the drain would send. A row that passes ends it: the page alone stops nothing.
    """

    doubts: tuple[ExpectedRefusal, ...] = ()
    owed: int = 0
    has_passed: bool = False
    _answers: int = 0
    _conclusive: int = 0

    @property
    def is_on(self) -> bool:
        """Whether rows are sent one by one."""
        return bool(self.doubts) and not self.has_passed and self._conclusive < PATIENT_ANSWERS

    def cause(self, intent: Intent, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the drain must stop, if it must.

        An intent that an earlier run may have sent proves nothing: its answer may be that of the earlier attempt, under
        an earlier contract.
        """
        if not self.is_on or isinstance(verdict, Superseded):
            return None
        self._answers += 1
        self._conclusive += not intent.is_unanswered
        if isinstance(verdict, Receipt):
            self.has_passed = not intent.is_unanswered
        answer = verdict.answer
        announced = next((doubt for doubt in self.doubts if doubt.explains(answer)), None)
        if announced is None or not isinstance(verdict, Refusal | Blocked):
            return None
        refusal = f"{answer.status} {': '.join(filter(None, (answer.field, answer.issue or answer.message)))}"
        return BrakeError(
            f"{announced.text}; a row was refused for it ({refusal}), {max(self.owed - self._answers, 0)} rows were not sent",
            brakes=("contract",),
            hint="see `eventsync check --live`, mend the mapping and run again: nothing is lost, every row keeps its key",
        )


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the page announces for a feed. `has_changed`: since the last run.

    `is_disproved`: rows have passed in spite of its errors. `upload_field`: the form field for images.
    """

    drifts: tuple[Drift, ...] = ()
    has_changed: bool = False
    is_disproved: bool = False
    upload_field: str = ""

    @property
    def errors(self) -> tuple[Drift, ...]:
        """The differences for which every row would be refused, unless disproved."""
        return () if self.is_disproved else tuple(drift for drift in self.drifts if drift.severity == "error")

    @property
    def doubts(self) -> tuple[ExpectedRefusal, ...]:
        """The same as expected refusals."""
        return tuple(ExpectedRefusal(drift.statement, frozenset(drift.fields)) for drift in self.errors)

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of a run: every announced refusal; differences for some rows only when the page changes."""
        notices = [str(drift) for drift in self.errors[:_SHOWN_ERRORS]]
        if (more := len(self.errors) - _SHOWN_ERRORS) > 0:
            notices.append(f"the service's page differs in {more} more places: see `eventsync check --live`")
        warnings = sum(drift.severity == "warning" for drift in self.drifts)
        if self.has_changed and warnings:
            news = f"the service's page has changed, and differs for some rows in {warnings}"
            notices.append(f"{news}: see `eventsync check --live`")
        return tuple(notices)


CLEAR = Outlook()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The last comparison: of which page (its `ETag` and digest) with which mapping, by which rules."""

    etag: str
    page: str
    mapping: str
    rules: str
    outlook: Outlook


_COMPARISON = TypeAdapter(_Comparison)


class Preflight:
    """Compares for one feed at one destination; an unchanged page is not compared twice."""

    def __init__(self, notes: ServiceNotes, mapping: FeedMapping) -> None:
        self._notes = notes
        self._mapping = mapping
        self._name = f"contract of {mapping.feed}"

    async def compare(self, api: EventApi) -> Outlook:
        """Fetch the page and compare it; nothing is announced where it cannot be fetched or read.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        last, mapping = read_note(self._notes, self._name, _COMPARISON), self._mapping.digest.hex()
        usable = last if last is not None and (last.mapping, last.rules) == (mapping, _RULES) else None
        body = await api.contract(usable.etag if usable else "")
        if body is None:
            return usable.outlook if usable else _unknown("it answers 304 to nothing")
        if isinstance(body, NoPage):
            return _unknown(body.why)
        digest = hashlib.blake2b(body.body, digest_size=16).hexdigest()
        if usable and usable.page == digest:
            return usable.outlook
        page = await asyncio.to_thread(read_page, body.body)
        if isinstance(page, NoPage):
            return _unknown(page.why)
        drifts = await asyncio.to_thread(compare, page, outgoing_of(self._mapping))
        outlook = Outlook(drifts, upload_field=upload_field(page))
        write_note(self._notes, self._name, _COMPARISON, _Comparison(body.etag, digest, mapping, _RULES, outlook))
        return replace(outlook, has_changed=last is not None and last.page != digest)

    def disprove(self) -> None:
        """Remember that rows passed in spite of what the page announces, until it changes."""
        last = read_note(self._notes, self._name, _COMPARISON)
        if last is not None:
            disproved = replace(last, outlook=replace(last.outlook, is_disproved=True))
            write_note(self._notes, self._name, _COMPARISON, disproved)


def _unknown(why: str) -> Outlook:
    structlog.get_logger().debug("the service's page could not be compared", why=why)
    return CLEAR
