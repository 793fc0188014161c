"""A page for an editor stays small enough to be opened, and says how many rows it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli.output.partner_page import (
    HEADINGS,
    MOST_LINES,
    Line,
    Page,
    Point,
    Room,
    Section,
    SectionName,
    write_page,
)
from pipelines.cli.report import text_of

AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
LONG = "x" * 1_000


def lines(count: int) -> Iterator[Line]:
    return (
        Line(at=f"events.csv:{number}", name="A row", is_new=True, points=(Point("Wrong.", found=LONG),))
        for number in range(count)
    )


def page_with(section: Section, folder: Path) -> str:
    page = Page("town-hall", "", AT, AT, is_whole=False, since=None, sections=(section,))
    size = write_page(page, folder / "page.html")
    written = (folder / "page.html").read_bytes()
    assert len(written) == size
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    return " ".join(written.decode("utf-8").split())


def test_a_section_shows_so_many_rows_and_counts_them_all() -> None:
    section = Room().fill(Section(SectionName.LOOK), (Line(at="a", name="b") for _ in range(MOST_LINES + 5)))
    assert (len(section.lines), section.total, section.left_out) == (MOST_LINES, MOST_LINES + 5, 5)


def test_a_page_without_room_left_says_what_it_leaves_out_and_where_all_is(tmp_path: Path) -> None:
    section = Room(left=3_000).fill(Section(SectionName.MEND), lines(50))
    assert (len(section.lines), section.total, section.new) == (3, 50, 50)
    said = page_with(section, tmp_path)
    assert "47 more are not on this page" in said
    assert "eventsync rows town-hall --state rejected --csv" in said
    assert "Only what had changed was read then" in said


def test_one_row_too_many_is_told_as_one_and_a_section_of_several_states_names_no_command(tmp_path: Path) -> None:
    said = page_with(Room(left=1).fill(Section(SectionName.UNDER_WAY), lines(2)), tmp_path)
    assert "1 more is not on this page, which would be too large with it." in said
    assert "eventsync rows" not in said


def test_every_section_has_its_words() -> None:
    assert list(HEADINGS) == list(SectionName)


@given(st.text(alphabet=st.characters(), max_size=400))
def test_any_text_is_cut_to_what_a_page_shows(text: str) -> None:
    assert len(text_of(text)) <= 301
    assert text_of(text)[:300] == text[:300]


def test_half_a_character_and_a_control_character_are_shown_as_signs(tmp_path: Path) -> None:
    section = Room().fill(Section(SectionName.LOOK), [Line(at="a", name="a\ud800<b>\x00", event_id=1, link="https://x/\udce9")])
    said = page_with(section, tmp_path)
    assert "a\ufffd&lt;b&gt;␀" in said
    assert 'href="https://x/\ufffd"' in said
