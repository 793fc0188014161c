"""Parts that all compiled values share: the state of a row, policies for empty or refused values, steps, and the compiler."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

from mappings.lookup_table import Table
from mappings.outcome import RowLocation
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.reasons import Detail, Reason, ReasonCode, Refusal, Repair
from mappings.row_key import NO_KEY, RowKey
from mappings.spec.values import Condition, Value, Valued
from mappings.steps.step import Kind, Run, Step
from mappings.strict import Policy, UsePolicy, union_members

NOWHERE = RowLocation("")
UNSET: Any = object()
"""Marks a value that is not computed yet."""
_MEMO_SIZE = 4096
_MORE = "\0more"
"""Stands in the set of columns that a value reads for everything that is not a cell, such as the row number."""
ROUNDED = re.compile(r"[+-]?\d(?:[.,]\d+)?E[+-]\d+", re.IGNORECASE)
"""A number as a spreadsheet program rounds a long identifier."""
_SHEET_ERROR = re.compile(r"#(?:REF!|N/A|VALUE!|NAME\?|NULL!|DIV/0!|NUM!|#+)")
_CHANGED = "a spreadsheet program has changed it: format the column as text, and put the original identifiers back"


class RowState:
    """The row that is being mapped, or one of its events after `explode` or `recur`.

    `named`: values of `let`, each computed at its first use. `item`, `day`: what distinguishes the events of one row.
    `cancelled`: the label of a cancelled event. `rejected_by`: the place under `rows:` of the first rule that rejects the row.
    `label`, `rule`: the rule that leaves the row out, and its label. `is_refused`: the row cannot be split into events; it is
    mapped on to report all problems, except those of the `muted` columns. `left_out`: by column, the reason why the cell was
    left out, which may explain a missing value.
    """

    is_draft = False
    cancelled = ""
    item: Any = None
    day: Any = None
    rejected_by = 0
    label = ""
    rule = 0
    is_refused = False
    muted: tuple[str, ...] = ()

    def __init__(self, cells: Mapping[str, str], named: int, location: RowLocation = NOWHERE, key: RowKey = NO_KEY) -> None:
        self.cells = cells
        self.named: list[Any] = [UNSET] * named
        self.location = location
        self.key = key
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []
        self.left_out: dict[str, Refusal] = {}

    def event(self, key: RowKey, cells: Mapping[str, str]) -> RowState:
        """Return a new event of this row, with the row's reasons, warnings and labels so far."""
        event = RowState(cells, len(self.named), self.location, key)
        vars(event).update(vars(self) | vars(event))
        event.reasons += self.reasons
        event.warnings += self.warnings
        event.left_out |= self.left_out
        return event

    def refuse(self, refusal: Refusal, muted: tuple[str, ...] = ()) -> list[RowState]:
        """Record that the row cannot be split into events, and return the row itself."""
        self.reasons.append(refusal.reason(""))
        self.is_refused, self.muted = True, muted
        return [self]


Getter = Callable[[RowState], Any]
"""A compiled value: returns None for a value that is left out, raises Refusal for one that cannot be used."""
Holds = Callable[[RowState], bool]
"""A compiled condition: returns whether it is true for a row, raises Refusal if a value in it cannot be used."""
Recover = Callable[[RowState, Refusal], Any]
"""A compiled policy: returns the value to use after a refusal, None to leave it out, or raises the refusal again."""
Watch = Callable[[str, str, Any, Any], None]
"""Called by `explain` for each step with the field's path, the step's name, its input and its output (or the Refusal)."""


def is_empty(value: object) -> bool:
    """Return whether a value is empty and so never sent: None, blank text, an empty list or object."""
    if type(value) is str:
        return not value or value.isspace()
    return value is None or (not value and isinstance(value, list | dict))


def nfc(text: str) -> str:
    """Return a text in Unicode's composed form (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def read_cell(cells: Mapping[str, str], column: str) -> str:
    """Return a cell's text in NFC, "" if the row has no such column."""
    return nfc(cells.get(column, ""))


