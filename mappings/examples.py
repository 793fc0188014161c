"""The examples of a mapping file, run offline: each row must become what its author says it becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import orjson

from mappings.compiler.mapper import Directory, compile_feed
from mappings.errors import ConfigError
from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow, if_unknown
from mappings.refusals import ReasonCode
from mappings.spec.feed import Example, FeedMapping
from mappings.spec.rules import Recur, Rule, WindowRule


@dataclass(frozen=True, slots=True)
class ExampleFailure:
    """An example that did not come true. `number` counts the file's examples from 1; `field` is "" for the row as a whole."""

    number: int
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"example {self.number}" + (f", {self.field}" if self.field else "")
        return f"{where}: expected {self.expected}, got {self.found}"


def run_examples(mapping: FeedMapping) -> tuple[ExampleFailure, ...]:
    """Return every example of a mapping that did not come true. Nothing is asked of any service."""
    return tuple(failure for number, example in enumerate(mapping.examples, 1) for failure in _run(mapping, example, number))


def _run(mapping: FeedMapping, example: Example, number: int) -> Iterator[ExampleFailure]:
    try:
        mapper = compile_feed(_without_window(mapping, example), Directory(), example.as_of)
    except ConfigError as error:
        yield ExampleFailure(number, "", "a mapping that compiles", str(error))
        return
    blank = dict.fromkeys(sorted(mapper.columns), "")
    rows = [SourceRow(RowLocation(f"example {number}"), blank | row) for row in example.rows or (example.row,)]
    outcomes = [if_unknown(outcome) for outcome in mapper.over(rows) if not isinstance(outcome, Absorbed)]
    yield from _compare(example, outcomes, number)


def _without_window(mapping: FeedMapping, example: Example) -> FeedMapping:
    """An example that names no moment is not about the window."""
    if example.as_of is not None:
        return mapping
    rules = tuple(_boundless(rule) for rule in mapping.rows if not isinstance(rule, WindowRule))
    return mapping.model_copy(update={"rows": rules})


def _boundless(rule: Rule) -> Rule:
    if isinstance(rule, Recur) and (rule.recur.until is not None or rule.recur.days is not None):
        return rule.model_copy(update={"recur": rule.recur.model_copy(update={"horizon": None})})
    return rule


def _compare(example: Example, outcomes: Sequence[RowOutcome], number: int) -> Iterator[ExampleFailure]:
    if example.events is None and len(outcomes) == 1:
        yield from _compare_one(example, outcomes[0], number)
        return
    wanted = example.events or ()
    if len(wanted) != len(outcomes):
        expected = "one outcome" if example.events is None else f"{len(wanted)} events"
        yield ExampleFailure(number, "", expected, f"{len(outcomes)}: {'; '.join(map(_tell, outcomes))}")
        return
    for place, (event, outcome) in enumerate(zip(wanted, outcomes, strict=True)):
        if isinstance(outcome, MappedRow):
            yield from _compare_parts(event, orjson.loads(outcome.body), f"events[{place}]", number)
        else:
            yield ExampleFailure(number, f"events[{place}]", "an event", _tell(outcome))


def _compare_one(example: Example, outcome: RowOutcome, number: int) -> Iterator[ExampleFailure]:
    if example.skipped is not None:
        if not isinstance(outcome, Skipped) or outcome.because != example.skipped:
            yield ExampleFailure(number, "", f'skipped as "{example.skipped}"', _tell(outcome))
    elif example.rejected is not None:
        yield from _compare_rejection(example.rejected, outcome, number)
    elif not isinstance(outcome, MappedRow):
        yield ExampleFailure(number, "", "an event", _tell(outcome))
    else:
        yield from _compare_parts(example.event, orjson.loads(outcome.body), "", number)


def _compare_rejection(expected: Mapping[str, ReasonCode], outcome: RowOutcome, number: int) -> Iterator[ExampleFailure]:
    if not isinstance(outcome, Rejection):
        yield ExampleFailure(number, "", "a rejection", _tell(outcome))
        return
    found = {reason.field: reason.code for reason in outcome.reasons}
    for field in sorted(expected.keys() | found.keys()):
        wanted, got = (str(codes.get(field, "no reason")) for codes in (expected, found))
        if wanted != got:
            yield ExampleFailure(number, field or "the row", wanted, got)


def _compare_parts(expected: object, found: object, path: str, number: int) -> Iterator[ExampleFailure]:
    """Compare a part of the payload: of an object only the named fields count; texts stand for numbers, as YAML has them."""
    match expected, found:
        case dict(), dict():
            for name, part in expected.items():
                yield from _compare_parts(part, _reach(found, name), f"{path}.{name}" if path else name, number)
        case list() | tuple(), list() if len(expected) == len(found):
            for position, (part, item) in enumerate(zip(expected, found, strict=True)):
                yield from _compare_parts(part, item, f"{path}[{position}]", number)
        case str(), None if expected in ("", "absent"):
            return
        case str(), str() | int() | float() if expected == str(found):
            return
        case _:
            yield ExampleFailure(number, path, _shown(expected), "nothing" if found is None else _shown(found))


def _reach(found: Mapping[str, object], dotted: str) -> object:
    if dotted in found:
        return found[dotted]
    name, _, rest = dotted.partition(".")
    inner = found.get(name)
    return _reach(inner, rest) if rest and isinstance(inner, dict) else None


def _shown(value: object) -> str:
    return orjson.dumps(value).decode()


def _tell(outcome: RowOutcome) -> str:
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
        case _:
            assert_never(outcome)
