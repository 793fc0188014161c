"""`eventsync init --answers FILE`: a script gives what a sample cannot show."""

from __future__ import annotations

import json

import pytest
from unit.cli.conftest import Desk

PARTNER = """\
id,title,date,city,category
R-1,Fado at dusk,03/04/2031,Lisbon,Concert
R-2,Book fair,05/06/2031,Porto,Market
"""
ANSWERS = {
    "channel": "city-agenda",
    "dates": "day-first",
    "classifications": {"Concert": "music", "Market": "market", "": "culture"},
    "places": {"Lisbon": "lisboa", "Porto": "101"},
}


def drafted(desk: Desk, answers: str, *words: str, code: int, source: str = PARTNER) -> str:
    """Draft a feed with these answers; return the mapping file, or else what was said on stderr."""
    (desk.folder / "partner.csv").write_text(source, "utf-8")
    (desk.folder / "answers.yaml").write_text(answers, "utf-8")
    said = desk.run("init", "partner.csv", "--answers", "answers.yaml", *words, code=code)
    out = desk.folder / "feeds" / "partner.yaml"
    assert out.exists() == (code == 0)
    return said.err if code else out.read_text("utf-8")


def test_answers_of_a_file_leave_nothing_to_fill_in(desk: Desk) -> None:
    with desk.service():
        text = drafted(desk, json.dumps(ANSWERS), "--json", code=0)
    assert text.count("fill-in") == 1, "the comment that explains the word"
    assert '  starts: {from: date, do: [{date: "%d/%m/%Y"}]}\n' in text
    assert '            Lisbon: lisboa # 1 row\n            Porto: "101" # 1 row\n' in text
    (checked,) = desk.told("check", "partner")["feeds"]
    assert (checked["problems"], checked["warnings"], checked["examples"]["run"]) == ([], [], 2)
    previewed = desk.told("preview", "partner")["rows"][0]["event"]
    assert (previewed["startAt"], previewed["classifications"]) == ("2031-04-03T00:00:00+01:00", ["music"])


def test_every_wrong_answer_is_named_at_once_with_its_line(desk: Desk) -> None:
    answers = """\
channel: 999
zone: Lisboa
classifications: {Concert: musik, Markt: market}
places: lisboa
colour: red
"""
    with desk.service():
        said = " ".join(drafted(desk, answers, code=2).split())
    for problem in (
        'answers.yaml:1:10: channel: the key has no channel "999"; its channels are 101 city-agenda',
        'answers.yaml:2:7: zone: "Lisboa" is not a time zone; did you mean "Europe/Lisbon"?',
        'answers.yaml:3:1: classifications: no answer for "Market", rows without one; write fill-in to leave it open',
        'answers.yaml:3:28: classifications: the service has no classification "musik"; did you mean "music"?',
        'answers.yaml:3:42: classifications: the source has no "Markt"; did you mean "Market"?',
        'answers.yaml:4:1: places: no answer for "Lisbon", "Porto"',
        'answers.yaml:5:1: nothing is asked about "colour"; this source leaves open: channel, zone, dates,',
        "answers.yaml:1:1: dates: no answer; write fill-in",
    ):
        assert problem in said


def test_an_answer_that_is_not_asked_for_is_a_warning(desk: Desk) -> None:
    answers = "{dates: day-first, channel: 7, zone: Europe/Lisbon, classifications: music, places: x}"
    text = drafted(desk, answers, code=0, source="id,title,date\nR-1,Fado,2031-05-14\n")
    assert "  channelId: 7\n" in text
    desk.run("init", "partner.csv", "--answers", "answers.yaml", "--force", "--json", code=0).assert_told(
        0, 'warning: answers.yaml:1:2: nothing is asked about "dates"'
    )


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ("channel: [", "answers.yaml:2:1: this is not YAML"),
        ("- channel", "answers.yaml:1:1: the answers are not written as `channel: city-agenda`"),
        ("\udcff", "answers.yaml cannot be read: it is not UTF-8"),
        ("{channel: {a: b}, places: ''}", "answers.yaml:1:27: places: a placeId is expected"),
        (None, "answers.yaml cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_holds_no_answers_is_an_error(answers: str | None, problem: str, desk: Desk) -> None:
    (desk.folder / "partner.csv").write_text("id,title,date\nR-1,Fado,2031-05-14\n", "utf-8")
    if answers is not None:
        (desk.folder / "answers.yaml").write_bytes(answers.encode("utf-8", "surrogateescape"))
    said = desk.run("init", "partner.csv", "--answers", "answers.yaml", code=2)
    assert problem in said.err
    assert not (desk.folder / "feeds" / "partner.yaml").exists()


def test_without_a_service_answers_are_taken_as_they_are_and_fill_in_leaves_a_place_open(desk: Desk) -> None:
    source = "id,title,date\nR-1,Fado,2031-05-14\n"
    text = drafted(desk, "{channel: 7, zone: fill-in, classifications: muzak, places: fill-in}", code=0, source=source)
    assert "  channelId: 7\n" in text
    assert "  classifications: [muzak]" in text
    assert "    placeId: fill-in # the service's API has no list of places: ask its owner" in text
    assert "  fill_in_zone: UTC\n" in text
    said = desk.run("check", "partner").out
    assert "the service's API has no list of places" in said


def test_a_calendar_gets_the_zone_that_was_answered(desk: Desk) -> None:
    (desk.folder / "partner.ics").write_text(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nSUMMARY:Fado\r\nDTSTART:20310514T213000\r\n"
        "DTSTAMP:20260101T000000Z\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
        "utf-8",
    )
    (desk.folder / "answers.yaml").write_text("{channel: 7, zone: Europe/Lisbon, classifications: music, places: x}", "utf-8")
    desk.run("init", "partner.ics", "--answers", "answers.yaml", code=0)
    text = (desk.folder / "feeds" / "partner.yaml").read_text("utf-8")
    assert "fill_in_zone" not in text
    assert "Europe/Lisbon]}" in text
