"""A wrong word, a broken file or source, a fault of ours: each is answered with what is right, and harms no other feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from lookalikes.threaded import Answer, answering_by
from unit.cli.conftest import FEED, HEADER, MAPPING, ROWS, SECRET, Desk, holds

from pipelines.run.outcome import worst

DAYS = f"backfill {FEED} --from 2031-05-02 --to"
BRAKES = "'rejected', 'shrink', 'left_out', 'new', 'copies', 'scope', 'keys' or 'changed'"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("preview feeds/twon.yaml", 'there is no file feeds/twon.yaml hint: did you mean "feeds/town.yaml"?'),
        ("explain drafts/none.yaml 1", "there is no file drafts/none.yaml"),
        (f"run {FEED} --accept shrnk", f'--accept shrnk: input should be {BRAKES} hint: did you mean "shrink"?'),
        (f"run {FEED} --status draf", "--status draf: input should be 'draft' hint: did you mean \"draft\"?"),
        (f"run {FEED} --all", "--all and names of feeds cannot be combined"),
        (f"run {FEED} --no-dagster --stage-only --publish-only", "cannot be combined"),
        (f"{DAYS} 2031-05-03 --by evnt", '--by evnt: not a way to decide a row\'s day hint: did you mean "event"?'),
        (
            f"{DAYS} 2031-05-01",
            "begins on 2031-05-02 and ends before, on 2031-05-01 hint: --from is the first day, --to the last one",
        ),
        (f"{DAYS} 2031-05-03 --by file", "cannot be read by file"),
        (f"{DAYS} 2031-05-03 --by cursor", "name a column with the time of change"),
        (f"{DAYS} 2031-05-03 --slice fortnight", "--slice fortnight: not a length of a slice"),
        (f"backfill {FEED} --from 1900-01-01 --slice day", "5,000 slices with --slice day hint: use a longer --slice, such as"),
        (f"backfill {FEED}", "no days were given"),
        (f"backfill {FEED} --from yesterday", "--from yesterday is not a date"),
        (f"backfill {FEED} --list --cancel", "cannot be combined"),
        (f"backfill {FEED} --resume --slice day", "needs --from"),
        ("metrics --out x.prom --port 0", "--port and --out cannot be combined"),
        ("schema --out no/such/folder.json", "cannot be written"),
        ("schema --document statsu", "did you mean"),
        ("check town-hal", 'did you mean "town-hall"?'),
        ("rows town-hal", 'did you mean "town-hall"?'),
        (f"rows {FEED} --state delivred", 'did you mean "delivered"?'),
        (f"rows {FEED} --csv no/such/folder.csv", "cannot be written"),
        ("metrics --out no/such/folder.prom", "cannot be written"),
        ("vocabulary truncat", 'did you mean "truncate"?'),
        ("sandbox --port 99999", "--port"),
        ("ui --port -1", "--port"),
        ("demo --folder .", "is not empty and holds no demo hint: choose an empty or new folder with --folder"),
        ("demo --folder events.csv/demo", "cannot be created: Not a directory hint: choose another folder with --folder"),
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


@pytest.mark.parametrize("status", [200, 404])
def test_another_sites_page_is_not_taken_for_the_service(desk: Desk, status: int) -> None:
    page = Answer(b"<!doctype html><h1>Another site</h1>", status, {"content-type": "text/html"})
    with answering_by(lambda _request, _body: page) as site:
        desk.point_to(site)
        desk.run("run", FEED, "--no-dagster").assert_told(2, "not the Event Publishing API", "EVENT_API_BASE_URL")


REPEATED = "let:\n" + "".join(f"  a{n}: [$a{n + 1}, $a{n + 1}]\n" for n in range(40)) + "  a40: x\n"
BROKEN = {
    MAPPING.replace("equals: online", "less: seven"): (7, '"seven" is not a number'),
    MAPPING.replace("rows:", f"{REPEATED}rows:"): (35, "the named values used here repeat each other more than 10,000 times"),
}


@pytest.mark.parametrize("text", BROKEN, ids=["a word for a number", "values that double without end"])
def test_a_broken_file_is_named_with_its_line_and_every_other_feed_goes_on(desk: Desk, text: str) -> None:
    line, message = BROKEN[text]
    desk.mapping(text.replace("feed: town-hall", "feed: broken-one"), "broken.yaml")
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
    assert ran.document["broken"] == listed["broken"]
    for verb in ("preview broken-one", "explain broken-one 1", "run broken-one --dry-run"):
        desk.run(*verb.split()).assert_told(2, f"broken.yaml:{line}:", message)
        assert desk.run(*verb.split(), "--json").document["error"]["problems"][0]["line"] == line


def test_a_link_that_leads_to_itself_among_the_feeds_harms_no_other_file(desk: Desk) -> None:
    (desk.folder / "feeds" / "_shared.yaml").symlink_to("_shared.yaml")
    (desk.folder / "feeds" / "looped.yaml").symlink_to("looped.yaml")
    assert [feed["feed"] for feed in desk.run("check", "--json", code=0).document["feeds"]] == [FEED]


CSV = ("\n".join([HEADER, *ROWS]) + "\n").encode()
BAD = "a-bad-one"
"""A feed that comes before the sound one."""


def put_bad_feed(desk: Desk, source: str) -> None:
    text = MAPPING.replace("source:\n  kind: csv\n  path: ../events.csv", f"source: {{{source}}}")
    desk.mapping(text.replace(f"feed: {FEED}", f"feed: {BAD}"), "a-bad.yaml")


def run_all(desk: Desk, code: int, *words: str) -> Any:
    """Run all feeds; return the document of the bad one. The sound one delivers."""
    runs = {run["feed"]: run for run in desk.run("run", "--all", *words, "--json", code=code).document["runs"]}
    assert (runs[FEED]["exit_code"], runs[FEED]["publish"]["delivered"]) == (0, 3)
    return runs.get(BAD)


@pytest.mark.parametrize(
    ("source", "content", "says"),
    [
        ("kind: json", b'[{"ID": "1"}, {"ID": ', "ends too early"),
        ("kind: csv, encoding: utf-16", CSV[:-1], "the file is not utf-16"),
    ],
)
def test_a_broken_source_stops_its_own_feed_and_the_next_one_delivers(desk: Desk, source: str, content: bytes, says: str) -> None:
    (desk.folder / "bad.file").write_bytes(content)
    put_bad_feed(desk, f"{source}, path: ../bad.file")
    with desk.service():
        bad = run_all(desk, 2, "--no-dagster")
    assert (bad["exit_code"], "bad.file" in bad["message"], says in bad["message"]) == (2, True, True)


class UnprintableError(Exception):
    """An error whose text is an error, and repeats a secret."""

    def __str__(self) -> str:
        (path,) = self.args
        raise ZeroDivisionError(f"{path} and {SECRET}")


class FaultyStore(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A driver that fails as no driver should."""

    protocol = "faulty"

    def info(self, path: str, **_: object) -> dict[str, Any]:
        raise UnprintableError(path)


