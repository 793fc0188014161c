"""Cells, columns, keys and file names that a terminal would obey: no command prints or writes them as they are."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

from integration.desk import Said
from unit.cli.conftest import Desk, called

HOSTILE = "O\x1b[35md\x1b]0;title\x07e\x9b35m\r\b\x7f\u202eevil\u2066"
COLUMN = "GEN\x1b[35mRE\x9b\u202e"
FILE = "agenda\x1b[35m\u202e"
KEY = "k\x1b[35m\u202e1"
LONE = "half\ud800"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MARKS = "\u200e\u200f\u061c"
"""Direction marks of Arabic and Hebrew text, which stay."""
OWN_STYLES = re.compile(r"\x1b\[(?!35m)[\d;]*m")
"""Rich's bold, dim and red; it never prints the magenta of these rows."""
MAPPING = r"""
feed: town
source: {kind: json, path: "../in/*.json"}
key: [ID]
rows:
  - skip: {column: KIND, equals: online}
    because: "online \e[35m\u202eonly"
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE}
  startAt: {at: {day: {from: DAY, do: [{date: ["%Y-%m-%d"]}]}, zone: Europe/Warsaw, all_day: "19:30"}}
  timezone: Europe/Warsaw
  status: published
  classifications: {from: "GEN\e[35mRE\x9b\u202e", do: [{map: {concert: music, play: theatre}}]}
  approxLocation: {city: {placeId: krk}}
publish:
  brakes: {rejected: 90%}
"""
BROKEN = r"""
feed: broken
source: {kind: csv, path: "../in/*.csv"}
key: [ID]
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [{date: ["%Y \e[35m\u202e\x9b evil"]}]}
  "startAt\e[35m\u202e evil": x
"""
BEFORE = [
    {"ID": KEY, "TITLE": HOSTILE, "DAY": "2031-05-01", "KIND": "", COLUMN: "concert", "NOTE": HOSTILE},
    {"ID": "2", "TITLE": f"Abend{MARKS}", "DAY": "2031-05-02", "KIND": "", COLUMN: "play", "NOTE": HOSTILE},
    {"ID": "3", "TITLE": "Gone", "DAY": "2031-05-03", "KIND": "", COLUMN: "play", "NOTE": ""},
]
AFTER = [
    {**BEFORE[0], "TITLE": f"{HOSTILE} again"},
    BEFORE[1],
    {"ID": "4", "TITLE": HOSTILE, "DAY": HOSTILE, "KIND": "", COLUMN: HOSTILE, "NOTE": HOSTILE},
    {"ID": "5", "TITLE": HOSTILE, "DAY": "2031-05-05", "KIND": "online", COLUMN: "play", "NOTE": HOSTILE},
]
LONE_ROWS = [
    {"ID": "6", "TITLE": LONE, "DAY": "2031-05-06", "KIND": "", COLUMN: "play", "NOTE": LONE},
    {"ID": f"7{LONE}", "TITLE": "Seven", "DAY": LONE, "KIND": "", COLUMN: LONE, f"NOTE{LONE}": LONE},
]
SHOWING = {
    **dict.fromkeys(("status", "feeds", "metrics"), ()),
    "rows": ("town",),
    "rows delivered": ("town", "--state", "delivered"),
    "rows drift": ("town", "--state", "drift"),
    "rows rejected": ("town", "--state", "rejected"),
    "rows csv": ("town", "--state", "rejected", "--csv", "rows.csv"),
    "report": ("town",),
    "report html": ("town", "--html", "page.html"),
    "diff": ("town",),
    "diff of a row": ("town", KEY),
    "preview": ("town",),
    "explain": ("town", KEY),
    "explain a rejected row": ("town", "4"),
    "status of one": ("town",),
    "runs": ("town",),
    "check": ("town",),
    "check of a broken file": ("broken",),
    "run as a rehearsal": ("town", "--no-dagster", "--dry-run"),
    "run": ("town", "--no-dagster"),
    "init": (f"in/{FILE}.json", "--feed", "drafted-{manner}"),
    "init from csv": (f"in/{FILE}.csv", "--feed", "drafted-csv-{manner}"),
}
"""Commands, the first word being the verb, and their other words."""
MANNERS: dict[str, tuple[str, ...]] = {"terminal": (), "piped": (), "json": ("--json",)}
CODES = {"check of a broken file": {2}, "run": {0, 1}, "run as a rehearsal": {0, 1}}


class Stream(io.TextIOWrapper):
    """A stream in memory that may call itself a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]

    def text(self) -> str:
        self.seek(0)
        return self.read()


def _command(*words: str, is_terminal: bool = False) -> Said:
    out, err = Stream(is_terminal=is_terminal), Stream(is_terminal=False)
    code = called(words, out, err)
    return Said(code, out.text(), err.text())


def _write(folder: Path, rows: list[dict[str, str]]) -> None:
    """Write the rows as a CSV file and, with lone surrogates among them, as a JSON file."""
    with (folder / "in" / f"{FILE}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    (folder / "in" / f"{FILE}.json").write_text(json.dumps([*rows, *LONE_ROWS]), "ascii")


def _printed(folder: Path) -> Iterator[tuple[tuple[str, str], Said]]:
    """What each command prints in each manner, once the feed was run with the rows before and after."""
    (folder / "in").mkdir()
    (folder / "feeds" / "broken\udce9.yaml").write_text(BROKEN, "utf-8")
    for rows in (BEFORE, AFTER):
        _write(folder, rows)
        assert _command("run", "town", "--no-dagster").code in CODES["run"]
    for name, words in SHOWING.items():
        for manner, more in MANNERS.items():
            words_here = (name.split()[0], *(word.format(manner=manner) for word in words))
            yield (name, manner), _command(*words_here, *more, is_terminal=manner == "terminal")


def test_nothing_that_is_printed_or_exported_holds_what_a_terminal_obeys_and_hostile_text_can_still_be_recognised(
    desk: Desk,
) -> None:
    desk.mapping(MAPPING)
    desk.monkeypatch.setenv("TERM", "xterm-256color")
    with desk.service():
        said = dict(_printed(desk.folder))
    harmful = {which: HARMFUL.findall(OWN_STYLES.sub("", one.out)) + HARMFUL.findall(one.err) for which, one in said.items()}
    assert {which: found for which, found in harmful.items() if found} == {}
    assert {which: one.code for which, one in said.items() if one.code not in CODES.get(which[0], {0})} == {}
    assert [which for which, one in said.items() if "Traceback" in one.err] == []

    exported = {
        name: (desk.folder / name).read_bytes().decode("utf-8").replace("\r\n", "\n") for name in ("rows.csv", "page.html")
    }
    assert [name for name, text in exported.items() if HARMFUL.search(text)] == []
    names = ("rows rejected", "diff", "preview", "explain", "run", "check of a broken file")
    shown = exported | {name: said[name, "piped"].out + said[name, "piped"].err for name in names}
    assert [name for name, text in shown.items() if "\N{SYMBOL FOR ESCAPE}[35m" not in text or "evil" not in text] == []
    marked = [exported["page.html"], *(said["preview", manner].out for manner in MANNERS)]
    assert [f"Abend{MARKS}" in text for text in marked] == [True] * 4, "direction marks of Arabic and Hebrew text stay"
    rows = json.loads(said["rows rejected", "json"].out)["rows"]
    assert HOSTILE in [row["cells"]["TITLE"] for row in rows], "a document gives the cells back as they were"
