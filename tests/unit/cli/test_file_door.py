"""Which files a mapping file may name: those below its folder, or below one that the environment names."""

from __future__ import annotations

import os
import zipfile

import pytest
from unit.cli.conftest import GOOD, HEADER, MAPPING, Desk

LINE = "top-secret-words: of another program"
INCLUDED = MAPPING.replace("key: [ID]", "include: [{place}]\nkey: [ID]")
LOOKED_UP = MAPPING.replace("{map: {concert: music, play: theatre}}", "{lookup: '{place}'}")
READ = MAPPING.replace("path: ../events.csv", "path: '{place}'")


@pytest.fixture
def shut(desk: Desk) -> Desk:
    """The desk without any folder named; beside its folder of feeds, files of another program and links to them."""
    desk.monkeypatch.delenv("EVENTSYNC_FILES")
    feeds = desk.folder / "feeds"
    (desk.folder / "outside.csv").write_text(f"{LINE}\n{HEADER}\n", "utf-8")
    (desk.folder / "outside.yaml").write_text(f"{LINE}\n", "utf-8")
    (feeds / "link.csv").symlink_to(desk.folder / "outside.csv")
    (feeds / "_link.yaml").symlink_to(desk.folder / "outside.yaml")
    (feeds / "environ.csv").symlink_to("/proc/self/environ")
    with zipfile.ZipFile(desk.folder / "outside.zip", "w") as packed:
        packed.writestr("a.csv", LINE)
    return desk


PLACES = (
    "{folder}/outside.{end}",
    "../outside.{end}",
    "{link}.{end}",
    "/proc/self/environ",
    "/etc/hosts",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("text", "end"), [(INCLUDED, "yaml"), (LOOKED_UP, "csv"), (READ, "csv")])
def test_a_file_outside_is_refused_and_nothing_of_it_is_shown(text: str, end: str, place: str, shut: Desk) -> None:
    place = place.format(folder=shut.folder, end=end, link="_link" if end == "yaml" else "link")
    (shut.folder / "feeds" / "town.yaml").write_text(text.replace("{place}", place), "utf-8")
    for command in ("check", "preview town-hall"):
        said = shut.run(*command.split())
        where = "from which no feed is read" if "proc" in place else "is outside of the folder of the mapping file"
        assert where in said.words, command
        said.assert_told(0 if (text, command) == (READ, "check") else 2)
        assert "secret" not in said.words
        assert "localhost" not in said.words


ADDRESSES = (
    *("file://{folder}/outside.csv", "local://{folder}/outside.csv", "file:///proc/self/environ", "feeds/environ.csv"),
    *("zip://a.csv::{folder}/outside.zip", "zip://a.csv::file://{folder}/outside.zip", "simplecache::file:{folder}/outside.csv"),
    *("simplecache::{folder}/outside.csv", "reference://a::file://{folder}/outside.csv", "*.csv", "../out*.csv"),
)


@pytest.mark.parametrize("place", ADDRESSES)
def test_no_address_or_pattern_leads_to_a_file_outside(place: str, shut: Desk) -> None:
    text = READ.replace("{place}", place.format(folder=shut.folder)).replace("feeds/", "")
    (shut.folder / "feeds" / "town.yaml").write_text(text, "utf-8")
    said = shut.run("preview", "town-hall")
    said.assert_told(2)
    assert any(words in said.words for words in ("is outside", "no feed is read", "may lead to any file")), said.words
    assert "secret" not in said.words


def test_folders_that_the_environment_names_and_the_feeds_own_are_open(shut: Desk) -> None:
    (shut.folder / "in").mkdir()
    shut.source(GOOD)
    (shut.folder / "events.csv").replace(shut.folder / "in" / "events.csv")
    shut.monkeypatch.setenv("EVENTSYNC_FILES", f"elsewhere{os.pathsep}in")
    for place in ("../in/events.csv", "../in/*.csv", f"file://{shut.folder}/in/events.csv"):
        (shut.folder / "feeds" / "town.yaml").write_text(READ.replace("{place}", place), "utf-8")
        shut.run("preview", "town-hall").assert_told(0, "Hamlet")
    (shut.folder / "in" / "events.csv").replace(shut.folder / "feeds" / "events.csv")
    shut.monkeypatch.delenv("EVENTSYNC_FILES")
    (shut.folder / "feeds" / "town.yaml").write_text(READ.replace("{place}", "events.csv"), "utf-8")
    shut.run("preview", "town-hall").assert_told(0, "Hamlet")


def test_init_reads_a_file_that_a_person_names_and_says_where_a_feed_may_read_it(shut: Desk) -> None:
    shut.source(GOOD)
    shut.run("init", "events.csv", "--feed", "drafted").assert_told(0, "name its folder in EVENTSYNC_FILES")
    shut.run("check", "drafted").assert_told(0, "name its folder in EVENTSYNC_FILES")


def test_a_mapping_file_that_is_a_link_to_a_file_outside_is_not_read(shut: Desk) -> None:
    (shut.folder / "feeds" / "linked.yaml").symlink_to(shut.folder / "outside.yaml")
    said = shut.run("check")
    said.assert_told(2, "linked.yaml", "is outside of the folder of the mapping file")
    assert "secret" not in said.words