def required(column: str, hint: str = "") -> Refusal:
    """Return the refusal for an empty value."""
    wanted = hint or (f'fill in the column "{column}"' if column else "a value is needed here")
    return Refusal(ReasonCode.REQUIRED, wanted, column=column)


def refuse_key_part(part: str, column: str, *, optional: bool) -> Refusal | None:
    """Return the refusal of a trimmed text as part of a key, None if it is usable."""
    if not part:
        hint = f'every row needs its identifier in "{column}"'
        return None if optional else required(column, hint)
    if _SHEET_ERROR.fullmatch(part) or ROUNDED.fullmatch(part):
        return Refusal(ReasonCode.BAD_KEY, _CHANGED, column=column, found=part)
    if not part.isascii() and any("\ud800" <= char <= "\udfff" for char in part):
        return Refusal(ReasonCode.BAD_TEXT, "the identifier holds bytes that are not text", column=column)
    return None


def nothing_left(column: str, found: object) -> Refusal:
    """Return the refusal for a value that its steps made empty, or `required` if it was empty from the start."""
    if is_empty(found):
        return required(column)
    what = f'cell; write another value in the column "{column}"' if column else "value"
    hint = f"nothing usable was left of this {what}"
    return Refusal(ReasonCode.REQUIRED, hint, column=column, found=str(found), detail=Detail.UNUSABLE)


def compile_policy(policy: Policy | None, path: str) -> Recover:
    """Compile the author's policy (`on_empty`, `on_error`) for a value of the event's field `path`."""
    value: Any = None
    is_warned, is_draft = policy in {"warn", "draft"}, policy == "draft"
    if isinstance(policy, UsePolicy):
        value = policy.use if isinstance(policy.use, str) else list(policy.use)
        is_warned, is_draft = policy.warn or policy.draft, policy.draft

    def reject(_row: RowState, refusal: Refusal) -> Any:
        raise refusal if policy is None else refusal.as_final()

    def recover(row: RowState, refusal: Refusal) -> Any:
        if is_warned:
            row.warnings.append(refusal.reason(path))
            row.is_draft = row.is_draft or is_draft
        if value is None and refusal.found:
            known = row.left_out.get(refusal.column)
            if known is None or (known.detail is None and refusal.detail is not None):
                row.left_out[refusal.column] = refusal
        return value

    return reject if policy in {None, "reject"} else recover


@dataclass(frozen=True, slots=True)
class Flow:
    """The type of what one step passes to the next: its kind, and whether it may be a list."""

    kind: Kind
    is_list: bool = False


ANYTHING = Flow(Kind.ANY)
"""The flow of a value whose kind depends on the row."""


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """A step compiled to functions: `one` for a single item, `run` for all of a value. `policy`: the step's own policy.

    `path`: the event's field that the value is for.
    """

    step: Step
    path: str
    one: Run
    run: Run
    is_each: bool
    policy: Recover | None

    def recover(self, row: RowState, current: Any, refusal: Refusal, found: str, column: str) -> Any:
        """Apply the step's policy to a refusal, item by item for a list. `found` is the original value that the reason shows."""
        if not (self.is_each and isinstance(current, list)):
            return self._settle(row, refusal, found, column)
        results = []
        for item in current if self.step.works_on_empty else present(current):
            try:
                results.append(self.one(item))
            except Refusal as refused:
                results.append(self._settle(row, refused, str(item), column))
        return present(_flat(results)) or None

    def _settle(self, row: RowState, refusal: Refusal, found: str, column: str) -> Any:
        reported = refusal.about(column, found, self.step.name)
        if self.policy is None and not isinstance(refusal, Repair):
            raise reported from refusal
        if self.policy is None:
            row.warnings.append(reported.reason(self.path))
        recovered = None if self.policy is None else self.policy(row, reported)
        # A repaired value is used unless the author chose to do without it.
        return refusal.value if isinstance(refusal, Repair) and self.step.policy in (None, "warn", "draft") else recovered


