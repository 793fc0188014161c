"""A mapping file that cannot be used, beside one that can: problems with positions, and every other feed goes on."""

from __future__ import annotations

import pytest
from unit.cli.conftest import MAPPING, Desk

EMPTY = "  classifications: []"
BROKEN = {
    "a word for a number": (MAPPING.replace("equals: online", "less: seven"), 7, '"seven" is not a number'),
    "a circle of named values": (
        MAPPING.replace("key: [ID]", "key: [ID]\nlet: {a: $b, b: {from: $a}}").replace("{from: TITLE, do: [collapse]}", "$a"),
        6,
        "the named values go in a circle: $a -> $b -> $a",
    ),
    "an empty list": (
        MAPPING.replace("  classifications: {from: GENRE, do: [{map: {concert: music, play: theatre}}]}", EMPTY),
        19,
        "at least one entry is needed",
    ),
    "values that double without end": (
        MAPPING.replace(
            "key: [ID]", "key: [ID]\nlet:\n" + "".join(f"  a{n}: [$a{n + 1}, $a{n + 1}]\n" for n in range(40)) + "  a40: x"
        ),
        35,
        "the named values used here repeat each other more than 10,000 times, or nest too deeply",
    ),
    "a cron line that never comes": (
        'schedule: {cron: "0 7 30 2-2 *"}\n' + MAPPING,
        1,
        '"30" is a day that never comes',
    ),
    "companions of no value": (
        MAPPING.replace("  title: {from: TITLE, do: [collapse]}", "  title: {do: [collapse], on_empty: omit}"),
        11,
        'unknown value "do"',
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
    checked = desk.run("check", "--json")
    wrong, sound = checked.document["feeds"]
    assert checked.code == 2
    assert [(one["path"], one["line"]) for one in wrong["problems"]] == [("feeds/broken.yaml", line)]
    assert message in wrong["problems"][0]["message"]
    assert (sound["feed"], sound["problems"], sound["examples"]) == ("town-hall", [], {"run": 2, "failed": []})
    listed = desk.run("feeds", "--json")
    assert (listed.code, [feed["feed"] for feed in listed.document["feeds"]]) == (0, ["town-hall"])
    assert [(one["path"], one["problems"][0]["line"]) for one in listed.document["broken"]] == [("feeds/broken.yaml", line)]
    with desk.service():
        ran = desk.run("run", "--all", "--no-dagster", "--json")
    assert (ran.code, message in ran.out + ran.err) == (2, True)
    assert [(run["feed"], run["outcome"]) for run in ran.document["runs"]] == [("town-hall", "done")]


@pytest.mark.parametrize("words", [("preview", "broken-one"), ("explain", "broken-one", "1"), ("run", "broken-one", "--dry-run")])
def test_a_verb_about_a_broken_file_ends_with_its_mistakes(desk: Desk, broken: tuple[int, str], words: tuple[str, ...]) -> None:
    said = desk.run(*words)
    assert said.code == 2
    assert f"broken.yaml:{broken[0]}:" in said.err
    assert broken[1] in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_a_link_that_leads_to_itself_among_the_feeds_harms_no_other_file(desk: Desk) -> None:
    (desk.folder / "feeds" / "_shared.yaml").symlink_to("_shared.yaml")
    (desk.folder / "feeds" / "looped.yaml").symlink_to("looped.yaml")
    said = desk.run("check", "--json")
    assert said.code == 0
    assert [feed["feed"] for feed in said.document["feeds"]] == ["town-hall"]
