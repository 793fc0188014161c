"""The evaluation of one row: its state, the policies for what is empty or refused, and values passing through their steps.

A value first takes the straight way through its steps; only where one refuses, it takes the careful way, which names the step.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import repeat
from operator import itemgetter
from typing import Any, assert_never

from mappings.lookup_table import Table
from mappings.outcome import RowLocation
from mappings.refusals import Reason, ReasonCode, Refusal, Repaired
from mappings.steps.step import Kind, Run, Step
from mappings.strict import Policy, UsePolicy

UNSET: Any = object()
"""Not worked out yet."""
NOWHERE = RowLocation("")


class RowState:
    """A row being mapped, or one of the events that it stands for. `named` holds the values of `let` as they are first needed.

    `item` and `day` are what tells the event apart, None where nothing does. `cancelled`: the label under which the event
    is called off. `rejected_by`: the
    place under `rows:` of the first rule that rejects the row, 0 if none does.
    """

    __slots__ = (
        "cancelled",
        "cells",
        "day",
        "is_draft",
        "item",
        "named",
        "origin",
        "reasons",
        "rejected_by",
        "warnings",
    )

    def __init__(self, cells: Mapping[str, str], named: int) -> None:
        self.cells = cells
        self.named: list[Any] = [UNSET] * named
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []
        self.is_draft = False
        self.cancelled = ""
        self.origin = NOWHERE
        self.item: Any = None
        self.day: Any = None
        self.rejected_by = 0

    def branch(self, cells: Mapping[str, str]) -> RowState:
        """Return the state of one of the row's events: what is known of the row so far holds for it, too."""
        event = RowState(cells, len(self.named))
        event.reasons, event.warnings = self.reasons.copy(), self.warnings.copy()
        event.is_draft, event.cancelled = self.is_draft, self.cancelled
        event.origin = self.origin
        event.item, event.day = self.item, self.day
        event.rejected_by = self.rejected_by
        return event


Getter = Callable[[RowState], Any]
"""A compiled value: None where it was left out, Refusal raised where it cannot be had."""
Mend = Callable[[RowState, Refusal], Any]
"""What becomes of a refusal: a value to use, None to leave it out, or the refusal again."""


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
    text = cells.get(column, "")
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def cells_reader(columns: Sequence[str]) -> Callable[[Mapping[str, str]], Iterable[str]]:
    """Return what gives the raw texts of some columns, one at least, "" for those that the row does not have."""
    pick = itemgetter(*columns)
    if len(columns) == 1:
        return lambda cells: (cells.get(columns[0], ""),)

    def read(cells: Mapping[str, str]) -> Iterable[str]:
        try:
            found: tuple[str, ...] = pick(cells)
        except KeyError:
            return map(cells.get, columns, repeat(""))
        return found

    return read


def column_reader(column: str) -> Getter:
    """Return the getter of a column's raw text, in NFC, "" where the row has no such cell."""

    def read(row: RowState) -> str:
        text = row.cells.get(column, "")
        return text if text.isascii() else nfc(text)

    return read


def mending(policy: Policy | None, path: str) -> Mend:
    """Compile an author's choice for the value of the event's field `path`."""
    match policy:
        case None:
            return _reject
        case "reject":
            return _reject_finally
        case "omit":
            return _omit
        case "warn":
            return _warning(path)
        case "draft":
            return _drafting(path)
        case UsePolicy():
            return _using(policy, path)
        case _:
            assert_never(policy)


def _reject(_row: RowState, refusal: Refusal) -> Any:
    raise refusal


def _reject_finally(_row: RowState, refusal: Refusal) -> Any:
    refusal = refusal.about("", "", "")
    refusal.is_final = True
    raise refusal


def _omit(_row: RowState, _refusal: Refusal) -> Any:
    return None


def _warning(path: str) -> Mend:
    def warn(row: RowState, refusal: Refusal) -> Any:
        row.warnings.append(refusal.reason(path))

    return warn


def _drafting(path: str) -> Mend:
    def draft(row: RowState, refusal: Refusal) -> Any:
        row.warnings.append(refusal.reason(path))
        row.is_draft = True

    return draft


def _using(policy: UsePolicy, path: str) -> Mend:
    value = policy.use if isinstance(policy.use, str) else list(policy.use)
    is_shown = policy.warn or policy.draft

    def use(row: RowState, refusal: Refusal) -> Any:
        if is_shown:
            row.warnings.append(refusal.reason(path))
        row.is_draft = row.is_draft or policy.draft
        return value

    return use


def required(column: str, hint: str = "") -> Refusal:
    """Return the refusal of an empty value."""
    wanted = hint or (f'fill in the column "{column}"' if column else "a value is needed here")
    return Refusal(ReasonCode.REQUIRED, wanted, column=column)


