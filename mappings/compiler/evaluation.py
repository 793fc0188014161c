"""The evaluation of one row: its state, the policies for what is empty or refused, and values passing through their steps.

A value first takes the straight way through its steps; only where one refuses, it takes the careful way, which names the step.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any, assert_never

from mappings.lookup_table import Table
from mappings.outcome import RowLocation
from mappings.refusals import Reason, ReasonCode, Refusal, Repair
from mappings.steps.step import Kind, Run, Step
from mappings.strict import Policy, UsePolicy

UNSET: Any = object()
"""Not computed yet."""
NOWHERE = RowLocation("")
_MEMO_SIZE = 4096


class RowState:
    """A row being mapped, or one of the events that it stands for. `named` holds the values of `let` as they are first needed.

    `item` and `day` distinguish the events of one row, None where there is one. `cancelled`: the label under which the event
    is called off. `rejected_by`: the place under `rows:` of the first rule that rejects the row, 0 if none does.
    """

    __slots__ = ("cancelled", "cells", "day", "is_draft", "item", "location", "named", "reasons", "rejected_by", "warnings")

    def __init__(self, cells: Mapping[str, str], named: int) -> None:
        self.cells = cells
        self.named: list[Any] = [UNSET] * named
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []
        self.is_draft = False
        self.cancelled = ""
        self.location = NOWHERE
        self.item: Any = None
        self.day: Any = None
        self.rejected_by = 0

    def branch(self, cells: Mapping[str, str]) -> RowState:
        """Return the state of one of the row's events: what is known of the row so far holds for it, too."""
        event = RowState(cells, len(self.named))
        event.reasons, event.warnings = self.reasons.copy(), self.warnings.copy()
        for name in ("is_draft", "cancelled", "location", "item", "day", "rejected_by"):
            setattr(event, name, getattr(self, name))
        return event

    def warn(self, refusal: Refusal, path: str, *, is_draft: bool) -> None:
        """Note a refusal that is tolerated in the field at a path; with `is_draft` the event is sent for review."""
        self.warnings.append(refusal.reason(path))
        self.is_draft = self.is_draft or is_draft


Getter = Callable[[RowState], Any]
"""A compiled value: None where it was left out, Refusal raised where it cannot be had."""
Recover = Callable[[RowState, Refusal], Any]
"""What becomes of a refusal: a value to use, None to leave it out, or the refusal again."""
Watch = Callable[[str, str, Any, Any], None]
"""Called, for `explain`, for each step: the field's path, the step, what went in, and what came out (or the Refusal)."""


def is_empty(value: object) -> bool:
    """True for what is never sent: nothing, blank text, an empty list or object."""
    if type(value) is str:
        return not value or value.isspace()
    return value is None or value in ([], {})


def nfc(text: str) -> str:
    """Return the text in Unicode's composed form."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def read_cell(cells: Mapping[str, str], column: str) -> str:
    """Return a cell's text in NFC, "" where the row has no such cell."""
    return nfc(cells.get(column, ""))


def column_reader(column: str) -> Getter:
    """Return the getter of a column's raw text, in NFC, "" where the row has no such cell."""
    return lambda row: nfc(row.cells.get(column, ""))


def cells_reader(columns: Sequence[str]) -> Callable[[Mapping[str, str]], Sequence[str]]:
    """Return what gives the raw texts of some columns, one at least, "" for those that the row does not have."""
    pick = itemgetter(*columns)
    if len(columns) == 1:
        return lambda cells: (cells.get(columns[0], ""),)

    def read(cells: Mapping[str, str]) -> Sequence[str]:
        try:
            found: tuple[str, ...] = pick(cells)
        except KeyError:
            return [cells.get(column, "") for column in columns]
        return found

    return read


def required(column: str, hint: str = "") -> Refusal:
    """Return the refusal of an empty value."""
    wanted = hint or (f'fill in the column "{column}"' if column else "a value is needed here")
    return Refusal(ReasonCode.REQUIRED, wanted, column=column)


