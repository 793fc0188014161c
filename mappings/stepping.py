"""A value's way through its steps: the straight way when every step agrees, the careful one when a step refuses.

What a single step does is `transforms`'s; where the value comes from is `compiling`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mappings.evaluation import Getter, Mend, RowState, column_reader, is_empty, mending, nfc, nothing_left, required
from mappings.fitting import check_fit, guarded
from mappings.refusals import Refusal, Repaired
from mappings.tables import Table
from mappings.transforms.step import Kind, Run, Step

Walk = Callable[[RowState, Any], Any]
"""A way from what was found to the value."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What is on its way: its kind, and whether there may be several of it."""

    kind: Kind
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
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


def watched(stage: Stage, path: str, watch: Watch) -> Stage:
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


def compile_step(step: Step, flow: Flow, tables: Mapping[str, Table], path: str) -> tuple[Stage, Flow]:
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
    stage = Stage(step.name, one, every, is_each, works_on_empty, mend, path, step.policy in (None, "warn", "draft"))
    return stage, _after(step, flow, is_each=is_each)


def stepped(read: Getter, stages: tuple[Stage, ...], ends: Ends) -> Getter:
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


def _passed(stages: tuple[Stage, ...], ends: Ends) -> Walk:
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


def stepped_cell(column: str, stages: tuple[Stage, ...], ends: Ends) -> Getter:
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


def _careful(stages: tuple[Stage, ...], ends: Ends) -> Walk:
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


def _try_stage(row: RowState, stage: Stage, current: Any, found: str, column: str) -> Any:
    if stage.is_each and isinstance(current, list):
        items = current if stage.works_on_empty else _present(current)
        tried = [_try_one(row, stage, item, str(item), column) for item in items]
        return _present(_flat(tried)) or None
    return _try_one(row, stage, current, found, column)


def _try_one(row: RowState, stage: Stage, item: Any, found: str, column: str) -> Any:
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
