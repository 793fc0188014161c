"""What all compiled values share: the state of a row, the author's policies, steps, and the compiler of one mapping."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

from mappings.lookup_table import Table
from mappings.outcome import RowLocation, Silence
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.reasons import Detail, Reason, ReasonCode, Refusal, Repair
from mappings.row_key import NO_KEY, RowKey
from mappings.spec.values import Condition, Value, Valued
from mappings.steps.step import Kind, Run, Step
from mappings.strict import Policy, UsePolicy, union_members

NOWHERE = RowLocation("")
UNSET: Any = object()
"""Not computed yet."""
_MEMO_SIZE = 4096
_MORE = "\0more"
"""Among the columns that a value reads: something that is no cell of the row."""


class RowState:
    """A row being mapped, or one of the events that it stands for. `named` holds the values of `let` as they are first needed.

    `item` and `day` distinguish the events of one row. `cancelled`: the label under which the event is called off.
    `rejected_by`: the place under `rows:` of the first rule that rejects the row; `label` and `rule`: why and by which rule it is
    left out. `is_refused`: its events cannot be read; it goes on so that all problems are reported at once, but for those of
    the columns that are `muted`, which are reported already. `silence`: what the row says nothing of. `left_out`: what made the
    author's choices leave out the cell of a column, which may be the true reason why a value is missing.
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
    silence: Silence | None = None

    def __init__(self, cells: Mapping[str, str], named: int, location: RowLocation = NOWHERE, key: RowKey = NO_KEY) -> None:
        self.cells = cells
        self.named: list[Any] = [UNSET] * named
        self.location = location
        self.key = key
        self.reasons: list[Reason] = []
        self.warnings: list[Reason] = []
        self.left_out: dict[str, Refusal] = {}

    def event(self, key: RowKey, cells: Mapping[str, str]) -> RowState:
        """Return one of the row's events: what is known of the row so far holds for it, too."""
        event = RowState(cells, len(self.named), self.location, key)
        vars(event).update(vars(self) | vars(event))
        event.reasons += self.reasons
        event.warnings += self.warnings
        event.left_out |= self.left_out
        return event

    def refuse(self, refusal: Refusal, muted: tuple[str, ...] = ()) -> list[RowState]:
        """Note that the events of the row cannot be read; it stands for itself then."""
        self.reasons.append(refusal.reason(""))
        self.is_refused, self.muted = True, muted
        return [self]


Getter = Callable[[RowState], Any]
"""A compiled value: None where it was left out, Refusal raised where it cannot be had."""
Holds = Callable[[RowState], bool]
"""A compiled condition. Raises Refusal where the value it looks at is unusable."""
Recover = Callable[[RowState, Refusal], Any]
"""What becomes of a refusal: a value to use, None to leave it out, or the refusal again."""
Watch = Callable[[str, str, Any, Any], None]
"""Called, for `explain`, for each step: the field's path, the step, what went in, and what came out (or the Refusal)."""


def is_empty(value: object) -> bool:
    """True for what is never sent: nothing, blank text, an empty list or object."""
    if type(value) is str:
        return not value or value.isspace()
    return value is None or (not value and isinstance(value, list | dict))


def nfc(text: str) -> str:
    """Return the text in Unicode's composed form."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def read_cell(cells: Mapping[str, str], column: str) -> str:
    """Return a cell's text in NFC, "" where the row has no such cell."""
    return nfc(cells.get(column, ""))


def required(column: str, hint: str = "") -> Refusal:
    """Return the refusal of an empty value."""
    wanted = hint or (f'fill in the column "{column}"' if column else "a value is needed here")
    return Refusal(ReasonCode.REQUIRED, wanted, column=column)


def nothing_left(column: str, found: object) -> Refusal:
    """Return the refusal of a value of which its steps left nothing; one that was empty before is `required`."""
    if is_empty(found):
        return required(column)
    what = f'cell; write another value in the column "{column}"' if column else "value"
    hint = f"nothing usable was left of this {what}"
    return Refusal(ReasonCode.REQUIRED, hint, column=column, found=str(found), detail=Detail.UNUSABLE)


def blamed(reason: Reason, row: RowState) -> Reason:
    """Return why a value is missing: a cell that is not empty was left out, or gave nothing."""
    if reason.code is not ReasonCode.REQUIRED:
        return reason
    cause = row.left_out.get(reason.column)
    column, cell = (cause.column, cause.found) if cause else (reason.column, read_cell(row.cells, reason.column).strip())
    if not cell or (reason.found and not cause):
        return reason
    found = replace(nothing_left(column, cell).reason(reason.field), step=reason.step)
    return replace(found, detail=cause.detail or cause.code, particulars=cause.particulars) if cause else found


def compile_policy(policy: Policy | None, path: str) -> Recover:
    """Compile an author's choice for the value of the event's field `path`."""
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
class ValuePolicies:
    """What the author chose for a value that is empty or refused; `is_empty_chosen`: on_empty stands in the file."""

    column: str
    on_empty: Recover
    on_error: Recover
    is_empty_chosen: bool = False

    def apply(self, row: RowState, refusal: Refusal) -> Any:
        """Return what the author chose for a refusal, unless a choice inside the value is to reject the row."""
        if refusal.is_final:
            raise refusal
        return (self.on_empty if refusal.is_empty else self.on_error)(row, refusal)