def nothing_left(column: str, found: object) -> Refusal:
    """Return the refusal of a value of which its steps left nothing; one that was empty before is `required`."""
    if is_empty(found):
        return required(column)
    what = f'cell; write another value in the column "{column}"' if column else "value"
    return Refusal(ReasonCode.REQUIRED, f"nothing usable was left of this {what}", column=column, found=str(found))


def compile_policy(policy: Policy | None, path: str) -> Recover:
    """Compile an author's choice for the value of the event's field `path`."""
    match policy:
        case None:
            return _reject
        case "reject":
            return _reject_finally
        case "omit":
            return lambda _row, _refusal: None
        case "warn" | "draft":
            return _tolerating(path, None, is_draft=policy == "draft")
        case UsePolicy():
            value = policy.use if isinstance(policy.use, str) else list(policy.use)
            if policy.warn or policy.draft:
                return _tolerating(path, value, is_draft=policy.draft)
            return lambda _row, _refusal: value
        case _:
            assert_never(policy)


def _tolerating(path: str, value: Any, *, is_draft: bool) -> Recover:
    def mend(row: RowState, refusal: Refusal) -> Any:
        row.warn(refusal, path, is_draft=is_draft)
        return value

    return mend


def _reject(_row: RowState, refusal: Refusal) -> Any:
    raise refusal


def _reject_finally(_row: RowState, refusal: Refusal) -> Any:
    refusal = refusal.about("", "", "")
    refusal.is_final = True
    raise refusal


@dataclass(frozen=True, slots=True)
class Flow:
    """What passes between steps: its kind, and whether there may be several of it."""

    kind: Kind
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """One step as functions: `one` works on one item, `run` on all there is; `policy` is the step's own policy, if it has one.

    `path`: the field of the event that the value is for. `uses_repaired`: a repaired value is used in spite of the policy.
    """

    name: str
    one: Run
    run: Run
    is_each: bool
    works_on_empty: bool
    policy: Recover | None
    path: str
    uses_repaired: bool

    def watched(self, watch: Watch) -> CompiledStep:
        """Return the same step, each use of which is reported."""
        return replace(self, run=self._watched(self.run, watch), one=self._watched(self.one, watch))

    def _watched(self, run: Run, watch: Watch) -> Run:
        def watched(value: Any) -> Any:
            try:
                result = run(value)
            except Refusal as refusal:
                watch(self.path, self.name, value, refusal.value if isinstance(refusal, Repair) else refusal)
                raise
            watch(self.path, self.name, value, result)
            return result

        return watched

    def careful(self, row: RowState, current: Any, found: str, column: str) -> Any:
        """Take the step with its own policy; a refusal names the step, the column and what was `found` there."""
        if self.is_each and isinstance(current, list):
            items = current if self.works_on_empty else _present(current)
            return _present(_flat([self._careful_one(row, item, str(item), column) for item in items])) or None
        return self._careful_one(row, current, found, column)

    def _careful_one(self, row: RowState, item: Any, found: str, column: str) -> Any:
        try:
            return self.one(item)
        except Repair as repaired:
            refusal = repaired.about(column, found, self.name)
            if self.policy is None:
                row.warnings.append(refusal.reason(self.path))
                return repaired.value
            recovered = self.policy(row, refusal)
            return repaired.value if self.uses_repaired else recovered
        except Refusal as refused:
            refusal = refused.about(column, found, self.name)
            if self.policy is None:
                raise refusal from refused
            return self.policy(row, refusal)


@dataclass(frozen=True, slots=True)
class ValuePolicies:
    """What the author chose for a value that is empty or refused; `is_..._chosen`: the file says so, it is not the default."""

    column: str
    on_empty: Recover
    on_error: Recover
    is_empty_chosen: bool = False
    is_error_chosen: bool = False

    def apply(self, row: RowState, refusal: Refusal) -> Any:
        """Return what the author chose for a refusal, unless a choice inside the value is to reject the row."""
        if refusal.is_final:
            raise refusal
        return (self.on_empty if refusal.is_empty else self.on_error)(row, refusal)


