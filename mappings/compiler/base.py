"""The compiler of one mapping: compiled values, the named values of `let`, and the problems found on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from mappings.compiler.conditions import Holds, compile_condition, untimely
from mappings.compiler.evaluation import (
    UNSET,
    CompiledStep,
    Flow,
    Getter,
    MisfitError,
    Reads,
    RowState,
    ValuePolicies,
    Watch,
    column_reader,
    compile_policy,
    compile_step,
    is_empty,
    nfc,
    required,
    stepped,
    stepped_cell,
    watched_value,
)
from mappings.lookup_table import Table
from mappings.positions import Loc, MappingProblem, ValuePosition
from mappings.refusals import Refusal
from mappings.spec.values import At, ChannelValue, Choose, Condition, FirstOf, InZoneValue, JoinedText, TableValue, Value
from mappings.steps.catalogue import AnyStep
from mappings.steps.step import Kind
from mappings.strict import Policy

ANYTHING = Flow(Kind.ANY)
"""What is known of a value that may be of several kinds."""


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


_REPORTED: Mapping[type[object], str] = {
    FirstOf: "first_of",
    Choose: "choose",
    At: "at",
    InZoneValue: "in_zone",
    TableValue: "lookup",
    JoinedText: "join",
    ChannelValue: "channel",
}
"""The kinds of values that `explain` reports, beside their steps."""
CompileValue = Callable[["Compiler", Value, ValuePosition], CompiledValue]


@dataclass(slots=True)
class Compiler:
    """One mapping being compiled. `problems` collects what cannot be, `columns` every column that is read."""

    let: Mapping[str, Value]
    tables: Mapping[str, Table]
    channels: Mapping[str, int] | None
    compile_value: CompileValue
    watch: Watch | None = None
    given: Mapping[str, CompiledValue] = field(default_factory=dict)
    """What each event of a row knows besides: $item and $day."""
    as_of: datetime | None = None
    loops: dict[str, CompiledValue] = field(default_factory=dict)
    """The items of the lists that are being gone through where a value is compiled, by their names."""
    days_asked: set[str] = field(default_factory=set)
    """The days of the run that values are, each as the zone of its value has it; "" where the moment of the run was not said."""
    asks_the_line: bool = False
    """Whether a value is the row's place in its source."""
    problems: list[MappingProblem] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    _named: dict[str, CompiledValue] = field(default_factory=dict)
    _items: int = 0
    _under_way: list[str] = field(default_factory=list)
    _reads: Reads = field(default_factory=Reads)
    """What the value being compiled looks at."""

    @property
    def named_count(self) -> int:
        """How many named values a row keeps."""
        return len(self.let) + self._items

    def value(self, value: Value, spot: ValuePosition) -> CompiledValue:
        """Compile one value."""
        outer, self._reads = self._reads, Reads()
        compiled = self.compile_value(self, value, spot)
        inner, self._reads = self._reads, outer
        outer.add(inner)
        compiled = replace(compiled, reads=None if inner.is_more else frozenset(inner.columns))
        name = _REPORTED.get(type(value), "")
        if self.watch is None or not name:
            return compiled
        return replace(compiled, get=watched_value(compiled.get, name, spot.path, self.watch))

    def misfit(self, spot: ValuePosition, message: str, hint: str = "") -> CompiledValue:
        """Note a problem; what is returned is never used."""
        self.problems.append(MappingProblem(spot.loc, message, hint))
        return CompiledValue(nothing)

    def look_further(self) -> None:
        """Note that the value being compiled looks at more than the row's cells: it may differ where they do not."""
        self._reads.is_more = True

    def column(self, name: str) -> CompiledValue:
        """Return the value of a column's raw text."""
        self.columns.add(name)
        self._reads.columns.add(name)
        return CompiledValue(column_reader(name), Flow(Kind.TEXT), name, is_cell=True, refuses=False)

    def reference(self, name: str, spot: ValuePosition) -> CompiledValue:
        """Return a named value, computed once a row; compiled at its first use."""
        if name in self.loops:
            self.look_further()
            return self.loops[name]
        if name in self._under_way:
            circle = [*self._under_way[self._under_way.index(name) :], name]
            return self.misfit(spot, f"the named values go in a circle: {' -> '.join('$' + each for each in circle)}")
        if name in self.given:
            self.look_further()
            return self.given[name]
        if name not in self.let:
            return self.misfit(spot, unknown_name(name), "define it under let")
        if name not in self._named:
            self._under_way.append(name)
            outer, self.loops = self.loops, {}
            compiled = self.value(self.let[name], ValuePosition(("let", name), f"${name}"))
            self.loops = outer
            self._under_way.pop()
            get = _once_a_row(len(self._named), compiled.get)
            self._named[name] = CompiledValue(get, compiled.flow, compiled.column, reads=compiled.reads)
        known = self._named[name]
        self._reads.add(Reads(set(known.reads or ()), known.reads is None))
        return known

    def item(self, flow: Flow, column: str) -> tuple[int, CompiledValue]:
        """Make room for one item at a time of a list: its place among the named values of a row, and its value."""
        place = self.named_count
        self._items += 1
        return place, CompiledValue(lambda row: row.named[place], flow, column)

    def source(self, text: str, spot: ValuePosition) -> CompiledValue:
        """Return what `from` names: a column, or a named value."""
        if is_reference(text):
            return self.reference(text[1:], spot)
        return self.column(unescape_dollar(text))

    def ends(self, value: Any, spot: ValuePosition, column: str) -> ValuePolicies:
        """Compile the author's choices for a value that is empty or refused."""
        on_empty: Policy | None = value.on_empty
        chosen = on_empty is not None
        return ValuePolicies(
            column,
            compile_policy("omit" if spot.may_be_empty and not chosen else on_empty, spot.path),
            compile_policy(value.on_error, spot.path),
            is_empty_chosen=chosen,
            is_error_chosen=value.on_error is not None,
        )

    def through(
        self, source: CompiledValue, steps: tuple[AnyStep, ...], ends: ValuePolicies, spot: ValuePosition
    ) -> CompiledValue:
        """Pass a value through steps."""
        stages: list[CompiledStep] = []
        flow, refuses = source.flow, source.refuses
        for position, step in enumerate(steps):
            before = flow
            refuses = refuses or step.leaves_refusals or (before.kind is Kind.ANY and step.policy is None)
            try:
                stage, flow = compile_step(step, flow, self.tables, spot.path)
            except MisfitError as error:
                self.problems.append(MappingProblem((*spot.loc, "do", position), str(error)))
                return CompiledValue(nothing, Flow(Kind.ANY))
            if step.on_error is not None and not step.refuses and before.kind is not Kind.ANY:
                message = f'on_error never applies: the step "{step.name}" refuses nothing'
                self.problems.append(MappingProblem((*spot.loc, "do", position, "on_error"), message, "leave it out"))
            stages.append(stage if self.watch is None else stage.watched(self.watch))
        if ends.is_error_chosen and not refuses:
            hint = "on_empty says what becomes of nothing" if not steps else "leave it out"
            self.misfit(spot.inner("on_error"), "on_error never applies: nothing can refuse this value", hint)
        refuses = refuses and not ends.is_error_chosen
        if source.is_cell and self.watch is not None:
            read = watched_value(source.get, f"from {source.column}", spot.path, self.watch)
            return CompiledValue(stepped(read, tuple(stages), ends), flow, source.column, refuses=refuses)
        get = stepped_cell(source.column, tuple(stages), ends) if source.is_cell else stepped(source.get, tuple(stages), ends)
        return CompiledValue(get, flow, source.column, refuses=refuses)

    def condition(self, condition: Condition, loc: Loc) -> Holds:
        """Compile a condition."""
        self.problems.extend(untimely(condition, loc))
        if any(problem.loc[: len(loc)] == loc for problem in self.problems):
            return lambda _row: False
        refer: Callable[[str], Getter] = lambda text: lenient(self._operand(text, ValuePosition(loc)).get)  # noqa: E731 - two one-line doors
        return compile_condition(condition, refer, lambda name: self.column(name).get)

    def _operand(self, text: str, spot: ValuePosition) -> CompiledValue:
        return self.reference(text[1:], spot) if is_reference(text) else constant(unescape_dollar(text))


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


def unescape_dollar(text: str) -> str:
    """Return the text that a file means by one beginning with `$$`."""
    return text[1:] if text.startswith("$$") else text


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


def refused_empty(ends: ValuePolicies, row: RowState, hint: str = "") -> Any:
    """Return what the author chose for nothing."""
    return ends.on_empty(row, required(ends.column, hint))


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