def _flat(results: list[Any]) -> list[Any]:
    return [part for result in results for part in (result if type(result) is list else [result])]


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, another value as a list of one, and None as an empty list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def present(items: list[Any]) -> list[Any]:
    """Return the items that are not empty."""
    return [item for item in items if not is_empty(item)]


_CHECKS: Mapping[Kind, tuple[Callable[[Any], bool], ReasonCode]] = {
    Kind.TEXT: (lambda value: type(value) is str, ReasonCode.BAD_TEXT),
    Kind.DATE: (lambda value: isinstance(value, date), ReasonCode.NOT_A_DATE),
    Kind.WALL: (lambda value: isinstance(value, datetime) and value.tzinfo is None, ReasonCode.NOT_A_DATE),
    Kind.MOMENT: (lambda value: isinstance(value, datetime) and value.tzinfo is not None, ReasonCode.NOT_A_DATE),
    Kind.NUMBER: (lambda value: isinstance(value, int | Decimal) and not isinstance(value, bool), ReasonCode.NOT_A_NUMBER),
    Kind.OBJECT: (lambda value: isinstance(value, Mapping), ReasonCode.BAD_TEXT),
}
"""Checks made for each row when the kind of a step's input is not known from the file: the test, and the reason's code."""


def compile_step(
    step: Step, flow: Flow, tables: Mapping[str, Table], path: str, watch: Watch | None = None
) -> tuple[CompiledStep, Flow]:
    """Compile one step for the kind of its input, and return it with the kind of its output; `watch` is called on each use."""
    compiled, takes_list = step.compile(tables), step.takes is Kind.LIST
    is_each, works_on_empty = flow.is_list and not takes_list, step.works_on_empty
    fits, code = _CHECKS[step.takes] if flow.kind is Kind.ANY and step.takes in _CHECKS else (None, None)

    def one(value: Any) -> Any:
        if takes_list and type(value) is not list:  # one text where a list was possible counts as a list of one
            value = [value]
        if fits is not None and code is not None and not fits(value):
            raise Refusal(code, f"a {step.takes} is needed here")
        return compiled(value)

    def each(items: Any) -> Any:
        if type(items) is not list:
            return single(items)
        return present(_flat([single(item) for item in (items if works_on_empty else present(items))]))

    single = one if fits is not None or (takes_list and not flow.is_list) else compiled
    one_and_all = (single, each if is_each else single)
    if watch is not None:
        one_and_all = (_watched(one_and_all[0], step.name, path, watch), _watched(one_and_all[1], step.name, path, watch))
    policy = None if step.policy is None else compile_policy(step.policy, path)
    result = CompiledStep(step, path, *one_and_all, is_each, policy)
    if step.result is Kind.LIST:
        return result, Flow(flow.kind if takes_list else step.lists, is_list=True)
    kind = flow.kind if step.result is Kind.ANY else Kind.ANY if step.result is Kind.UNKNOWN else step.result
    return result, Flow(kind, is_each or step.gives_several)


def _watched(call: Callable[[Any], Any], name: str, path: str, watch: Watch, *, is_step: bool = True) -> Callable[[Any], Any]:
    """Wrap a compiled step or value so that each use is reported to `watch`."""

    def watched(given: Any) -> Any:
        goes_in = given if is_step else None
        try:
            result = call(given)
        except Refusal as refusal:
            if is_step or not refusal.column:  # what has a column was reported where it was refused
                watch(path, name, goes_in, refusal.value if isinstance(refusal, Repair) else refusal)
            raise
        watch(path, name, goes_in, result)
        return result

    return watched


