"""What the language accepts acts: each policy of a step, a value or a condition changes the outcome, or is a mistake."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from unit.mappings.conftest import Mapper, Row, mistakes

from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome, Skipped
from mappings.reasons import ReasonCode
from mappings.spec.values import STEPS

LOOKUP = {"categories.csv": "path,slug\ncategories/music/jazz,music\nmusic,music\n"}
LONG = "x" * 200_000
REFUSED: dict[str, tuple[str, str, str]] = {
    "nth": ('{split: "|"}', "{nth: 3}", "a|b"),
    "wall_time_in": ('{datetime: "%Y-%m-%d %H:%M"}', "{wall_time_in: Europe/Lisbon}", "2026-03-29 01:30"),
    "last_in": ('{split: "|"}', "{last_in: categories.csv}", "categories|fado"),
    "in_zone": ("{iso: moment}", "{in_zone: Asia/Tokyo}", "9999-12-31T23:59:59-12:00"),
    "plus": ('{date: "%Y-%m-%d"}', "{plus: 9d}", "9999-12-31"),
    "slugify": ("trim", '{slugify: "-"}', "!"),
    "clock": ("trim", "{clock: any}", "soon"),
    "round": ("{number: '.'}", "{round: 12}", "9" * 30),
    "markdown_to_text": ("trim", "markdown_to_text", LONG),
    "regex_all": ("trim", "{regex_all: a}", LONG),
    "regex_split": ("trim", "{regex_split: a}", LONG),
    "regex_replace": ("trim", "{regex_replace: a, with: b}", LONG),
    "range_end": ("trim", "range_end", "1.5. - 2.5. - 3.5. - 4.5."),
    "resolve": ("trim", '{resolve: "https://ex.org/"}', "http://[x"),
    "fix_mojibake": ("trim", "fix_mojibake", "CafÃ©"),
}
"""For steps whose examples refuse nothing that can stand in a cell: a step before it, the step, and a cell that it refuses."""
POLICIES = ("reject", "omit", "warn", "draft", "{use: X}", "{use: X, warn: true}", "{use: X, draft: true}")


def becomes(outcome: RowOutcome, path: str = "locationName") -> tuple[object, bool, bool]:
    """Return the field (or the rejection), whether the row has a warning, and whether it is a draft."""
    if isinstance(outcome, Rejection):
        return "rejected", False, False
    assert isinstance(outcome, MappedRow), outcome
    event: dict[str, Any] = orjson.loads(outcome.body)
    return event.get(path), bool(outcome.warnings), event.get("status") == "draft"


def wanted(policy: str, kept: object = None) -> tuple[object, bool, bool]:
    found = "X" if "use" in policy else kept if policy in {"warn", "draft"} else None
    return ("rejected", False, False) if policy == "reject" else (found, "warn" in policy or "draft" in policy, "draft" in policy)


def with_policy(step: str, policy: str, key: str = "on_error") -> str:
    name = f"{{{step}: true" if not step.startswith("{") else step[:-1]
    return f"{name}, {key}: {policy}}}"


def refusal_of(name: str) -> tuple[str, str, str]:
    if name in REFUSED:
        return REFUSED[name]
    shown = next(one for one in STEPS[name].examples if isinstance(one.comes_out, ReasonCode) and "on_" not in one.step)
    assert isinstance(shown.goes_in, str)
    return "trim", shown.step, shown.goes_in


REFUSING = sorted(name for name, step in STEPS.items() if step.refuses and name != "to_text")


@pytest.mark.parametrize("name", REFUSING)
def test_each_policy_of_a_step_changes_what_becomes_of_what_it_refuses(name: str, mapper: Mapper, row: Row) -> None:
    before, step, cell = refusal_of(name)
    key = "on_miss" if name in {"map", "lookup", "last_in"} else "on_error"
    for policy in POLICIES:
        event = f"locationName: {{from: X, do: [{before}, {with_policy(step, policy, key)}]}}"
        found = becomes(mapper(event=event, files=LOOKUP)(row(X=cell)))
        assert found == wanted(policy, "Café" if name == "fix_mojibake" else None), policy


DATE = '{date: "%Y-%m-%d"}'
AT = 'at: {day: {from: X, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon, all_day: "00:00"}'
IN_ZONE = "in_zone: {moment: {from: X, do: [{iso: moment}]}, zone: Europe/Lisbon}"
VALUES = {
    "from": f"from: X, do: [{DATE}]",
    "from a name": "from: $day",
    "first_of": f"first_of: [{{from: X, do: [{DATE}]}}]",
    "join": f"join: [{{from: X, do: [{DATE}]}}, {{from: EMPTY}}]",
    "choose": f"choose: [{{when: {{column: EMPTY, is: missing}}, then: {{from: X, do: [{DATE}]}}}}]",
    "at": AT,
    "in_zone": IN_ZONE,
    "lookup": f"lookup: categories.csv, by: {{from: X, do: [{DATE}]}}",
    "for_each": f"for_each: {{from: X, do: [{DATE}]}}, as: item, give: $item",
}
LET = f"let: {{day: {{from: X, do: [{DATE}]}}}}\n"


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(("key", "cell"), [("on_empty", ""), ("on_error", "soon")])
def test_each_policy_of_a_value_changes_what_becomes_of_it(kind: str, key: str, cell: str, mapper: Mapper, row: Row) -> None:
    top = LET if kind == "from a name" else ""
    for policy in POLICIES:
        compiled = mapper(event=f"locationName: {{{VALUES[kind]}, {key}: {policy}}}", top=top, files=LOOKUP)
        assert becomes(compiled(row(X=cell))) == wanted(policy), policy


@pytest.mark.parametrize(("key", "cell"), [("on_empty", ""), ("on_error", "town")])
def test_each_policy_of_a_channel_changes_what_becomes_of_it(key: str, cell: str, mapper: Mapper, row: Row) -> None:
    for policy in POLICIES:
        event = f"channelId: {{channel: {{from: X}}, {key}: {policy}}}".replace("use: X", "use: 7")
        compiled = mapper(event=event, directory=Directory(channels={"city": 7}))
        found, warned, is_draft = becomes(compiled(row(X=cell)), "channelId")
        is_used = policy.startswith("{")
        assert (found, warned, is_draft) == ((7, *wanted(policy)[1:]) if is_used else ("rejected", False, False)), policy


def test_each_policy_of_a_miss_changes_what_becomes_of_it(mapper: Mapper, row: Row) -> None:
    for policy in POLICIES:
        event = f"locationName: {{lookup: categories.csv, by: {{from: X}}, on_miss: {policy}}}"
        assert becomes(mapper(event=event, files=LOOKUP)(row(X="chess"))) == wanted(policy)


@pytest.mark.parametrize("outer", ["on_error: omit", "on_error: {use: X}"])
def test_a_step_that_says_reject_rejects_whatever_the_value_says(outer: str, mapper: Mapper, row: Row) -> None:
    step = '{date: "%Y-%m-%d", on_error: reject}'
    other = '{date: "%d/%m/%Y"}'
    choose = f"{{choose: [{{when: {{column: X, is: present}}, then: {{from: X, do: [{step}]}}}}], {outer}}}"
    for value in (choose, f"{{first_of: [{{from: X, do: [{step}]}}, {{from: Y, do: [{other}]}}], {outer}}}"):
        assert becomes(mapper(event=f"locationName: {value}")(row(X="soon"))) == ("rejected", False, False)
    piece = "{join: [{from: X, on_empty: reject}, {from: Y}], on_empty: omit}"
    assert becomes(mapper(event=f"locationName: {piece}")(row(X="", Y="y"))) == ("rejected", False, False)


@pytest.mark.parametrize(
    ("test", "cell"),
    [
        ("equals: rock, ignore: [case]", "ROCK"),
        ("in: [rock, pop], ignore: [accents]", "rócḱ"),
        ("contains: rock, ignore: [spaces]", "hard r o c k"),
        ("matches: '^rock', ignore: [case]", "Rock night"),
        ("equals: $kind, ignore: [case]", "ROCK"),
    ],
)
def test_what_a_condition_ignores_changes_whether_it_holds(test: str, cell: str, mapper: Mapper, row: Row) -> None:
    let = "let: {kind: {from: KIND}}\n" if "$kind" in test else ""
    for told, holds in ((test, True), (test.partition(", ignore")[0], False)):
        top = f"{let}rows:\n  - skip: {{column: X, {told}}}\n    because: rock\n"
        assert isinstance(mapper(top=top)(row(X=cell, KIND="rock")), Skipped) is holds


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("is: present, ignore: [case]", "ignore never applies"),
        ("less: 5, ignore: case", "ignore never applies"),
        ("matches: rock, ignore: [accents]", "a pattern can ignore case only"),
    ],
)
def test_what_a_condition_cannot_ignore_is_a_mistake(test: str, told: str, mapper: Mapper) -> None:
    assert told in mistakes(mapper, top=f"rows:\n  - skip: {{column: X, {test}}}\n    because: rock\n")


def test_a_length_that_is_not_bounded_has_no_consequence(mapper: Mapper) -> None:
    assert "on_longer never applies" in mistakes(mapper, top="rows:\n  - window: {past: keep, on_longer: skip}\n")
