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
from unit.cli.conftest import ROWS, Desk

from pipelines.cli.report import MOST_LINES, Line, Point, Report, Section, SectionName, text_of, write_page

EDITED = (
    "1,Jazz again,2030-05-01,19:30,,concert",
    "2,,2030-13-01,19:30,,concert",
    "4,=HYPERLINK(1),2030-05-02,19:30,,poetry",
    "5,Hamlet,2030-05-03,20:00,,play",
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
        assert desk.run("run", "town-hall", "--no-dagster").code == 0
        desk.source(EDITED)
        assert desk.run("run", "town-hall", "--no-dagster", "--accept", "copies", "--accept", "rejected").code in {0, 1}
        yield desk


def page_of(desk: Desk, *words: str) -> tuple[str, Page]:
    said = desk.run("report", "town-hall", "--html", "page.html", *words)
    assert said.code == 0, said.err
    text = (desk.folder / "page.html").read_text("utf-8")
    assert "sk-test" not in text
    return text, Page(text)


def test_the_editor_reads_what_to_mend_with_its_place_its_value_and_what_would_be_right(reported: Desk) -> None:
    _, page = page_of(reported)
    mend = page.words["mend"]
    assert "events.csv:3" in mend
    assert "GENRE poetry : This value is not in the agreed list." in mend
    assert "All cells of events.csv:4" in mend
    assert "<script>alert(1)</script>" in mend
    assert "Rows held back as copies (1)" in page.words["held"]
    assert "An earlier version" not in mend


def test_the_editor_reads_what_is_online_what_differs_and_what_is_gone(reported: Desk) -> None:
    _, page = page_of(reported, "--link", "https://events.example/e/{id}")
    assert "title : online Jazz , in your file Jazz again" in page.words["changed"]
    assert "under-way" not in page.words
    assert "Othello" in page.words["gone"]
    assert "Hamlet 2030-05-03 20:00 (Europe/Warsaw)" in page.words["online"]
    links = [known["href"] for known in page.all("a") if known.get("rel")]
    rows = reported.run("rows", "town-hall", "--state", "delivered", "--json").document["rows"]
    assert {f"https://events.example/e/{row['event_id']}" for row in rows} == set(links)


def test_what_is_new_is_said_in_words(reported: Desk) -> None:
    sections = reported.run("report", "town-hall", "--json").document["sections"]
    assert (sections["mend"], sections["online"]) == (
        {"rows": 3, "new": 1, "shown": 3},
        {"rows": 4, "new": 1, "shown": 4},
    )
    assert reported.run("report", "town-hall", "--since", "1d", "--json").document["sections"]["mend"]["new"] == 3
    assert reported.run("report", "town-hall", "--since", "2099-01-01", "--json").document["sections"]["mend"]["new"] == 0
    text, _ = page_of(reported)
    assert "to mend, 1 new" in text


def test_a_page_runs_nothing_and_asks_nobody(reported: Desk) -> None:
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


def test_a_page_is_built_for_a_screen_reader(reported: Desk) -> None:
    text, page = page_of(reported)
    tags = [tag for tag, _ in page.elements]
    assert page.all("html")[0]["lang"] == "en"
    assert [tags.count(tag) for tag in ("h1", "main", "header", "footer", "nav")] == [1, 1, 1, 1, 1]
    assert all(known.get("scope") in {"row", "col"} for known in page.all("th"))
    assert tags.count("caption") == tags.count("table")
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
        assert desk.run("run", "town-hall", "--no-dagster").code == 5
        _, page = page_of(desk)
    assert "Rows to mend, 201 to 250" in page.words["mend"]
    assert "The same problem, many times" in page.words["mend"]
    assert "poetry This value is not in the agreed list. 250" in page.words["mend"]
    assert page.words["mend"].count("All cells of") == 250
    assert "Nothing new was put online after the last read: too many of its rows cannot be used." in (
        (desk.folder / "page.html").read_text("utf-8")
    )
    assert desk.run("report", "town-hall", "--json").document["stopped_by"] == ["rejected"]


def test_before_the_first_run_the_page_says_so_and_nothing_is_made(desk: Desk) -> None:
    _, page = page_of(desk)
    assert "Rows to mend (0)" in page.words["mend"]
    assert desk.run("report", "town-hall", "--json").document["read_at"] is None
    assert not desk.state.exists()


@pytest.mark.parametrize(
    "words",
    [("--since", "soon"), ("--link", "javascript:alert({id})"), ("--link", "https://x.example/"), ("--html", "no/x.html")],
)
def test_what_cannot_be_understood_or_written_is_told(desk: Desk, words: tuple[str, str]) -> None:
    said = desk.run("report", "town-hall", *words, "--json")
    assert said.code == 2
    assert words[1] in said.document["error"]["message"]


def test_a_text_that_no_page_can_show_is_shown_by_its_signs(desk: Desk) -> None:
    desk.source([*ROWS, "9,Bell\x07 \u202etxet,2030-05-01,19:30,,poe\x01try"])
    with desk.service():
        desk.run("run", "town-hall", "--no-dagster", "--accept", "rejected")
    text, page = page_of(desk)
    assert "poe␁try" in page.words["mend"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)


AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)


