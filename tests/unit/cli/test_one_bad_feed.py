"""One feed whose source is broken, or that meets a fault of ours, harms no other feed; documents are printed all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from unit.cli.conftest import HEADER, MAPPING, ROWS, SECRET, Desk

from pipelines.cli.output.console import worst

CSV = ("\n".join([HEADER, *ROWS]) + "\n").encode()
BAD = "a-bad-one"
"""A feed that comes before the sound one."""


def put_bad_feed(desk: Desk, kind: str, content: bytes, more: str = "") -> None:
    (desk.folder / "bad.file").write_bytes(content)
    source = f"{{kind: {kind}, path: ../bad.file{more}}}"
    text = MAPPING.replace("source:\n  kind: csv\n  path: ../events.csv", f"source: {source}")
    desk.mapping(text.replace("feed: town-hall", f"feed: {BAD}"), "a-bad.yaml")


def runs_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {run["feed"]: run for run in document["runs"]}


@pytest.mark.parametrize(
    ("kind", "content", "more", "says"),
    [
        ("json", b'[{"ID": "1"}, {"ID": ', "", "ends too early"),
        ("csv", CSV[:-1], ", encoding: utf-16", "the file is not utf-16"),
    ],
)
def test_a_broken_source_stops_its_own_feed_and_the_next_one_delivers(
    desk: Desk, kind: str, content: bytes, more: str, says: str
) -> None:
    put_bad_feed(desk, kind, content, more)
    with desk.service():
        said = desk.run("run", "--all", "--no-dagster", "--json")
    assert said.code == 2
    runs = runs_of(said.document)
    assert (runs[BAD]["exit_code"], runs["town-hall"]["exit_code"]) == (2, 0)
    assert "bad.file" in runs[BAD]["message"]
    assert says in runs[BAD]["message"]
    assert runs["town-hall"]["publish"]["delivered"] == 3


@pytest.mark.parametrize("encoding", ["idna", "punycode", "undefined", "hex", "unicode_escape", "zlib", "rot13"])
def test_an_encoding_that_is_no_character_set_is_a_mistake_at_its_position(desk: Desk, encoding: str) -> None:
    put_bad_feed(desk, "csv", CSV, f", encoding: {encoding}")
    (problem,) = desk.run("check", "feeds/a-bad.yaml", "--json").document["feeds"][0]["problems"]
    assert (problem["line"], problem["message"].partition(" is ")[0]) == (2, f'"{encoding}"')
    column = (desk.folder / "feeds" / "a-bad.yaml").read_text("utf-8").splitlines()[1].index(encoding) + 1
    assert problem["column"] == column
    with desk.service():
        said = desk.run("run", "--all", "--no-dagster", "--json")
    assert (said.code, runs_of(said.document)["town-hall"]["exit_code"]) == (2, 0)


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
    text = MAPPING.replace("path: ../events.csv", "path: faulty://store/events.csv")
    desk.mapping(text.replace("feed: town-hall", f"feed: {BAD}"), "a-bad.yaml")
    with desk.service():
        yield desk


def test_a_fault_of_ours_in_one_feed_is_its_failure_and_the_next_one_delivers(faulty: Desk) -> None:
    said = faulty.run("run", "--all", "--no-dagster", "--json")
    runs = runs_of(said.document)
    bad = runs[BAD]
    assert (said.code, bad["exit_code"], bad["outcome"]) == (1, 1, "failed")
    assert runs["town-hall"]["publish"]["delivered"] == 3
    assert "a fault of eventsync while staging: ZeroDivisionError" in bad["message"]
    assert all(told in bad["hint"] for told in (bad["run_id"], "eventsync 0", "report"))
    assert "Traceback" in said.err
    assert 'raise ZeroDivisionError(f"{path} and {SECRET}")' in said.err
    assert faulty.run("runs", bad["run_id"], "--json").code == 0


def test_a_fault_in_a_rehearsal_is_the_failure_of_its_feed(faulty: Desk) -> None:
    said = faulty.run("run", "--all", "--dry-run", "--json")
    codes = {one["feed"]: one["exit_code"] for one in said.document["rehearsals"]}
    assert (said.code, codes) == (1, {BAD: 1, "town-hall": 0})


def test_a_fault_in_a_live_check_is_a_finding_of_its_feed(faulty: Desk) -> None:
    said = faulty.run("check", "--live", "--json")
    live = {one["feed"]: {answer["asked"]: answer for answer in one["live"]} for one in said.document["feeds"]}
    assert (said.code, live[BAD]["source"]["exit_code"]) == (1, 1)
    assert "a fault of eventsync" in live[BAD]["source"]["told"]
    assert live["town-hall"]["source"]["ok"]
    assert live[BAD]["channels"]["ok"]


@pytest.mark.parametrize("words", [("preview", BAD), ("explain", BAD, "1"), ("init", "faulty://store/events.csv")])
def test_a_fault_is_told_as_one_by_any_command(faulty: Desk, words: tuple[str, ...]) -> None:
    said = faulty.run(*words, "--json")
    error = said.document["error"]
    assert (said.code, error["type"]) == (1, "FaultError")
    assert "a fault of eventsync" in error["message"]
    assert "eventsync 0" in error["hint"]
    assert "Traceback" in said.err
    faulty_again = faulty.run(*words)
    assert (faulty_again.code, faulty_again.out) == (1, "")


@pytest.mark.parametrize("words", [("feeds",), ("status",)])
def test_a_feed_that_meets_a_fault_is_listed_like_any_other(faulty: Desk, words: tuple[str, ...]) -> None:
    faulty.run("run", "--all", "--no-dagster", "--json")
    said = faulty.run(*words, "--json")
    assert (said.code, [one["feed"] for one in said.document["feeds"]]) == (0, [BAD, "town-hall"])


def test_of_several_feeds_the_worst_code_counts_in_the_order_of_the_page() -> None:
    order = [130, 2, 3, 5, 1, 4, 6, 0]
    for place, code in enumerate(order):
        assert worst(order[place:]) == code
    assert worst([]) == 0


@pytest.mark.slow(about_s=10)
def test_a_fault_in_one_feed_is_its_failure_through_dagster_too(faulty: Desk) -> None:
    said = faulty.run("run", "--all", "--json")
    runs = runs_of(said.document)
    assert (said.code, runs[BAD]["exit_code"], runs["town-hall"]["exit_code"]) == (1, 1, 0)
    assert "a fault of eventsync while staging: ZeroDivisionError" in runs[BAD]["message"]
    assert runs["town-hall"]["publish"]["delivered"] == 3