def nothing_left(column: str, found: object) -> Refusal:
    """Return the refusal of a value of which its steps left nothing; one that was empty before is `required`."""
    if is_empty(found):
        return required(column)
    wanted = (
        f'nothing usable was left of this cell; write another value in the column "{column}"'
        if column
        else "nothing usable was left of this value"
    )
    return Refusal(ReasonCode.REQUIRED, wanted, column=column, found=str(found))


class MisfitError(ValueError):
    """A step that cannot work on what it would get, said to the author."""


def check_fit(step: Step, kind: Kind) -> None:
    """Check that a step may stand where such values reach it, as far as the file tells.

    Raises:
        MisfitError: it works on something else.
    """
    if why := step.misfit(kind):
        raise MisfitError(f'the step "{step.name}" cannot be used here: {why}')
    if Kind.ANY in (step.takes, kind) or step.takes is Kind.LIST or step.takes is kind:
        return
    raise MisfitError(f'the step "{step.name}" works on a {step.takes}, and would get a {kind}')


def guarded(run: Run, takes: Kind) -> Run:
    """Return the same step's function, which looks at each value first: where the file cannot tell what reaches it."""
    if takes not in _FITS:
        return run
    fits, code = _FITS[takes]

    def checked(value: Any) -> Any:
        if not fits(value):
            raise Refusal(code, f"a {takes} is needed here")
        return run(value)

    return checked


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_day(value: Any) -> bool:
    return isinstance(value, date)


