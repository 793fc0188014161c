"""One feed through its partner's edits and a person's decisions: at each step `status`, `diff` and `report` say the truth."""

from __future__ import annotations

import html
import re

import pytest
from integration.desk import FEED, Desk, line
from integration.service import Service

pytestmark = pytest.mark.slow

DAYS = {number: f"2031-02-{number:02}" for number in range(1, 8)}


def rows(*ids: int, titles: dict[int, str] | None = None) -> list[str]:
    """Rows of the same seven evenings, whatever their ids: 14 is the evening that 4 was."""
    named = titles or {}
    return [line(number, title=named.get(number, f"Evening {number % 10}"), day=DAYS[number % 10]) for number in ids]


def waiting(desk: Desk) -> dict[str, int]:
    (feed,) = desk.command("status", FEED, "--json").document["feeds"]
    return {kind: count for kind, count in feed["waiting"].items() if count}


def different(desk: Desk) -> dict[str, str]:
    return {row["row_key"]: row["kind"] for row in desk.command("diff", FEED, "--json").document["rows"]}


def page(desk: Desk) -> str:
    """The partner's page as text."""
    desk.command("report", FEED, "--html", "page.html", "--json", code=0)
    file = desk.folder / "page.html"
    text = re.sub(r"<style.*?</style>|<[^>]+>", " ", file.read_text("utf-8"), flags=re.DOTALL)
    file.unlink()
    return " ".join(html.unescape(text).split())


def decide(desk: Desk, *words: str) -> None:
    desk.command("resolve", FEED, *words, "--yes", code=0)


def test_every_step_of_a_partners_year_is_told_as_it_is(desk: Desk, service: Service) -> None:
    # Delivered.
    desk.run_with(rows(1, 2, 3, 4, 5, 6, 7), code=0)
    assert (waiting(desk), different(desk), len(service.events())) == ({}, {}, 7)

    # The partner gives every row a new id: nothing is sent, the old rows are gone, the new ones are held.
    said = desk.run_with(rows(11, 12, 13, 14, 15, 16, 17), code=0)
    assert (said.run["read"]["held"], len(service.events())) == (7, 7)
    assert waiting(desk) == {"held": 7, "vanished": 7}
    assert {kind for key, kind in different(desk).items() if key in "1234567"} == {"vanished"}

    # An edited row is still the same event under another id.
    desk.run_with(rows(11, 12, 13, 14, 15, 16, 17, titles={11: "Evening 1 in the big hall"}), code=0)
    assert (waiting(desk), len(service.events())) == ({"held": 7, "vanished": 7}, 7)

    # A person says that they are the same: the events move to the new ids.
    decide(desk, "--state", "held", "--same-as")
    assert waiting(desk) == {"drift": 1}
    assert (different(desk), "big hall" in page(desk)) == ({"11": "edited"}, True)
    said = desk.run()
    assert (said.code, said.run["read"]["unchanged"], said.run["read"]["drifted"]) == (0, 6, 1)
    assert len(service.events()) == 7

    # The person makes the change by hand.
    decide(desk, "11", "--applied")
    assert (waiting(desk), different(desk)) == ({}, {})
    said = desk.run()
    assert (said.code, said.run["read"]["unchanged"]) == (0, 7)

    # The partner takes the edit back: the service shows what the person applied, so this is a change again.
    assert desk.run_with(rows(11, 12, 13, 14, 15, 16, 17)).run["read"]["drifted"] == 1
    assert (waiting(desk), different(desk)) == ({"drift": 1}, {"11": "edited"})
    fields = desk.command("diff", FEED, "11", "--json").document["row"]["fields"]
    (title,) = [field for field in fields if field["is_changed"]]
    assert (title["delivered"], title["now"]) == ("Evening 1 in the big hall", "Evening 1")
    decide(desk, "11", "--applied")
    assert waiting(desk) == {}

    # One row is taken out, and the person removes its event.
    desk.run_with(rows(11, 12, 13, 14, 15, 16), code=0)
    assert (waiting(desk), different(desk)) == ({"vanished": 1}, {"17": "vanished"})
    decide(desk, "17", "--removed")
    assert (waiting(desk), different(desk)) == ({}, {})
    assert "Evening 7" not in page(desk)

    # It comes back.
    desk.run_with(rows(11, 12, 13, 14, 15, 16, 17), code=0)
    assert (waiting(desk), list(different(desk))) == ({"drift": 1}, ["17"])
    assert "removed by hand" in different(desk)["17"]
    decide(desk, "17", "--resend")
    said = desk.run(code=0)
    assert (waiting(desk), len(service.events())) == ({}, 8)
    desk.command("state", "verify", code=0)
