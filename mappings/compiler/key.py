"""The row key: columns, columns changed by a few steps, or the first usable of several keys.

A key must never change, so it may use only steps whose results are frozen by literal tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mappings.compiler.base import (
    ROUNDED,
    CompiledStep,
    Flow,
    Watch,
    compile_step,
    is_empty,
    nothing_left,
    read_cell,
    refuse_key_part,
    required,
)
from mappings.lookup_table import Table
from mappings.positions import MappingProblem
from mappings.reasons import Reason, Refusal
from mappings.row_key import NO_KEY, RowKey, row_key
from mappings.spec import rules as spec
from mappings.spec.feed import FeedMapping, KeySource
from mappings.spec.values import From
from mappings.steps.lookups import Lookup, split_columns
from mappings.steps.step import Kind, Step

_PLAIN = re.compile(rf"(?!(?i:{ROUNDED.pattern})\Z)[0-9A-Za-z][0-9A-Za-z_:/.-]*")
"""A cell that is its own key, as most are: nothing to trim, escape or refuse."""
_STEPS = (
    *("trim", "collapse", "lower", "upper", "regex_extract", "replace", "split", "nth", "strip_prefix", "strip_suffix"),
    *("map", "lookup"),
)
_ALLOWED = f"a key may use {', '.join(_STEPS[:-1])} and {_STEPS[-1]}: their results never change"
_NO_CHOICE = "leave it out: a row whose key is empty or unusable is rejected"
_ROWS_OF_MANY = (spec.Explode, spec.Recur, spec.Group)
ReadKey = Callable[[Mapping[str, str]], tuple[RowKey, tuple[Reason, ...]]]
ReadPart = Callable[[Mapping[str, str]], str]
"""Returns one part of a row's key, "" if it is empty; raises Refusal if it is unusable."""


@dataclass(frozen=True, slots=True)
class CompiledKey:
    """A compiled key. `read` returns a row's key, or "" with all reasons. `columns`: the columns that the key reads."""

    read: ReadKey
    columns: frozenset[str]


def compile_key(mapping: FeedMapping, problems: list[MappingProblem], watch: Watch | None = None) -> CompiledKey:
    """Compile the key of a feed; append the mistakes in it to `problems`."""
    problems.extend(_misplaced(mapping))
    keys = mapping.key_alternatives
    readers = [[_compile_part(part, mapping.tables, problems, watch) for part in parts] for parts in keys]
    return CompiledKey(_first_filled(keys, readers), frozenset(part.column for part in mapping.key_columns) - {""})


def key_definition(mapping: FeedMapping) -> str:
    """Return as JSON what determines the feed's keys: columns, steps and the contents of lookup files, but not line numbers."""
    described = [[_described(part, mapping.tables) for part in parts] for parts in mapping.key_alternatives]
    return json.dumps(described[0] if len(described) == 1 else {"first_of": described})


def _described(part: KeySource, tables: Mapping[str, Table]) -> object:
    if not part.steps:
        return part.column
    steps = []
    for _, _, step in part.steps:
        parameters = step.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if isinstance(step, Lookup):
            table = tables[step.file]
            parameters["lookup"] = [table.columns, table.rows]
        steps.append([step.name, parameters])
    return {"from": part.column, "do": steps}


def _read_parts(
    parts: Sequence[KeySource], readers: Sequence[ReadPart], cells: Mapping[str, str]
) -> tuple[list[str], list[Refusal]]:
    """Return the parts of one key, and the refusals of unusable parts."""
    texts, refusals = list[str](), list[Refusal]()
    for part, reader in zip(parts, readers, strict=True):
        try:
            texts.append(reader(cells))
        except Refusal as refusal:
            refusals.append(refusal)
            continue
        refused = refuse_key_part(texts[-1].strip(), part.column, optional=part.optional)
        if refused is not None:
            refusals.append(refused)
    return texts, refusals