def _is_wall(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is None


def _is_moment(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


_FITS: Mapping[Kind, tuple[Callable[[Any], bool], ReasonCode]] = {
    Kind.TEXT: (_is_text, ReasonCode.BAD_TEXT),
    Kind.DATE: (_is_day, ReasonCode.NOT_A_DATE),
    Kind.WALL: (_is_wall, ReasonCode.NOT_A_DATE),
    Kind.MOMENT: (_is_moment, ReasonCode.NOT_A_DATE),
    Kind.NUMBER: (_is_number, ReasonCode.NOT_A_NUMBER),
    Kind.OBJECT: (_is_object, ReasonCode.BAD_TEXT),
}
Walk = Callable[[RowState, Any], Any]
"""A way from what was found to the value."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What is on its way: its kind, and whether there may be several of it."""

    kind: Kind
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """One compiled step. `one` works on one item; `run` on all there is; `mend` is the step's own policy, if it has one;
    `path` the field of the event that the value is for.
    """

    name: str
    one: Run
    run: Run
    is_each: bool
    works_on_empty: bool
    mend: Mend | None
    path: str = ""
    uses_repaired: bool = False


@dataclass(frozen=True, slots=True)
class Ends:
    """How a value's way may end otherwise. `is_empty_chosen`, `is_error_chosen`: the author said what to do."""

    column: str
    on_empty: Mend
    on_error: Mend
    is_empty_chosen: bool = False
    is_error_chosen: bool = False

    def hear(self, row: RowState, refusal: Refusal) -> Any:
        """Return what the author chose for a refusal, unless a choice inside the value is to reject the row."""
        if refusal.is_final:
            raise refusal
        return (self.on_empty if refusal.is_empty else self.on_error)(row, refusal)


Watch = Callable[[str, str, Any, Any], None]
"""Is told, for `explain`, of each step: the field's path, the step, what went in, and what came out (or the Refusal)."""


def watched(stage: CompiledStep, path: str, watch: Watch) -> CompiledStep:
    """Return the same stage, which tells of each use."""

    def told(run: Run) -> Run:
        def tell(value: Any) -> Any:
            try:
                result = run(value)
            except Refusal as refusal:
                watch(path, stage.name, value, refusal.value if isinstance(refusal, Repaired) else refusal)
                raise
            watch(path, stage.name, value, result)
            return result

        return tell

    return replace(stage, run=told(stage.run), one=told(stage.one))


def told_value(get: Getter, name: str, path: str, watch: Watch) -> Getter:
    """Return the same value, which tells of each use what it gave."""

    def value(row: RowState) -> Any:
        try:
            found = get(row)
        except Refusal as refusal:
            if not refusal.column:  # what has a column was told where it was refused
                watch(path, name, None, refusal)
            raise
        watch(path, name, None, found)
        return found

    return value


def compile_step(step: Step, flow: Flow, tables: Mapping[str, Table], path: str) -> tuple[CompiledStep, Flow]:
    """Compile one step for what reaches it, and say what it passes on.

    Raises:
        MisfitError: the step works on something else.
    """
    is_each, works_on_empty = flow.is_list and step.takes is not Kind.LIST, step.works_on_empty
    check_fit(step, flow.kind)
    run = step.compile(tables)
    one = _whole(run) if step.takes is Kind.LIST and not flow.is_list else run
    if flow.kind is Kind.ANY:
        one = guarded(one, step.takes)
    mend = None if step.policy is None else mending(step.policy, path)
    every = _each(one, works_on_empty=works_on_empty) if is_each else one
    stage = CompiledStep(step.name, one, every, is_each, works_on_empty, mend, path, step.policy in (None, "warn", "draft"))
    return stage, _after(step, flow, is_each=is_each)


def stepped(read: Getter, stages: tuple[CompiledStep, ...], ends: Ends) -> Getter:
    """Return the value that `read` gives once it has passed all stages."""
    works_on_empty = any(stage.works_on_empty for stage in stages)
    passed = _passed(stages, ends)

    def value(row: RowState) -> Any:
        try:
            found = read(row)
        except Refusal as refusal:
            if refusal.is_final or not (works_on_empty and refusal.is_empty):
                return ends.hear(row, refusal)
            found = ""
        if not is_empty(found):
            return passed(row, found)
        return passed(row, "") if works_on_empty else ends.on_empty(row, required(ends.column))

    return value


def _passed(stages: tuple[CompiledStep, ...], ends: Ends) -> Walk:
    runs = tuple((stage.run, stage.works_on_empty) for stage in stages)
    careful = _careful(stages, ends)

    def passed(row: RowState, found: Any) -> Any:
        current = found
        try:
            for run, works_on_empty in runs:
                if works_on_empty or not is_empty(current):
                    current = run(current)
        except Refusal:
            return careful(row, found)
        return ends.on_empty(row, nothing_left(ends.column, found)) if is_empty(current) else current

    return passed


def stepped_cell(column: str, stages: tuple[CompiledStep, ...], ends: Ends) -> Getter:
    """Return the same for the text of a column: the hot path of the mapper, with nothing called that need not be."""
    if any(stage.works_on_empty for stage in stages):
        return stepped(column_reader(column), stages, ends)
    runs = tuple(stage.run for stage in stages)
    careful = _careful(stages, ends)

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


def _careful(stages: tuple[CompiledStep, ...], ends: Ends) -> Walk:
    """The same way once more, one stage at a time, so that the refusal names its step and the policies are heard."""

    def walk(row: RowState, found: Any) -> Any:
        current = found
        is_left_out = False
        for stage in stages:
            if stage.works_on_empty or not is_empty(current):
                current = _try_stage(row, stage, current, str(found), ends.column)
                is_left_out = is_left_out or current is None
        if not is_empty(current):
            return current
        return None if is_left_out and not ends.is_empty_chosen else ends.on_empty(row, nothing_left(ends.column, found))

    def careful(row: RowState, found: Any) -> Any:
        try:
            return walk(row, found)
        except Refusal as refusal:
            return ends.hear(row, refusal)

    return careful


def _try_stage(row: RowState, stage: CompiledStep, current: Any, found: str, column: str) -> Any:
    if stage.is_each and isinstance(current, list):
        items = current if stage.works_on_empty else _present(current)
        tried = [_try_one(row, stage, item, str(item), column) for item in items]
        return _present(_flat(tried)) or None
    return _try_one(row, stage, current, found, column)


def _try_one(row: RowState, stage: CompiledStep, item: Any, found: str, column: str) -> Any:
    try:
        return stage.one(item)
    except Repaired as repaired:
        told = repaired.about(column, found, stage.name)
        if stage.mend is None:
            row.warnings.append(told.reason(stage.path))
            return repaired.value
        mended = stage.mend(row, told)
        return repaired.value if stage.uses_repaired else mended
    except Refusal as refusal:
        told = refusal.about(column, found, stage.name)
        if stage.mend is None:
            raise told from refusal
        return stage.mend(row, told)


def _after(step: Step, flow: Flow, *, is_each: bool) -> Flow:
    result = step.result
    if result is Kind.LIST:
        return Flow(step.lists, is_list=True)
    kind = flow.kind if result is Kind.ANY else Kind.ANY if result is Kind.UNKNOWN else result
    return Flow(kind, is_each or step.gives_several)


def _each(one: Run, *, works_on_empty: bool) -> Run:
    def run(items: Any) -> Any:
        if type(items) is not list:
            return one(items)
        results = [one(item) for item in (items if works_on_empty else _present(items))]
        return _present(_flat(results))

    return run


def _flat(results: list[Any]) -> list[Any]:
    return [part for result in results for part in (result if type(result) is list else [result])]


def _present(items: list[Any]) -> list[Any]:
    return [item for item in items if not is_empty(item)]


def _whole(run: Run) -> Run:
    """A list step may meet one text where a list was possible: it counts as a list of one."""
    return lambda value: run(value if type(value) is list else [value])


_MEMO_SIZE = 4096


@dataclass(slots=True)
class Reads:
    """What a value looks at: `columns` of the row, and whether anything besides (the row's place, its day, an item of a list)."""

    columns: set[str] = field(default_factory=set)
    is_more: bool = False

    def add(self, other: Reads) -> None:
        """Take in what a part of the value looks at."""
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