def stepped(
    read: Getter | str, steps: tuple[CompiledStep, ...], recover: Recover, column: str, source: str, *, is_empty_chosen: bool
) -> Getter:
    """Return a getter that reads a value or a column and applies all steps.

    `column`, `source`: the column and the step's name in refusals of the read. `is_empty_chosen`: the file has an `on_empty`.
    """
    works_on_empty = any(one.step.works_on_empty for one in steps)
    cell, get = (read, None) if isinstance(read, str) else ("", read)
    runs = [(one, one.run) for one in steps]

    def value(row: RowState) -> Any:
        if get is None:
            found: Any = row.cells.get(cell, "")
            found = found if found.isascii() else nfc(found)
            is_nothing = not found or found.isspace()
        else:
            try:
                found = get(row)
            except Refusal as refusal:
                if refusal.is_final or not (works_on_empty and refusal.is_empty):
                    return recover(row, refusal.about(column, "", source) if source else refusal)
                found = ""
            is_nothing = is_empty(found)
        if is_nothing:
            if not works_on_empty:
                return recover(row, required(column))
            found = ""
        current, is_left_out = found, False
        try:
            for one, run in runs:
                if is_nothing and not one.step.works_on_empty:
                    continue
                try:
                    current = run(current)
                except Refusal as refusal:
                    current = one.recover(row, current, refusal, str(found), column)
                    is_left_out = is_left_out or current is None
                is_nothing = (not current or current.isspace()) if type(current) is str else is_empty(current)
        except Refusal as refusal:
            return recover(row, refusal)
        if not is_nothing:
            return current
        return None if is_left_out and not is_empty_chosen else recover(row, nothing_left(column, found))

    return value


def remembered(get: Getter, settle: Callable[[Any], Any], columns: frozenset[str]) -> Getter:
    """Return a getter that caches the settled value by the cells that it reads: days and places recur (budget 3).

    Rows with warnings or refusals are not cached, since each row must record its own.
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
        if key is not UNSET and not (row.warnings or row.reasons or row.left_out):
            if len(known) >= _MEMO_SIZE:
                known.clear()
            known[key] = found
        return found

    return value


@dataclass(frozen=True, slots=True)
class CompiledValue:
    """A compiled value. `column`: the column to name in reasons; `constant`: its text if it is the same in every row.

    `is_cell`: it is the raw text of that column. `reads`: the columns whose cells alone determine it, None if other input does
    too. `refuses`: reading it may raise a Refusal.
    """

    get: Getter
    flow: Flow = ANYTHING
    column: str = ""
    constant: str | None = None
    is_cell: bool = False
    reads: frozenset[str] | None = None
    refuses: bool = True

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same in every row."""
        return self.reads is not None and not self.reads


def first_column(parts: Iterable[CompiledValue]) -> str:
    """Return the first column that any of these values reads, "" if none does."""
    return next((part.column for part in parts if part.column), "")


def combined(get: Getter, parts: Sequence[CompiledValue], flow: Flow | None = None) -> CompiledValue:
    """Return the compiled value of a getter that is computed from `parts`."""
    flows = {part.flow for part in parts}
    common = flows.pop() if len(flows) == 1 else ANYTHING
    return CompiledValue(get, flow or common, first_column(parts), refuses=any(part.refuses for part in parts))


_REPORTED = {"first_of", "choose", "at", "in_zone", "plus", "lookup", "join", "channel"}
_WORDS = {model: word for word, model in union_members(Value).items() if word in _REPORTED}
"""Names of the kinds of values that `explain` reports in addition to steps."""
ValueCompiler = Callable[["Compiler", Any, ValuePosition], CompiledValue]
"""A function that compiles one kind of value."""