def _first_filled(keys: Sequence[Sequence[KeySource]], readers: Sequence[Sequence[ReadPart]]) -> ReadKey:
    """Return a reader for the first key that a row fills. A part that a spreadsheet program has changed rejects the row."""
    plain = keys[0][0].column if len(keys) == len(keys[0]) == 1 and not keys[0][0].steps else None

    def read(cells: Mapping[str, str]) -> tuple[RowKey, tuple[Reason, ...]]:
        if plain is not None and _PLAIN.fullmatch(part := cells.get(plain, "")):
            return RowKey(part), ()
        first: list[Refusal] = []
        for parts, of_parts in zip(keys, readers, strict=True):
            texts, refusals = _read_parts(parts, of_parts, cells)
            if not refusals:
                return row_key(texts), ()
            if len(keys) > 1 and (mangled := [one for one in refusals if not one.step and not one.is_empty]):
                return NO_KEY, tuple(refusal.reason("") for refusal in mangled)
            first = first or refusals
        if len(keys) > 1:
            others = ", or in ".join(" and ".join(f'"{part.column}"' for part in parts) for parts in keys)
            hint = f"every row needs its identifier in {others}"
            first = [required(one.column, hint) if one.is_empty else one for one in first]
        return NO_KEY, tuple(one.reason("") for one in first)

    return read


def _compile_part(
    part: KeySource, tables: Mapping[str, Table], problems: list[MappingProblem], watch: Watch | None = None
) -> ReadPart:
    """Compile one part of a key. Its raw cell is checked like any key, and refusals of its steps reject the row."""
    column, steps, flow = part.column, list[CompiledStep](), Flow(Kind.TEXT)
    for loc, place, step in part.steps:
        if problem := _misfit(step, tables):
            problems.append(MappingProblem((*loc, "do", place), *problem))
            return lambda _cells: ""
        one, flow = compile_step(step, flow, tables, "key", watch)
        steps.append(one)
    if flow.is_list:
        problems.append(
            MappingProblem(part.loc, "a part of a key is one text, and this is a list", "take one item of it: {nth: 1}")
        )

    def read(cells: Mapping[str, str]) -> str:
        cell = read_cell(cells, column)
        if not steps:
            return cell
        if watch is not None:
            watch("key", f"from {column}", None, cell)
        if (refused := refuse_key_part(cell.strip(), column, optional=True)) is not None:
            raise refused
        current: Any = cell
        for one in () if is_empty(cell) else steps:
            try:
                current = one.run(current)
            except Refusal as refusal:
                raise refusal.about(column, cell, one.step.name) from None
            if is_empty(current):
                raise nothing_left(column, cell).about("", "", one.step.name)
        return str(current)

    return read


def _misfit(step: Step, tables: Mapping[str, Table]) -> tuple[str, str] | None:
    """Return why a step is not allowed in a key, with a hint; None if it is allowed."""
    if step.name not in _STEPS:
        return f'the step "{step.name}" cannot be used in a key', _ALLOWED
    if isinstance(step, Lookup) and len(found := split_columns(tables[step.file], 1, step.take)[1]) > 1:
        return f"{step.file} gives several values, and a part of a key is one text", f"write take: {found[0]}"
    if step.policy not in {None, "reject"}:
        return f'a choice beside the step "{step.name}" is not allowed in a key', f"{_NO_CHOICE}; on_miss: keep is allowed"
    return None


def _misplaced(mapping: FeedMapping) -> Iterator[MappingProblem]:
    """Yield a problem for each entry that is not allowed in the key."""
    for place, item in enumerate(mapping.key):
        if isinstance(item, spec.KeyChoice) and len(mapping.key) > 1:
            hint = "put the parts that all rows have into each list of first_of"
            yield MappingProblem(("key", place), "first_of must be the whole key, and other parts are beside it", hint)
        elif isinstance(item, spec.KeyChoice):
            for rule in (rule for rule in mapping.rows if isinstance(rule, _ROWS_OF_MANY)):
                message = f"first_of and the rule {next(iter(type(rule).model_fields))} cannot be combined"
                hint = "where a row is not one event its key must be the same in every file: name the columns that all rows fill"
                yield MappingProblem(("key", place, "first_of"), message, hint)
    for part in mapping.key_columns:
        for name in part.names:
            value = mapping.let.get(name)
            if not isinstance(value, From):
                hint = "a key takes a named value that is a column with its steps: {from: COLUMN, do: [...]}"
                yield MappingProblem(part.loc, f'"${name}" cannot be used in a key', hint)
                continue
            for choice in ("on_empty", "on_error"):
                if getattr(value, choice) not in {None, "reject"}:
                    message = f"the key uses ${name}, and {choice} is not allowed in a key"
                    yield MappingProblem(("let", name, choice), message, _NO_CHOICE)
