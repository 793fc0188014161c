"""Stop a drain whose answers show together that the mapping or the key is wrong, and not single rows.

Where the service's OpenAPI page announces that rows will be refused, one row is sent first.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass, replace

import structlog
from pydantic import TypeAdapter, ValidationError

from connectors.errors import ScopeMissingError
from connectors.event_api.client import EventApi
from connectors.event_api.contract_check import Drift, compare, upload_field
from connectors.event_api.openapi import NoPage, PageBody, read_page
from mappings.delivery import Answer, Blocked, Intent, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from mappings.outgoing import outgoing_of
from mappings.spec.feed import FeedMapping
from pipelines.run.outcome import BrakeError
from state.notes import ServiceNotes

SAME_REFUSALS = 25
"""After so many first answers that are the same refusal (field and issue), the mapping is taken to be wrong."""
MOST_IN_A_ROW = 1000
"""So many equal refusals in a row stop any run, however long it is and even after deliveries."""
OUT_OF_SCOPE_IN_A_ROW = 1000
"""After so many rows in a row for whose channels the key lacks the scope, it is taken to lack it for all."""
_ROUNDING = 1e-9
"""Shares are binary fractions: 29 % of 100 must not be a little less than 29."""


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
    which an earlier run was stopped; then rows are sent one by one until one has passed.
    """

    patience: int = MOST_IN_A_ROW
    stopped_by: str = ""
    refusals: int = 0
    in_a_row: int = 0
    issue: str | None = None
    is_first: bool = True
    has_passed: bool = False
    out_of_scope: int = 0
    scope_cause: SyncError | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether rows are sent one by one because an earlier run was stopped and none has passed since."""
        return bool(self.stopped_by) and not self.has_passed

    def cause(self, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the run must stop, if it must."""
        match verdict:
            case Postponed(cause=ScopeMissingError() as cause):
                self.out_of_scope, self.scope_cause = self.out_of_scope + 1, cause
                return cause if self.out_of_scope >= OUT_OF_SCOPE_IN_A_ROW else None
            case Postponed(cause=cause):
                return cause
            case Uncertain():
                return None
            case _:
                self.out_of_scope = 0
                # An old refusal that is repeated is not final: the row is sent once more under its next key.
                return None if isinstance(verdict, Superseded) else self._after_answer(verdict)

    def cause_at_end(self) -> SyncError | None:
        """Return why a drain that sent everything left rows pending: their channels are out of the key's scope."""
        return self.scope_cause

    def _after_answer(self, verdict: Verdict) -> SyncError | None:
        if isinstance(verdict, Refusal):
            # A refusal of our own (a broken image in many rows) was never sent: it proves nothing about the mapping.
            return self._after_refusal(verdict) if verdict.attempts else None
        self.has_passed = self.has_passed or isinstance(verdict, Receipt | Unconfirmed)
        self.is_first = self.is_first and not isinstance(verdict, Receipt | Unconfirmed)
        self.in_a_row = 0
        return None

    def _after_refusal(self, verdict: Refusal) -> SyncError | None:
        answer = verdict.answer
        issue = " ".join(filter(None, (answer.code, answer.field, answer.issue)))
        if self.is_doubtful and issue == self.stopped_by:
            return SameRefusalError("the row that was sent first after a stop was", issue)
        self.is_first = self.is_first and self.issue in {None, issue}
        self.refusals, self.in_a_row = self.refusals + 1, self.in_a_row + 1 if issue == self.issue else 1
        self.issue = issue
        if self.is_first and self.refusals >= SAME_REFUSALS:
            return SameRefusalError(f"the first {self.refusals} rows were all", issue)
        if not self.is_first and self.in_a_row >= self.patience:
            return SameRefusalError(f"{self.in_a_row} rows in a row were all", issue)
        return None


def patience_with(owed: int, bad_share: float | None) -> int:
    """Return how many equal refusals in a row stop a run that owes so many rows, once rows have passed.

    A partner may have listed bad rows side by side: as many as the feed allows (`rejected`; None: any) are no sign of more.
    """
    beyond = MOST_IN_A_ROW if bad_share is None else int(owed * bad_share + _ROUNDING) + 1
    return min(max(SAME_REFUSALS, beyond), MOST_IN_A_ROW)


_PLACES = re.compile(r"\[\d*\]|/\d+(?=/|$)")


def is_same_place(theirs: str, ours: str) -> bool:
    """Compare two paths, however the service spells them."""
    one, other = _plain(theirs), _plain(ours)
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def last_name(path: str) -> str:
    """Return the last name of a path of ours."""
    return _PLACES.sub("", path).rpartition(".")[2]


def words_of(*texts: str) -> set[str]:
    """Return the words of texts, without regard to case."""
    return set(re.findall(r"\w+", " ".join(texts).casefold()))


def _plain(path: str) -> str:
    return ".".join(filter(None, re.split(r"[./]", _PLACES.sub("", path)))).casefold()


PATIENT_ANSWERS = 10
"""After so many rows that neither pass nor are refused as announced, the page is ignored."""


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
        words = words_of(answer.issue, answer.message)
        return any(last_name(field).casefold() in words for field in self.fields)


