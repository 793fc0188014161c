"""What the language accepts acts: each policy of a step, a value or a condition changes the outcome, or is a mistake."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from unit.mappings.conftest import Mapper, Row

from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome
from mappings.spec.values import STEPS
from mappings.steps.step import Kind

LOOKUP = {"categories.csv": "path,slug\ncategories/music/jazz,music\nmusic,music\n"}
REFUSED: dict[str, tuple[str, str, str]] = {
    "a date": ("trim", '{date: "%Y-%m-%d"}', "soon"),
    "a part of a list": ('{split: "|"}', "{nth: 3}", "a|b"),
    "a pattern": ("trim", "{regex_all: a}", "x" * 200_000),
    "a repair": ("trim", "fix_mojibake", "CafÃ©"),
    "a lookup": ("trim", "{lookup: categories.csv}", "chess"),
    "a list of words": ("trim", "{map: {a: b}}", "chess"),
    "a way of categories": ('{split: "|"}', "{last_in: categories.csv}", "categories|fado"),
    "a moment": ('{datetime: "%Y-%m-%d %H:%M"}', "{wall_time_in: Europe/Lisbon}", "2026-03-29 01:30"),
}
"""A step before it, the step, and a cell that it refuses."""
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


@pytest.mark.parametrize("kind", REFUSED)
def test_each_policy_of_a_step_changes_what_becomes_of_what_it_refuses(kind: str, mapper: Mapper, row: Row) -> None:
    before, step, cell = REFUSED[kind]
    key = "on_miss" if any(word in step for word in ("map:", "lookup:", "last_in:")) else "on_error"
    for policy in POLICIES:
        event = f"locationName: {{from: X, do: [{before}, {with_policy(step, policy, key)}]}}"
        found = becomes(mapper(event=event, files=LOOKUP)(row(X=cell)))
        assert found == wanted(policy, "Café" if kind == "a repair" else None), policy


BEFORE = {
    Kind.LIST: '{split: "|"}, ',
    Kind.OBJECT: '{price: ",", take: [from, to]}, ',
    Kind.ANY: '{datetime: "%Y-%m-%d %H:%M"}, ',
}
"""A step that gives what a step takes that takes no text."""


@pytest.mark.parametrize("name", sorted(name for name, step in STEPS.items() if not step.refuses))
def test_a_policy_of_a_step_that_refuses_nothing_is_a_mistake_with_its_place(name: str, mapper: Mapper) -> None:
    step = STEPS[name].examples[0].step
    before = BEFORE.get(STEPS[name].takes, "")
    with pytest.raises(MappingFileError, match=f'on_error never applies: the step "{name}" refuses nothing') as caught:
        mapper(event=f"locationName: {{from: X, do: [{before}{with_policy(step, 'omit')}]}}")
    assert caught.value.problems[0].column > len("  locationName: {from: X, do: [")


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
    "a lookup": "lookup: categories.csv, by: {from: X}",
    "for_each": f"for_each: {{from: X, do: [{DATE}]}}, as: item, give: $item",
}
LET = f"let: {{day: {{from: X, do: [{DATE}]}}}}\n"


@pytest.mark.parametrize(
    ("kind", "key", "cell"),
    [
        *[(kind, key, cell) for kind in VALUES for key, cell in (("on_empty", ""), ("on_error", "soon")) if kind != "a lookup"],
        ("a lookup", "on_miss", "chess"),
    ],
)
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


@pytest.mark.parametrize("outer", ["on_error: omit", "on_error: {use: X}"])
def test_a_step_that_says_reject_rejects_whatever_the_value_says(outer: str, mapper: Mapper, row: Row) -> None:
    step = '{date: "%Y-%m-%d", on_error: reject}'
    other = '{date: "%d/%m/%Y"}'
    choose = f"{{choose: [{{when: {{column: X, is: present}}, then: {{from: X, do: [{step}]}}}}], {outer}}}"
    for value in (choose, f"{{first_of: [{{from: X, do: [{step}]}}, {{from: Y, do: [{other}]}}], {outer}}}"):
        assert becomes(mapper(event=f"locationName: {value}")(row(X="soon"))) == ("rejected", False, False)
    piece = "{join: [{from: X, on_empty: reject}, {from: Y}], on_empty: omit}"
    assert becomes(mapper(event=f"locationName: {piece}")(row(X="", Y="y"))) == ("rejected", False, False)
