"""A mapping file that cannot be used, beside one that can: problems with positions, and every other feed goes on."""

from __future__ import annotations

import pytest
from unit.cli.conftest import FEED, MAPPING, Desk

REPEATED = "let:\n" + "".join(f"  a{n}: [$a{n + 1}, $a{n + 1}]\n" for n in range(40)) + "  a40: x\n"
BROKEN = {
    "a word for a number": (MAPPING.replace("equals: online", "less: seven"), 7, '"seven" is not a number'),
    "a circle of named values": (
        MAPPING.replace("rows:", "let: {a: $b, b: {from: $a}}\nrows:").replace("{from: TITLE, do: [collapse]}", "$a"),
        6,
        "the named values go in a circle: $a -> $b -> $a",
    ),
    "values that double without end": (
        MAPPING.replace("rows:", f"{REPEATED}rows:"),
        35,
        "the named values used here repeat each other more than 10,000 times, or nest too deeply",
    ),
}


@pytest.fixture(params=BROKEN.values(), ids=BROKEN.keys())
def broken(request: pytest.FixtureRequest, desk: Desk) -> tuple[int, str]:
    """A second file, a broken one: the line of its mistake, and what is said of it."""
    text, line, message = request.param
    desk.mapping(text.replace("feed: town-hall", "feed: broken-one"), "broken.yaml")
    return line, message


def test_a_broken_file_is_named_with_its_line_and_every_other_feed_goes_on(desk: Desk, broken: tuple[int, str]) -> None:
    line, message = broken
    wrong, sound = desk.run("check", "--json", code=2).document["feeds"]
    assert [(one["path"], one["line"]) for one in wrong["problems"]] == [("feeds/broken.yaml", line)]
    assert message in wrong["problems"][0]["message"]
    assert (sound["feed"], sound["problems"], sound["examples"]) == (FEED, [], {"run": 2, "failed": []})
    listed = desk.run("feeds", "--json", code=0).document
    assert [feed["feed"] for feed in listed["feeds"]] == [FEED]
    assert [(one["path"], one["problems"][0]["line"]) for one in listed["broken"]] == [("feeds/broken.yaml", line)]
    with desk.service():
        ran = desk.run("run", "--all", "--no-dagster", "--json")
    ran.assert_told(2, message)
    assert [(run["feed"], run["outcome"]) for run in ran.document["runs"]] == [(FEED, "done")]
    for verb in ("preview broken-one", "explain broken-one 1", "run broken-one --dry-run"):
        desk.run(*verb.split()).assert_told(2, f"broken.yaml:{line}:", message)


def test_a_link_that_leads_to_itself_among_the_feeds_harms_no_other_file(desk: Desk) -> None:
    (desk.folder / "feeds" / "_shared.yaml").symlink_to("_shared.yaml")
    (desk.folder / "feeds" / "looped.yaml").symlink_to("looped.yaml")
    assert [feed["feed"] for feed in desk.run("check", "--json", code=0).document["feeds"]] == [FEED]