def lines(count: int) -> Iterator[Line]:
    return (
        Line(at=f"events.csv:{number}", name="A row", is_new=True, points=(Point("Wrong.", found="x" * 1_000),))
        for number in range(count)
    )


def page_with(section: Section, folder: Path) -> str:
    page = Report(
        feed="town-hall",
        service="",
        made_at=AT,
        read_at=AT,
        is_whole=False,
        rows_read=None,
        since=None,
        stopped_by=(),
        sections={},
        html=None,
        bytes=None,
    )
    size = write_page(page, [section], folder / "page.html")
    written = (folder / "page.html").read_bytes()
    assert len(written) == size
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    return " ".join(written.decode("utf-8").split())


def section_of(name: SectionName, shown: Iterable[Line], room: int = 1_000_000) -> Section:
    section = Section(name)
    section.fill(shown, room)
    return section


def test_a_section_shows_so_many_rows_and_counts_them_all() -> None:
    section = section_of(SectionName.LOOK, (Line(at="a", name="b") for _ in range(MOST_LINES + 5)))
    assert (len(section.lines), section.total) == (MOST_LINES, MOST_LINES + 5)


def test_a_page_without_room_left_says_what_it_leaves_out_and_where_all_is(tmp_path: Path) -> None:
    section = section_of(SectionName.MEND, lines(50), room=3_000)
    assert (len(section.lines), section.total, section.new) == (3, 50, 50)
    said = page_with(section, tmp_path)
    assert "47 more are not on this page" in said
    assert "eventsync rows town-hall --state rejected --csv" in said
    assert "Only what had changed was read then" in said


def test_one_row_too_many_is_told_as_one_and_a_section_of_several_states_names_no_command(tmp_path: Path) -> None:
    said = page_with(section_of(SectionName.UNDER_WAY, lines(2), room=1), tmp_path)
    assert "1 more is not on this page, which would be too large with it." in said
    assert "eventsync rows" not in said


@given(st.text(alphabet=st.characters(), max_size=400))
def test_any_text_is_cut_to_what_a_page_shows(text: str) -> None:
    assert len(text_of(text)) <= 301
    assert text_of(text)[:300] == text[:300]


def test_half_a_character_and_a_control_character_are_shown_as_signs(tmp_path: Path) -> None:
    line = Line(at="a", name="a\ud800<b>\x00", event_id=1, link="https://x/\udce9")
    said = page_with(section_of(SectionName.LOOK, [line]), tmp_path)
    assert "a\ufffd&lt;b&gt;␀" in said
    assert 'href="https://x/\ufffd"' in said