def watched_value(get: Getter, name: str, path: str, watch: Watch) -> Getter:
    """Return the same value, each use of which is reported."""

    def value(row: RowState) -> Any:
        try:
            found = get(row)
        except Refusal as refusal:
            if not refusal.column:  # what has a column was reported where it was refused
                watch(path, name, None, refusal)
            raise
        watch(path, name, None, found)
        return found

    return value


class MisfitError(ValueError):
    """A step that cannot work on what it would get, said to the author."""


def compile_step(step: Step, flow: Flow, tables: Mapping[str, Table], path: str) -> tuple[CompiledStep, Flow]:
    """Compile one step for what reaches it, and say what it passes on.

    Raises:
        MisfitError: the step works on something else, as far as the file says.
    """
    if why := step.misfit(flow.kind):
        raise MisfitError(f'the step "{step.name}" cannot be used here: {why}')
    takes_list = step.takes is Kind.LIST
    if not takes_list and step.takes is not flow.kind and Kind.ANY not in (step.takes, flow.kind):
        raise MisfitError(f'the step "{step.name}" works on a {step.takes}, and would get a {flow.kind}')
    one = step.compile(tables)
    if takes_list and not flow.is_list:
        one = _listing(one)
    if flow.kind is Kind.ANY and step.takes in _CODES:
        one = _guarded(one, step.takes)
    is_each, works_on_empty = flow.is_list and not takes_list, step.works_on_empty
    compiled = CompiledStep(
        name=step.name,
        one=one,
        run=_each(one, works_on_empty=works_on_empty) if is_each else one,
        is_each=is_each,
        works_on_empty=works_on_empty,
        policy=None if step.policy is None else compile_policy(step.policy, path),
        path=path,
        uses_repaired=step.policy in (None, "warn", "draft"),
    )
    if step.result is Kind.LIST:
        return compiled, Flow(step.lists, is_list=True)
    kind = flow.kind if step.result is Kind.ANY else Kind.ANY if step.result is Kind.UNKNOWN else step.result
    return compiled, Flow(kind, is_each or step.gives_several)


def stepped(read: Getter, steps: tuple[CompiledStep, ...], ends: ValuePolicies) -> Getter:
    """Return the value that `read` gives once it has passed all steps."""
    works_on_empty = any(step.works_on_empty for step in steps)
    careful = _careful(steps, ends)

    def value(row: RowState) -> Any:
        try:
            found = read(row)
        except Refusal as refusal:
            if refusal.is_final or not (works_on_empty and refusal.is_empty):
                return ends.apply(row, refusal)
            found = ""
        if is_empty(found):
            if not works_on_empty:
                return ends.on_empty(row, required(ends.column))
            found = ""
        try:
            result = _run_all(steps, found)
        except Refusal:
            return careful(row, found)
        return ends.on_empty(row, nothing_left(ends.column, found)) if is_empty(result) else result

    return value


def _run_all(steps: tuple[CompiledStep, ...], current: Any) -> Any:
    for step in steps:
        if step.works_on_empty or not is_empty(current):
            current = step.run(current)
    return current


def stepped_cell(column: str, steps: tuple[CompiledStep, ...], ends: ValuePolicies) -> Getter:
    """Return the same for the text of a column, written out: this runs for every cell that is mapped (budget 3)."""
    if any(step.works_on_empty for step in steps):
        return stepped(column_reader(column), steps, ends)
    runs = tuple(step.run for step in steps)
    careful = _careful(steps, ends)

    def value(row: RowState) -> Any:
        found = row.cells.get(column, "")
        if not found or found.isspace():
            return ends.on_empty(row, required(ends.column))
        if not found.isascii():
            found = nfc(found)
        current: Any = found
        try:
            for run in runs:
                current = run(current)
                if is_empty(current):
                    return ends.on_empty(row, nothing_left(ends.column, found))
        except Refusal:
            return careful(row, found)
        return current

    return value


