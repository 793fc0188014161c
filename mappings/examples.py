"""Runs the examples of a mapping file offline and compares each outcome with the expected one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import orjson

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import ConfigError
from mappings.event import Directory
from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow, if_unknown
from mappings.reasons import ReasonCode
from mappings.spec.feed import Example, FeedMapping
from mappings.spec.rules import Recur, WindowRule


@dataclass(frozen=True, slots=True)
class ExampleFailure:
    """An example with another outcome than expected. `number`: its position in the file, from 1; `field`: "" for the whole row.

    `line`, `column`: the position of the expectation in the mapping file, from 1; 0 if unknown.
    """

    number: int
    field: str
    expected: str
    found: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        where = f"example {self.number}" + (f", {self.field}" if self.field else "")
        return f"{where}: expected {self.expected}, got {self.found}"


Difference = tuple[str, str, str]
"""The field, the expected and the actual value."""


def run_examples(mapping: FeedMapping) -> tuple[ExampleFailure, ...]:
    """Return the failures of a mapping's examples. Runs offline."""
    examples = enumerate(mapping.examples, 1)
    return tuple(ExampleFailure(number, *found) for number, example in examples for found in _differences(mapping, example))


def example_bodies(mapping: FeedMapping) -> list[bytes]:
    """Return the payloads that the examples of a mapping without mistakes give."""
    outcomes = (_outcomes(_mapper(mapping, example), example) for example in mapping.examples)
    return [outcome.body for outcome in chain.from_iterable(outcomes) if isinstance(outcome, MappedRow)]


def _mapper(mapping: FeedMapping, example: Example) -> RowMapper:
    return compile_feed(_without_window(mapping, example), Directory(), example.as_of)


def _outcomes(mapper: RowMapper, example: Example) -> list[RowOutcome]:
    blank = dict.fromkeys(sorted(mapper.columns), "")
    rows = [SourceRow(RowLocation("an example"), blank | row) for row in example.rows or (example.row,)]
    return [if_unknown(outcome) for outcome in mapper.over(rows) if not isinstance(outcome, Absorbed)]


def _differences(mapping: FeedMapping, example: Example) -> Iterator[Difference]:
    try:
        mapper = _mapper(mapping, example)
    except ConfigError as error:
        yield "", "a mapping that compiles", str(error)
        return
    spell = mapping.source.request(mapper.columns).speller()
    for row in example.rows or (example.row,):
        for column, count in Counter(map(spell, row)).items():
            if count > 1:
                names = ", ".join(f'"{name}"' for name in row if spell(name) == column)
                yield "", f'one column "{column}"', f"{count} that answer to this name: {names}"
    outcomes = _outcomes(mapper, example)
    if example.events is not None and len(outcomes) == len(example.events):
        for place, (event, outcome) in enumerate(zip(example.events, outcomes, strict=True)):
            yield from _compare_event(event, outcome, f"events[{place}]")
    elif example.events is not None or len(outcomes) != 1:
        expected = "one outcome" if example.events is None else f"{len(example.events)} events"
        yield "", expected, f"{len(outcomes)}: {'; '.join(map(_described, outcomes))}"
    elif example.rejected is not None:
        yield from _compare_rejection(example.rejected, outcomes[0])
    elif example.skipped is None:
        yield from _compare_event(example.event, outcomes[0], "")
    elif not isinstance(outcomes[0], Skipped) or outcomes[0].because != example.skipped:
        yield "", f'skipped as "{example.skipped}"', _described(outcomes[0])


def _without_window(mapping: FeedMapping, example: Example) -> FeedMapping:
    """Return the mapping without its window if the example has no `as_of`."""
    if example.as_of is not None:
        return mapping
    rules = [rule for rule in mapping.rows if not isinstance(rule, WindowRule)]
    for place, rule in enumerate(rules):
        if isinstance(rule, Recur) and (rule.recur.until is not None or rule.recur.days is not None):
            rules[place] = Recur(recur=rule.recur.model_copy(update={"horizon": None}))
    return mapping.model_copy(update={"rows": tuple(rules)})


def _compare_rejection(expected: Mapping[str, ReasonCode], outcome: RowOutcome) -> Iterator[Difference]:
    if not isinstance(outcome, Rejection):
        yield "", "a rejection", _described(outcome)
        return
    found = {reason.field: reason.code for reason in outcome.reasons}
    for field in sorted(expected.keys() | found.keys()):
        if expected.get(field) != found.get(field):
            yield field or "the row", str(expected.get(field, "no problem")), str(found.get(field, "no problem"))


def _compare_event(expected: object, outcome: RowOutcome, path: str) -> Iterator[Difference]:
    if isinstance(outcome, MappedRow):
        yield from _compare_parts(expected, orjson.loads(outcome.body), path)
    else:
        yield path, "an event", _described(outcome)


def _compare_parts(expected: object, found: object, path: str) -> Iterator[Difference]:
    """Yield the differences between two parts of a payload. Objects are compared by the expected fields only; texts equal
    numbers, since YAML scalars are read as text.
    """
    match expected, found:
        case dict(), dict():
            for name, part in expected.items():
                yield from _compare_parts(part, _reach(found, name), f"{path}.{name}" if path else name)
        case list() | tuple(), list() if len(expected) == len(found):
            for position, (part, item) in enumerate(zip(expected, found, strict=True)):
                yield from _compare_parts(part, item, f"{path}[{position}]")
        case str(), None if expected in ("", "absent"):
            return
        case str(), str() | int() | float() if expected == str(found):
            return
        case _:
            yield path, orjson.dumps(expected).decode(), "nothing" if found is None else orjson.dumps(found).decode()


def _reach(found: Mapping[str, object], dotted: str) -> object:
    if dotted in found:
        return found[dotted]
    name, _, rest = dotted.partition(".")
    inner = found.get(name)
    return _reach(inner, rest) if rest and isinstance(inner, dict) else None


def _described(outcome: RowOutcome) -> str:
    match outcome:
        case MappedRow():
            return f"an event: {outcome.body.decode()}"
        case Rejection():
            reasons = "; ".join(f"{reason.field or 'the row'}: {reason.code} ({reason.hint})" for reason in outcome.reasons)
            return f"a rejection: {reasons}"
        case Skipped():
            return f'skipped as "{outcome.because}"'
        case Absorbed():
            return f"a row that went into another one ({outcome.into})"
        case Gone():
            return "a row that its source has deleted"