@dataclass(frozen=True, slots=True)
class Flow:
    """What passes between steps: its kind, and whether there may be several of it."""

    kind: Kind
    is_list: bool = False


ANYTHING = Flow(Kind.ANY)
"""What is known of a value that may be of several kinds."""


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """One step as functions: `one` works on one item, `run` on all there is; `policy` is the step's own policy, if it has one.

    `path`: the field of the event that the value is for.
    """

    step: Step
    path: str
    one: Run
    run: Run
    is_each: bool
    policy: Recover | None

    def recover(self, row: RowState, current: Any, refusal: Refusal, found: str, column: str) -> Any:
        """Apply the step's policy to what it refused, of a list to each item; what was `found` in the column is reported."""
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
    """Return a list as it is, one thing as a list of one, and nothing as an empty list."""
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
"""What is checked row by row where the file does not say what reaches a step."""


def compile_step(
    step: Step, flow: Flow, tables: Mapping[str, Table], path: str, watch: Watch | None = None
) -> tuple[CompiledStep, Flow]:
    """Compile one step for what reaches it, and return what it passes on; each use is reported to `watch`."""
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
        return result, Flow(step.lists, is_list=True)
    kind = flow.kind if step.result is Kind.ANY else Kind.ANY if step.result is Kind.UNKNOWN else step.result
    return result, Flow(kind, is_each or step.gives_several)


def _watched(call: Callable[[Any], Any], name: str, path: str, watch: Watch, *, is_step: bool = True) -> Callable[[Any], Any]:
    """Return the same step, or value of a row, each use of which is reported."""

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


def stepped(read: Getter | str, steps: tuple[CompiledStep, ...], policies: ValuePolicies, source: str = "") -> Getter:
    """Return what a getter gives, or the text of a column, once it has passed all steps; `source` names what refuses it."""
    works_on_empty = any(one.step.works_on_empty for one in steps)
    cell, get = (read, None) if isinstance(read, str) else ("", read)
    column = policies.column

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
                    return policies.apply(row, refusal.about(column, "", source) if source else refusal)
                found = ""
            is_nothing = is_empty(found)
        if is_nothing:
            if not works_on_empty:
                return policies.on_empty(row, required(column))
            found = ""
        current, is_left_out = found, False
        try:
            for one in steps:
                if is_nothing and not one.step.works_on_empty:
                    continue
                try:
                    current = one.run(current)
                except Refusal as refusal:
                    current = one.recover(row, current, refusal, str(found), column)
                    is_left_out = is_left_out or current is None
                is_nothing = (not current or current.isspace()) if type(current) is str else is_empty(current)
        except Refusal as refusal:
            return policies.apply(row, refusal)
        if not is_nothing:
            return current
        return None if is_left_out and not policies.is_empty_chosen else policies.on_empty(row, nothing_left(column, found))

    return value


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
        if key is not UNSET and not (row.warnings or row.reasons or row.left_out):
            if len(known) >= _MEMO_SIZE:
                known.clear()
            known[key] = found
        return found

    return value