@dataclass(slots=True)
class Compiler:
    """The compiler of one mapping. It collects `problems`, and in `columns` every column that is read."""

    let: Mapping[str, Value]
    tables: Mapping[str, Table]
    channels: Mapping[str, int] | None
    compilers: Mapping[type, ValueCompiler]
    """The compiler function of each type of value."""
    compile_condition: Callable[[Compiler, Condition, Loc], Holds]
    watch: Watch | None = None
    as_of: datetime | None = None
    given: dict[str, CompiledValue] = field(default_factory=dict)
    """Values that rules provide for each event of a row: `$item` and `$day`."""
    loops: dict[str, CompiledValue] = field(default_factory=dict)
    """The current item of each enclosing `for_each`, by its name."""
    run_dates: set[str] = field(default_factory=set)
    """The days of the run that values use, one for each zone; "" if the time of the run was not given."""
    reads_row_number: bool = False
    problems: list[MappingProblem] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    _named: dict[str, CompiledValue] = field(default_factory=dict)
    _items: int = 0
    _reads: set[str] = field(default_factory=set)
    """The columns that the value being compiled reads; includes `_MORE` if it depends on anything else."""

    @property
    def named_count(self) -> int:
        """How many named values and loop items a row stores."""
        return len(self.let) + self._items

    def value(self, value: Value, spot: ValuePosition) -> CompiledValue:
        """Compile a value that is not an object, an image or a list of objects; those are compiled by the payload."""
        outer, self._reads = self._reads, set()
        compiled = self.operand(value, spot) if isinstance(value, str) else self.compilers[type(value)](self, value, spot)
        reads = None if _MORE in self._reads else frozenset(self._reads)
        self._reads |= outer
        get = compiled.get
        if self.watch is not None and type(value) in _WORDS:
            get = _watched(get, _WORDS[type(value)], spot.path, self.watch, is_step=False)
        return replace(compiled, get=get, reads=reads)

    def values(self, values: Sequence[Value], spot: ValuePosition) -> list[CompiledValue]:
        """Compile each value of a list."""
        return [self.value(value, spot.inner(place)) for place, value in enumerate(values)]

    def condition(self, condition: Condition, loc: Loc) -> Holds:
        """Compile one condition."""
        return self.compile_condition(self, condition, loc)

    def misfit(self, spot: ValuePosition, message: str, hint: str = "") -> CompiledValue:
        """Record a problem of the mapping file, and return a placeholder value."""
        self.problems.append(MappingProblem(spot.loc, message, hint))
        return CompiledValue(nothing)

    def look_further(self) -> None:
        """Record that the value being compiled depends on more than the row's cells, so that it cannot be cached by them."""
        self._reads.add(_MORE)

    def column(self, name: str) -> CompiledValue:
        """Return the compiled value for a column's raw text."""
        self.columns.add(name)
        self._reads.add(name)
        return CompiledValue(lambda row: nfc(row.cells.get(name, "")), Flow(Kind.TEXT), name, is_cell=True, refuses=False)

    def reference(self, name: str, spot: ValuePosition) -> CompiledValue:
        """Return the compiled value of a name under `let`; it is compiled at its first use and computed once per row."""
        if name in self.loops or name in self.given:
            self.look_further()
            return self.loops[name] if name in self.loops else self.given[name]
        if name not in self.let:
            return self.misfit(spot, unknown_name(name), "define it under let")
        if name not in self._named:
            outer, self.loops = self.loops, {}
            compiled = self.value(self.let[name], ValuePosition(("let", name), f"${name}"))
            self.loops = outer
            get = _once_a_row(len(self._named), compiled.get)
            self._named[name] = CompiledValue(get, compiled.flow, compiled.column, reads=compiled.reads)
        known = self._named[name]
        self._reads |= {_MORE} if known.reads is None else known.reads
        return known

    def item(self, flow: Flow, column: str) -> tuple[int, CompiledValue]:
        """Reserve a slot for the current item of a loop; return the slot's index and the compiled value that reads it."""
        place = self.named_count
        self._items += 1
        return place, CompiledValue(lambda row: row.named[place], flow, column)

    def operand(self, text: str, spot: ValuePosition) -> CompiledValue:
        """Compile a text of the file: `$name` is a named value, any other text a constant."""
        return self.reference(text[1:], spot) if is_reference(text) else constant(text.removeprefix("$"))

    def compile_policies(self, value: Valued, spot: ValuePosition) -> Recover:
        """Compile the author's policies for a value that is empty or refused; what an inner policy made final is raised again."""
        on_empty = compile_policy("omit" if spot.may_be_empty and value.on_empty is None else value.on_empty, spot.path)
        on_error = compile_policy(value.on_error, spot.path)

        def recover(row: RowState, refusal: Refusal) -> Any:
            if refusal.is_final:
                raise refusal
            return (on_empty if refusal.is_empty else on_error)(row, refusal)

        return recover

    def finish(self, value: Valued, source: CompiledValue, spot: ValuePosition, name: str = "") -> CompiledValue:
        """Compile a value's steps and policies around its compiled source. `name`: the step's name in refusals of the source."""
        compiled: list[CompiledStep] = []
        flow, refuses, steps = source.flow, source.refuses, getattr(value, "do", None)
        for position, step in enumerate(steps or ()):
            is_known = flow.kind is not Kind.ANY
            refuses = refuses or step.leaves_refusals or (not is_known and step.policy is None)
            why = step.misfit(flow.kind)
            if not why and is_known and step.takes not in (Kind.LIST, Kind.ANY, flow.kind):
                why = f"it works on a {step.takes}, and would get a {flow.kind}"
            if why:
                return self.misfit(spot.inner("do", position), f'the step "{step.name}" cannot be used here: {why}')
            one, flow = compile_step(step, flow, self.tables, spot.path, self.watch)
            compiled.append(one)
            if step.on_error is not None and not step.refuses and is_known:
                message = f'on_error never applies: the step "{step.name}" refuses nothing'
                self.misfit(spot.inner("do", position, "on_error"), message, "leave it out")
        if value.on_error is not None and not refuses:
            hint = "leave it out" if steps else "for an empty value write on_empty"
            self.misfit(spot.inner("on_error"), "on_error never applies: nothing can refuse this value", hint)
        read: Getter | str = source.column if source.is_cell else source.get
        if source.is_cell and self.watch is not None:
            read = _watched(source.get, f"from {source.column}", spot.path, self.watch, is_step=False)
        is_empty_chosen, recover = value.on_empty is not None, self.compile_policies(value, spot)
        get = stepped(read, tuple(compiled), recover, source.column, name, is_empty_chosen=is_empty_chosen)
        return CompiledValue(get, flow, source.column, refuses=refuses and (steps is None or value.on_error is None))


