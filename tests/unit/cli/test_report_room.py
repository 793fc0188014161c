"""A page for an editor stays small enough to be opened, and says how many rows it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli.report import HEADINGS, MOST_LINES, Line, Point, Report, Section, SectionName, text_of, write_page

AT = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
LONG = "x" * 1_000


def lines(count: int) -> Iterator[Line]:
    return (
        Line(at=f"events.csv:{number}", name="A row", is_new=True, points=(Point("Wrong.", found=LONG),))
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


def section_of(name: SectionName, shown: Iterator[Line], room: int) -> Section:
    section = Section(name)
    section.fill(shown, room)
    return section


def test_a_section_shows_so_many_rows_and_counts_them_all() -> None:
    section = Section(SectionName.LOOK)
    section.fill(Line(at="a", name="b") for _ in range(MOST_LINES + 5))
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


def test_every_section_has_its_words() -> None:
    assert list(HEADINGS) == list(SectionName)


@given(st.text(alphabet=st.characters(), max_size=400))
def test_any_text_is_cut_to_what_a_page_shows(text: str) -> None:
    assert len(text_of(text)) <= 301
    assert text_of(text)[:300] == text[:300]


def test_half_a_character_and_a_control_character_are_shown_as_signs(tmp_path: Path) -> None:
    section = Section(SectionName.LOOK)
    section.fill([Line(at="a", name="a\ud800<b>\x00", event_id=1, link="https://x/\udce9")])
    said = page_with(section, tmp_path)
    assert "a\ufffd&lt;b&gt;␀" in said
    assert 'href="https://x/\ufffd"' in said
