"""`eventsync report`: the page for a partner's editor, read as a browser and a screen reader read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.cli.conftest import MAPPING, ROWS, Desk

from mappings.sentences import Words
from pipelines.cli.output.console import shortened
from pipelines.cli.report import MOST_LINES, Line, Point, Report, Section, SectionName, write_page

EDITED = (
    "1,Jazz again,2030-05-01,19:30,,concert",
    *(ROWS[number] for number in (1, 3, 4)),
    "7,<script>alert(1)</script>,2030-05-08,20:00,,opera",
    "8,Odes & <b>songs</b>,2030-05-09,20:00,,play",
    "9,Odes & <b>songs</b>,2030-05-09,20:00,,play",
)
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """A page taken apart: every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, str] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.elements.append((tag, known))
        if tag not in VOID:
            self._open.append((tag, known.get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.words[name] = f"{self.words.get(name, '')} {' '.join(data.split())}".strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [known for name, known in self.elements if name == tag]


@pytest.fixture
def reported(desk: Desk) -> Iterator[Desk]:
    """One row edited since it was delivered, one gone, three that cannot be used, one that looks like another."""
    with desk.service():
        desk.sync(code=0)
        desk.source(EDITED)
        desk.sync("--accept", "copies", "--accept", "rejected")
        yield desk


def page_of(desk: Desk, *words: str) -> tuple[str, Page]:
    desk.run("report", "town-hall", "--html", "page.html", *words, code=0)
    text = (desk.folder / "page.html").read_text("utf-8")
    assert "sk-test" not in text
    return text, Page(text)


def test_the_editor_reads_what_to_mend_what_is_online_what_differs_and_what_is_gone(reported: Desk) -> None:
    text, page = page_of(reported, "--link", "https://events.example/e/{id}")
    for section, shown in (
        ("mend", "Row 3 of events.csv"),
        ("mend", 'GENRE : "poetry" is not one of the words that we know here. We know "concert" and "play", for example.'),
        ("mend", "All cells: Row 4 of events.csv"),
        ("mend", "<script>alert(1)</script>"),
        ("held", "Rows held back as copies (1)"),
        ("changed", "Jazz changed 1 May 2030"),
        ("changed", "title : online Jazz , in your file Jazz again"),
        ("gone", "Othello"),
        ("online", "Hamlet 3 May 2030, 20:00 (Europe/Warsaw)"),
    ):
        assert shown in page.words[section]
    assert ("under-way" in page.words, "An earlier version" in page.words["mend"]) == (False, False)
    assert "to mend, 1 new" in text
    links = {known["href"] for known in page.all("a") if known.get("rel")}
    rows = reported.told("rows", "town-hall", "--state", "delivered")["rows"]
    assert links == {f"https://events.example/e/{row['event_id']}" for row in rows}


def test_the_numbers_of_the_page_add_up_to_the_rows_read_with_what_rules_leave_out_and_drafts_apart(desk: Desk) -> None:
    drafts = "  status: {from: KIND, on_empty: {use: published}}\n"
    desk.mapping(MAPPING.replace("  status: published\n", drafts))
    draft = "8,Odes,2030-05-09,20:00,draft,play"
    desk.source([*ROWS, "7,Talk,2030-05-08,20:00,online,play", draft])
    with desk.service():
        desk.sync("--accept", "rejected")
        desk.source([ROWS[0].replace("Jazz", "Blues"), ROWS[1].replace("2,", "6,"), *ROWS[2:5], draft])
        desk.sync("--accept", "rejected")
    report = desk.told("report", "town-hall")
    counts = {name: one["rows"] for name, one in report["sections"].items() if one["rows"]}
    assert counts == {"mend": 2, "changed": 1, "left-out": 1, "drafts": 1, "online": 1}
    assert (sum(counts.values()), report["left_out"]) == (report["rows_read"], {"online only": 1})
    _, page = page_of(desk)
    assert "online only : 1" in page.words["left-out"]
    assert "Odes" in page.words["drafts"]
    assert {row["problem"] for row in desk.told("rows", "town-hall", "--state", "delivered")["rows"]} == {"", "as a draft"}
    assert "in the ledger: delivered, event 100004: as a draft" in desk.run("explain", "town-hall", "8", code=0).out


def test_a_page_runs_nothing_asks_nobody_and_is_built_for_a_screen_reader(reported: Desk) -> None:
    text, page = page_of(reported)
    assert not {"script", "img", "iframe", "link", "object", "embed", "form", "base"} & {tag for tag, _ in page.elements}
    assert not [known for _, known in page.elements if any(name.startswith("on") or name in {"src", "style"} for name in known)]
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [known["content"] for known in page.all("meta") if known.get("http-equiv") == "Content-Security-Policy"]
    assert (policy or "").startswith("default-src 'none'; style-src 'sha256-")
    hrefs = [known["href"] or "" for known in page.all("a")]
    assert all(href.startswith("#") for href in hrefs)
    assert {href[1:] for href in hrefs} <= {known.get("id") for _, known in page.elements}
    tags = [tag for tag, _ in page.elements]
    assert (page.all("html")[0]["lang"], tags.count("caption")) == ("en", tags.count("table"))
    assert [tags.count(tag) for tag in ("h1", "main", "header", "footer", "nav")] == [1] * 5
    assert {known.get("scope") for known in page.all("th")} == {"row", "col"}
    assert all(known["aria-labelledby"] == f"{known['id']}-title" for known in page.all("section"))
    ids = [known["id"] for _, known in page.elements if "id" in known]
    assert len(ids) == len(set(ids))
    assert "<title>town-hall: what became of your rows</title>" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(scheme: str) -> None:
    """WCAG 2.2, 1.4.6: 7 to 1."""
    css = (Path(__file__).parents[3] / "pipelines" / "cli" / "output" / "pages" / "report.css").read_text("utf-8")
    block = css.partition("prefers-color-scheme: dark")[2] if scheme == "dark" else css
    colours = dict(re.findall(r"--(\w+): (#\w{6})", block.partition("}")[0]))
    for ground in ("paper", "tint"):
        for words in ("ink", "soft", "link", "bad", "good", "mark"):
            assert _contrast(colours[words], colours[ground]) >= 7, (words, ground)


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_many_rows_are_folded_and_the_same_problem_is_told_once(desk: Desk) -> None:
    desk.source([f"{number},Evening {number},2030-05-01,19:30,,poetry" for number in range(250)])
    with desk.service():
        desk.sync(code=5)
        text, page = page_of(desk)
    many = (
        "Rows to mend, 201 to 250",
        "The same problem, many times",
        'GENRE "poetry" is not one of the words that we know here. 250',
    )
    assert [shown for shown in many if shown not in page.words["mend"]] == []
    assert page.words["mend"].count("All cells: ") == 250
    assert "Nothing new was put online after the last read. Too many of its rows cannot be used." in text
    assert desk.told("report", "town-hall")["stopped_by"] == ["rejected"]


def lines(count: int) -> Iterator[Line]:
    points = (Point("x" * 1_000),)
    return (Line(at=f"events.csv:{number}", name="A row", is_new=True, points=points) for number in range(count))


def page_with(folder: Path, name: SectionName, shown: Iterable[Line], room: int = 1_000_000) -> tuple[Section, str]:
    """Fill a section and write a page with it; return the section, and the page's text on one line."""
    section, at = Section(name), datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
    section.fill(shown, room)
    told = {"feed": "town-hall", "service": "", "made_at": at, "read_at": at, "is_whole": False, "rows_read": None, "since": None}
    page = Report(**told, stopped_by=(), sections={}, left_out={}, html=None, bytes=None)  # type: ignore[typeddict-item]
    size = write_page(page, [section], folder / "page.html", Words())
    written = (folder / "page.html").read_bytes()
    assert (len(written), [path.name for path in folder.iterdir()]) == (size, ["page.html"])
    return section, " ".join(written.decode("utf-8").split())


def test_a_page_without_room_left_says_what_it_leaves_out_and_where_all_is(tmp_path: Path) -> None:
    section = Section(SectionName.LOOK)
    section.fill((Line(at="a", name="b") for _ in range(MOST_LINES + 5)), 1_000_000)
    assert (len(section.lines), section.total) == (MOST_LINES, MOST_LINES + 5)
    section, said = page_with(tmp_path, SectionName.MEND, lines(50), room=3_000)
    assert (len(section.lines), section.total, section.new) == (3, 50, 50)
    assert "47 more are not on this page" in said
    assert "eventsync rows town-hall --state rejected --csv" in said
    assert "Only a part of it was read then" in said
    _, said = page_with(tmp_path, SectionName.UNDER_WAY, lines(2), room=1)
    assert "1 more is not on this page, which would be too large with it." in said
    assert "eventsync rows" not in said, "its rows are of several states"


@given(st.text(alphabet=st.characters(), max_size=400))
def test_any_text_is_cut_to_what_a_page_shows(text: str) -> None:
    assert len(shortened(text)) <= 301
    assert shortened(text)[:300] == text[:300]


def test_half_a_character_and_a_control_character_are_shown_as_signs(tmp_path: Path) -> None:
    line = Line(at="a", name="a\ud800<b>\x00", event_id=1, link="https://x/\udce9")
    _, said = page_with(tmp_path, SectionName.LOOK, [line])
    assert "a\ufffd&lt;b&gt;␀" in said
    assert 'href="https://x/\ufffd"' in said