@pytest.fixture
def faulty(desk: Desk) -> Iterator[Desk]:
    """A desk whose first feed meets a fault."""
    fsspec.register_implementation("faulty", FaultyStore, clobber=True)
    put_bad_feed(desk, "kind: csv, path: faulty://store/events.csv")
    with desk.service():
        yield desk


@pytest.mark.parametrize(
    "way", ["--no-dagster", pytest.param("--full", marks=pytest.mark.slow(about_s=10), id="through Dagster")]
)
def test_a_fault_of_ours_in_one_feed_is_its_failure_and_the_next_one_delivers(faulty: Desk, way: str) -> None:
    bad = run_all(faulty, 1, way)
    assert (bad["exit_code"], "a bug in eventsync while staging: ZeroDivisionError" in bad["message"]) == (1, True)
    if way == "--no-dagster":
        assert bad["outcome"] == "failed"
        assert all(told in bad["hint"] for told in (bad["run_id"], "eventsync 0", "report"))
        faulty.run("runs", bad["run_id"], code=0)
        for verb in ("feeds", "status"):
            assert [one["feed"] for one in faulty.told(verb)["feeds"]] == [BAD, FEED]


def test_a_fault_in_a_rehearsal_or_a_live_check_is_that_of_its_feed(faulty: Desk) -> None:
    rehearsals = faulty.run("run", "--all", "--dry-run", "--json", code=1).document["rehearsals"]
    assert {one["feed"]: one["exit_code"] for one in rehearsals} == {BAD: 1, FEED: 0}
    checked = faulty.run("check", "--live", "--json", code=1).document["feeds"]
    live = {(one["feed"], answer["asked"]): answer for one in checked for answer in one["live"]}
    source = live[BAD, "source"]
    assert (source["exit_code"], "a bug in eventsync" in source["told"]) == (1, True)
    assert live[FEED, "source"]["ok"]
    assert live[BAD, "channels"]["ok"]


@pytest.mark.parametrize("words", [("preview", BAD), ("explain", BAD, "1"), ("init", "faulty://store/events.csv")])
def test_a_fault_is_called_one_by_any_command_with_its_traceback_and_no_secret(faulty: Desk, words: tuple[str, ...]) -> None:
    said = faulty.run(*words, "--json", code=1)
    error = said.document["error"]
    assert holds(error, {"type": "FaultError", "message": "…a bug in eventsync", "hint": "…eventsync 0"})
    assert "Traceback" in said.err
    assert 'raise ZeroDivisionError(f"{path} and {SECRET}")' in said.err
    assert faulty.run(*words, code=1).out == ""


def test_of_several_feeds_the_worst_code_counts_in_the_order_of_the_page() -> None:
    order = [130, 2, 3, 5, 1, 4, 6, 0]
    assert [worst(order[place:]) for place in range(len(order) + 1)] == [*order, 0]