def _careful(steps: tuple[CompiledStep, ...], ends: ValuePolicies) -> Callable[[RowState, Any], Any]:
    """The same way once more, one step at a time, with the policies of each."""

    def careful(row: RowState, found: Any) -> Any:
        current, is_left_out = found, False
        try:
            for step in steps:
                if step.works_on_empty or not is_empty(current):
                    current = step.careful(row, current, str(found), ends.column)
                    is_left_out = is_left_out or current is None
            if not is_empty(current):
                return current
            return None if is_left_out and not ends.is_empty_chosen else ends.on_empty(row, nothing_left(ends.column, found))
        except Refusal as refusal:
            return ends.apply(row, refusal)

    return careful


def _each(one: Run, *, works_on_empty: bool) -> Run:
    def run(items: Any) -> Any:
        if type(items) is not list:
            return one(items)
        return _present(_flat([one(item) for item in (items if works_on_empty else _present(items))]))

    return run


def _flat(results: list[Any]) -> list[Any]:
    return [part for result in results for part in (result if type(result) is list else [result])]


def _present(items: list[Any]) -> list[Any]:
    return [item for item in items if not is_empty(item)]


def _listing(run: Run) -> Run:
    """A list step may meet one text where a list was possible: it counts as a list of one."""
    return lambda value: run(value if type(value) is list else [value])


_CODES = {
    Kind.TEXT: ReasonCode.BAD_TEXT,
    Kind.DATE: ReasonCode.NOT_A_DATE,
    Kind.WALL: ReasonCode.NOT_A_DATE,
    Kind.MOMENT: ReasonCode.NOT_A_DATE,
    Kind.NUMBER: ReasonCode.NOT_A_NUMBER,
    Kind.OBJECT: ReasonCode.BAD_TEXT,
}


def _guarded(run: Run, takes: Kind) -> Run:
    """Return the same function, which checks each value first: where the file does not say what reaches it."""

    def checked(value: Any) -> Any:
        if not _is_of_kind(value, takes):
            raise Refusal(_CODES[takes], f"a {takes} is needed here")
        return run(value)

    return checked


def _is_of_kind(value: Any, kind: Kind) -> bool:
    match kind:
        case Kind.TEXT:
            return type(value) is str
        case Kind.DATE:
            return isinstance(value, date)
        case Kind.WALL | Kind.MOMENT:
            return isinstance(value, datetime) and (value.tzinfo is not None) is (kind is Kind.MOMENT)
        case Kind.NUMBER:
            return isinstance(value, int | Decimal) and not isinstance(value, bool)
        case _:
            return isinstance(value, Mapping)


@dataclass(slots=True)
class Reads:
    """What a value reads: `columns` of the row, and whether anything besides (the row's place, its day, an item of a list)."""

    columns: set[str] = field(default_factory=set)
    is_more: bool = False

    def add(self, other: Reads) -> None:
        """Take in what a part of the value reads."""
        self.columns |= other.columns
        self.is_more = self.is_more or other.is_more


def remembered(get: Getter, settle: Callable[[Any], Any], columns: frozenset[str]) -> Getter:
    """Return the same settled value, memoised by the cells that decide it: days and places come again (budget 3).

    Only values of rows without warnings and refusals are kept: every other row has its own noted anew.
    """
    pick: Callable[[Mapping[str, str]], Any] = itemgetter(*sorted(columns)) if columns else lambda _cells: ()
    known: dict[Any, Any] = {}

    def value(row: RowState) -> Any:
        try:
            key = pick(row.cells)
        except KeyError:
            key = UNSET
        found = known.get(key, UNSET)
        if found is not UNSET:
            return found
        found = get(row)
        found = None if found is None else settle(found)
        if key is not UNSET and not row.warnings and not row.reasons:
            if len(known) >= _MEMO_SIZE:
                known.clear()
            known[key] = found
        return found

    return value
