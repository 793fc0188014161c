"""A wrong word, a missing file, a mapping file that cannot be used: each is answered with what was wrong and what is right."""

from __future__ import annotations

import pytest
from unit.cli.conftest import FEED, MAPPING, Desk

DAYS = f"backfill {FEED} --from 2031-05-02 --to"
BRAKES = "'rejected', 'shrink', 'left_out', 'new', 'copies', 'scope' or 'keys'"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("preview feeds/twon.yaml", 'there is no file feeds/twon.yaml hint: did you mean "feeds/town.yaml"?'),
        ("explain drafts/none.yaml 1", "there is no file drafts/none.yaml"),
        (f"run {FEED} --accept shrnk", f'--accept shrnk: input should be {BRAKES} hint: did you mean "shrink"?'),
        (f"run {FEED} --status draf", "--status draf: input should be 'draft' hint: did you mean \"draft\"?"),
        (f"run {FEED} --all", "--all and names of feeds exclude each other"),
        (f"run {FEED} --no-dagster --stage-only --publish-only", "exclude each other"),
        (f"{DAYS} 2031-05-03 --by evnt", '--by evnt: there is no such way to tell a row\'s day hint: did you mean "event"?'),
        (
            f"{DAYS} 2031-05-01",
            "begins on 2031-05-02 and ends before, on 2031-05-01 hint: --from is the first day, --to the last one",
        ),
        (f"{DAYS} 2031-05-03 --by file", "cannot be read by file"),
        (f"{DAYS} 2031-05-03 --by cursor", "name the column that does"),
        (f"{DAYS} 2031-05-03 --slice fortnight", "--slice fortnight is no length"),
        (f"backfill {FEED}", "no window was named"),
        (f"backfill {FEED} --from yesterday", "--from yesterday is no day"),
        (f"backfill {FEED} --list --cancel", "exclude each other"),
        (f"backfill {FEED} --resume --slice day", "without --from means nothing"),
        ("metrics --out x.prom --port 0", "--port and --out exclude each other"),
        ("schema --documents nowhere", "written: No such file or directory hint: choose another place for --documents"),
        ("schema --out no/such/folder.json", "cannot be written"),
        ("schema --document statsu", "did you mean"),
        ("check town-hal", 'did you mean "town-hall"?'),
        ("rows town-hal", 'did you mean "town-hall"?'),
        (f"rows {FEED} --state delivred", 'did you mean "delivered"?'),
        (f"rows {FEED} --csv no/such/folder.csv", "cannot be written"),
        ("metrics --out no/such/folder.prom", "cannot be written"),
        ("vocabulary truncat", 'did you mean "truncate"?'),
        ("schema --documents . --document run", "--documents writes all schemas"),
        ("sandbox --port 99999", "--port"),
        ("ui --port -1", "--port"),
        ("demo --folder .", "is not empty, and no demo was there hint: choose a folder of its own with --folder"),
        ("demo --folder events.csv/demo", "cannot be made: Not a directory hint: choose another place with --folder"),
    ],
)
def test_a_wrong_word_is_answered_with_what_is_right(desk: Desk, words: str, told: str) -> None:
    with desk.service() as service:
        desk.run(*words.split()).assert_told(2, told, *(["hint:"] if "backfill" in words else []))
        assert service.requests("all") == []
    assert (desk.folder / "events.csv").is_file(), "nothing of anybody's is taken away"


def test_without_a_folder_of_mapping_files_the_variable_that_names_it_is_named(desk: Desk) -> None:
    desk.monkeypatch.setenv("EVENTSYNC_FEEDS", "nowhere")
    for words in ("ui", "run --all", "check", "feeds", f"preview {FEED}", f"rows {FEED}"):
        desk.run(*words.split()).assert_told(2, "nowhere hint: set EVENTSYNC_FEEDS to the folder of your mapping files")


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