def unknown_name(name: str) -> str:
    return f'unknown name "${name}"'


def nothing(_row: RowState) -> Any:
    """Return None: the getter that replaces a value with a mistake."""
    return None


def constant(text: str) -> CompiledValue:
    """Return the compiled value for a constant text."""
    text = nfc(text)
    return CompiledValue(lambda _row: text, Flow(Kind.TEXT), constant=text, refuses=False)


def is_reference(text: str) -> bool:
    """Return whether a text is a reference `$name`; `$$` at the beginning stands for a plain `$`."""
    return text.startswith("$") and not text.startswith("$$")


def lenient(get: Getter) -> Getter:
    """Return a getter that gives None instead of refusing an empty value."""

    def value(row: RowState) -> Any:
        try:
            found = get(row)
        except Refusal as refusal:
            if refusal.is_empty and not refusal.is_final:
                return None
            raise
        return None if is_empty(found) else found

    return value


def _once_a_row(place: int, get: Getter) -> Getter:
    def value(row: RowState) -> Any:
        known = row.named[place]
        if known is UNSET:
            try:
                known = get(row)
            except Refusal as refusal:
                known = refusal
            row.named[place] = known
        if type(known) is Refusal:
            raise known.with_traceback(None)
        return known

    return value


def once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons without repetitions: one for each problem of a cell, even if several fields read the cell."""
    first: dict[tuple[str, ...], Reason] = {}
    for reason in reasons:
        where = (reason.column, reason.step) if reason.column else ("", "", reason.field)
        first.setdefault((reason.code, reason.value or reason.found, *where), reason)
    return tuple(first.values())
