"""One feed whose source is broken, or that meets a fault of ours, harms no other feed; documents are printed all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from unit.cli.conftest import FEED, HEADER, MAPPING, ROWS, SECRET, Desk

from pipelines.cli.output.console import worst

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


@pytest.mark.parametrize("encoding", ["idna", "punycode", "undefined", "hex", "unicode_escape", "zlib", "rot13"])
def test_an_encoding_that_is_no_character_set_is_a_mistake_at_its_position(desk: Desk, encoding: str) -> None:
    put_bad_feed(desk, f"kind: csv, path: ../events.csv, encoding: {encoding}")
    (problem,) = desk.told("check", "feeds/a-bad.yaml")["feeds"][0]["problems"]
    column = (desk.folder / "feeds" / "a-bad.yaml").read_text("utf-8").splitlines()[1].index(encoding) + 1
    assert (problem["line"], problem["column"], problem["message"].partition(" is ")[0]) == (2, column, f'"{encoding}"')


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
    assert (bad["exit_code"], "a fault of eventsync while staging: ZeroDivisionError" in bad["message"]) == (1, True)
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
    assert (source["exit_code"], "a fault of eventsync" in source["told"]) == (1, True)
    assert live[FEED, "source"]["ok"]
    assert live[BAD, "channels"]["ok"]


@pytest.mark.parametrize("words", [("preview", BAD), ("explain", BAD, "1"), ("init", "faulty://store/events.csv")])
def test_a_fault_is_called_one_by_any_command_with_its_traceback_and_no_secret(faulty: Desk, words: tuple[str, ...]) -> None:
    said = faulty.run(*words, "--json", code=1)
    error = said.document["error"]
    assert (error["type"], "a fault of eventsync" in error["message"], "eventsync 0" in error["hint"]) == (
        "FaultError",
        True,
        True,
    )
    assert "Traceback" in said.err
    assert 'raise ZeroDivisionError(f"{path} and {SECRET}")' in said.err
    assert faulty.run(*words, code=1).out == ""


def test_of_several_feeds_the_worst_code_counts_in_the_order_of_the_page() -> None:
    order = [130, 2, 3, 5, 1, 4, 6, 0]
    assert [worst(order[place:]) for place in range(len(order) + 1)] == [*order, 0]