@dataclass(slots=True)
class CautiousStart:
    """While it `is_on`, one row is in flight at a time; never without doubts.

    `owed`: rows that the drain would send. A row that passes ends it: the page alone stops nothing.
    """

    doubts: tuple[ExpectedRefusal, ...] = ()
    owed: int = 0
    answers: int = 0
    conclusive: int = 0
    has_passed: bool = False

    @property
    def is_on(self) -> bool:
        """Whether rows are sent one by one."""
        return bool(self.doubts) and not self.has_passed and self.conclusive < PATIENT_ANSWERS

    def cause(self, intent: Intent, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the drain must stop, if it must.

        An intent that an earlier run may have sent proves nothing: its answer may be that of the earlier attempt, under
        an earlier contract.
        """
        if not self.is_on or isinstance(verdict, Superseded):
            return None
        self.answers += 1
        self.conclusive += not intent.is_unanswered
        match verdict:
            case Receipt():
                self.has_passed = not intent.is_unanswered
                return None
            case Refusal(answer) | Blocked(answer):
                return self._after_refusal(answer)
            case _:
                return None

    def _after_refusal(self, answer: Answer) -> SyncError | None:
        announced = next((doubt for doubt in self.doubts if doubt.explains(answer)), None)
        if announced is None:
            return None
        said = ": ".join(filter(None, (answer.field, answer.issue or answer.message)))
        unsent = max(self.owed - self.answers, 0)
        return BrakeError(
            f"{announced.text}; a row was refused for it ({answer.status} {said}), {unsent} rows were not sent",
            brakes=("contract",),
            hint="see `eventsync check --live`, mend the mapping and run again: nothing is lost, every row keeps its key",
        )


RULES = "2"
"""Version of the comparison: remembered results of another version are ignored."""
_SHOWN_ERRORS = 5


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
        if len(self.errors) > _SHOWN_ERRORS:
            notices.append(
                f"the service's page differs in {len(self.errors) - _SHOWN_ERRORS} more places: see `eventsync check --live`"
            )
        warnings = sum(drift.severity == "warning" for drift in self.drifts)
        if self.has_changed and warnings:
            notices.append(
                f"the service's page has changed, and differs for some rows in {warnings}: see `eventsync check --live`"
            )
        return tuple(notices)


CLEAR = Outlook()


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The last comparison: of which page (its `ETag` and digest) with which mapping, by which rules."""

    etag: str
    page: str
    mapping: str
    rules: str
    drifts: tuple[Drift, ...]
    is_disproved: bool = False
    upload_field: str = ""

    @property
    def outlook(self) -> Outlook:
        return Outlook(self.drifts, is_disproved=self.is_disproved, upload_field=self.upload_field)


_REMEMBERED = TypeAdapter(_Remembered)


class Preflight:
    """Compares for one feed at one destination; an unchanged page is not compared twice."""

    def __init__(self, notes: ServiceNotes, mapping: FeedMapping) -> None:
        self._notes = notes
        self._mapping = mapping
        self._name = f"contract of {mapping.feed}"

    async def look(self, api: EventApi) -> Outlook:
        """Fetch the page and compare it; nothing is announced where it cannot be fetched or read.

        Raises:
            SyncError: the state DB cannot be read or written.
        """
        before = self._remembered()
        is_ours = before is not None and (before.mapping, before.rules) == (self._mapping.digest.hex(), RULES)
        page = await api.contract(before.etag if before is not None and is_ours else "")
        match page:
            case None:
                return before.outlook if before is not None else CLEAR
            case PageBody(body, etag):
                digest = hashlib.blake2b(body, digest_size=16).hexdigest()
                if before is not None and is_ours and before.page == digest:
                    return before.outlook
                return await self._compared(body, etag, digest, before)
            case NoPage(why):
                return _no_outlook(why)

    def disprove(self) -> None:
        """Remember that rows passed in spite of what the page announces, until it changes."""
        before = self._remembered()
        if before is not None:
            self._remember(replace(before, is_disproved=True))

    async def _compared(self, body: bytes, etag: str, digest: str, before: _Remembered | None) -> Outlook:
        page = await asyncio.to_thread(read_page, body)
        if isinstance(page, NoPage):
            return _no_outlook(page.why)
        drifts = await asyncio.to_thread(compare, page, outgoing_of(self._mapping))
        found = _Remembered(etag, digest, self._mapping.digest.hex(), RULES, drifts, upload_field=upload_field(page))
        self._remember(found)
        return replace(found.outlook, has_changed=before is not None and before.page != digest)

    def _remembered(self) -> _Remembered | None:
        kept = self._notes.read(self._name)
        try:
            return None if kept is None else _REMEMBERED.validate_json(kept)
        except ValidationError:  # written by another version
            return None

    def _remember(self, found: _Remembered) -> None:
        self._notes.write(self._name, _REMEMBERED.dump_json(found, ensure_ascii=True).decode("ascii"))


def _no_outlook(why: str) -> Outlook:
    structlog.get_logger().debug("the service's page could not be compared", why=why)
    return CLEAR