@dataclass(frozen=True, slots=True)
class CompiledValue:
    """A compiled value: what gives it, of what kind, the column a person would look at, its text if it is constant.

    `is_cell`: it is that column's raw text. `reads`: the columns whose cells alone decide it, None where more does. `refuses`:
    it may be there and unusable, as far as the file says.
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
        """Whether it is the same in every row."""
        return self.reads is not None and not self.reads


def first_column(parts: Iterable[CompiledValue]) -> str:
    """Return the first column that one of several values reads, "" if none does."""
    return next((part.column for part in parts if part.column), "")


def combined(get: Getter, parts: Sequence[CompiledValue], flow: Flow | None = None) -> CompiledValue:
    """Return the value that a function makes of others."""
    flows = {part.flow for part in parts}
    common = flows.pop() if len(flows) == 1 else ANYTHING
    return CompiledValue(get, flow or common, first_column(parts), refuses=any(part.refuses for part in parts))


_REPORTED = {"first_of", "choose", "at", "in_zone", "lookup", "join", "channel"}
_WORDS = {model: word for word, model in union_members(Value).items() if word in _REPORTED}
"""The kinds of values that `explain` reports, beside their steps."""
ValueCompiler = Callable[["Compiler", Any, ValuePosition], CompiledValue]
"""Compiles one kind of value."""


@dataclass(slots=True)
class Compiler:
    """One mapping being compiled. `problems` collects what cannot be, `columns` every column that is read."""

    let: Mapping[str, Value]
    tables: Mapping[str, Table]
    channels: Mapping[str, int] | None
    compilers: Mapping[type, ValueCompiler]
    """What compiles each kind of value."""
    compile_condition: Callable[[Compiler, Condition, Loc], Holds]
    watch: Watch | None = None
    as_of: datetime | None = None
    given: dict[str, CompiledValue] = field(default_factory=dict)
    """What each event of a row knows besides: $item and $day."""
    loops: dict[str, CompiledValue] = field(default_factory=dict)
    """The items of the lists whose `give` is being compiled, by their names."""
    run_dates: set[str] = field(default_factory=set)
    """The days of the run that values are, each as the zone of its value has it; "" where the moment of the run was not said."""
    reads_row_number: bool = False
    problems: list[MappingProblem] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    _named: dict[str, CompiledValue] = field(default_factory=dict)
    _items: int = 0
    _reads: set[str] = field(default_factory=set)
    """The columns that the value being compiled reads; with `_MORE`, not they alone decide it."""

    @property
    def named_count(self) -> int:
        """How many named values a row keeps."""
        return len(self.let) + self._items

    def value(self, value: Value, spot: ValuePosition) -> CompiledValue:
        """Compile a value that gives one thing: objects, images and lists of objects have their place in the payload only."""
        outer, self._reads = self._reads, set()
        compiled = self.operand(value, spot) if isinstance(value, str) else self.compilers[type(value)](self, value, spot)
        reads = None if _MORE in self._reads else frozenset(self._reads)
        self._reads |= outer
        get = compiled.get
        if self.watch is not None and type(value) in _WORDS:
            get = _watched(get, _WORDS[type(value)], spot.path, self.watch, is_step=False)
        return replace(compiled, get=get, reads=reads)

    def values(self, values: Sequence[Value], spot: ValuePosition) -> list[CompiledValue]:
        """Compile several values that stand in a list."""
        return [self.value(value, spot.inner(place)) for place, value in enumerate(values)]

    def condition(self, condition: Condition, loc: Loc) -> Holds:
        """Compile one condition."""
        return self.compile_condition(self, condition, loc)

    def misfit(self, spot: ValuePosition, message: str, hint: str = "") -> CompiledValue:
        """Note a problem; what is returned is never used."""
        self.problems.append(MappingProblem(spot.loc, message, hint))
        return CompiledValue(nothing)

    def look_further(self) -> None:
        """Note that the value being compiled looks at more than the row's cells: it may differ where they do not."""
        self._reads.add(_MORE)

    def column(self, name: str) -> CompiledValue:
        """Return the value of a column's raw text."""
        self.columns.add(name)
        self._reads.add(name)
        return CompiledValue(lambda row: nfc(row.cells.get(name, "")), Flow(Kind.TEXT), name, is_cell=True, refuses=False)

    def reference(self, name: str, spot: ValuePosition) -> CompiledValue:
        """Return a named value, computed once a row; compiled at its first use."""
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
        """Make room for one item at a time of a list: its place among the named values of a row, and its value."""
        place = self.named_count
        self._items += 1
        return place, CompiledValue(lambda row: row.named[place], flow, column)

    def operand(self, text: str, spot: ValuePosition) -> CompiledValue:
        """Return what a text in the file means: a named value, or itself."""
        return self.reference(text[1:], spot) if is_reference(text) else constant(text.removeprefix("$"))

    def policies(self, value: Any, spot: ValuePosition, column: str) -> ValuePolicies:
        """Compile the author's choices for a value that is empty or refused."""
        is_chosen = value.on_empty is not None
        on_empty = compile_policy("omit" if spot.may_be_empty and not is_chosen else value.on_empty, spot.path)
        return ValuePolicies(column, on_empty, compile_policy(value.on_error, spot.path), is_chosen)

    def finish(self, value: Valued, source: CompiledValue, spot: ValuePosition, name: str = "") -> CompiledValue:
        """Pass what a value reads through its steps and the author's choices; what refuses a source is the step `name`."""
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
            hint = "leave it out" if steps else "on_empty says what becomes of nothing"
            self.misfit(spot.inner("on_error"), "on_error never applies: nothing can refuse this value", hint)
        read: Getter | str = source.column if source.is_cell else source.get
        if source.is_cell and self.watch is not None:
            read = _watched(source.get, f"from {source.column}", spot.path, self.watch, is_step=False)
        get = stepped(read, tuple(compiled), self.policies(value, spot, source.column), name)
        return CompiledValue(get, flow, source.column, refuses=refuses and (steps is None or value.on_error is None))


def unknown_name(name: str) -> str:
    """Return the message about a named value that is not defined."""
    return f'unknown name "${name}"'


def nothing(_row: RowState) -> Any:
    """The getter of a value that could not be compiled."""
    return None


def constant(text: str) -> CompiledValue:
    """Return a value that is the same for every row."""
    text = nfc(text)
    return CompiledValue(lambda _row: text, Flow(Kind.TEXT), constant=text, refuses=False)


def is_reference(text: str) -> bool:
    """True for `$name`; `$$` at the beginning is a plain `$`."""
    return text.startswith("$") and not text.startswith("$$")


def lenient(get: Getter) -> Getter:
    """Return the same value, with None where there is nothing."""

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
    """Report each problem of a cell once, however many fields it spoils."""
    first: dict[tuple[str, ...], Reason] = {}
    for reason in reasons:
        where = (reason.column, reason.step) if reason.column else ("", "", reason.field)
        first.setdefault((reason.code, reason.found, *where), reason)
    return tuple(first.values())
