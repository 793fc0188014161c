"""`eventsync init` at a terminal: what it asks, what its answers change, and Ctrl-C."""

from __future__ import annotations

import pytest
from integration.desk import Desk
from integration.service import Service
from terminal import CTRL_C, at_a_terminal

pytestmark = pytest.mark.slow
HEADER = "id,title,date,time,venue,city,category"
ROWS = (
    "R-1,Fado at dusk,14/05/2031,21:30,Casa do Rio,Lisbon,Concert",
    "R-2,Book fair,02/06/2031,10:00,Praça Nova,Lisbon,Markets",
    "R-3,Hamlet,04/06/2031,20:00,Teatro do Rio,Lisbon,Theater",
)
ANSWERS = (
    ("Channel, its number or slug [fill-in]: ", "city-agnda\n"),
    ('did you mean "city-agenda"?', ""),
    ("Channel, its number or slug [fill-in]: ", "101\n"),
    ("Time zone [Europe/Lisbon]: ", "\n"),
    ("  Markets (1 row): market", ""),
    ("  Theater (1 row): theatre", ""),
    ("Accept all of these? n asks about each [Y/n]: ", "\n"),
    ("Concert (1 row) [fill-in]: ", "muzak\n"),
    ("Concert (1 row) [fill-in]: ", "1\n"),
    ("a row without one (0 rows) [fill-in]: ", "culture\n"),
    ("has no list of places: ask its owner", ""),
    ("Lisbon (3 rows) [fill-in]: ", "lisboa\n"),
)
EVENT = """\
  channelId: {channel: city-agenda} # the slug of one of your channels
  # sure: "title" is a usual name for it
  title: {from: title, do: [collapse]}
"""
CLASSES = """\
    on_empty: {use: [culture], warn: true}
    do:
      - map:
          Concert: music # 1 row
          Markets: market # 1 row
          Theater: theatre # 1 row
"""


@pytest.fixture
def partner(desk: Desk, service: Service) -> Desk:
    """A desk with a partner's file, and a service to ask."""
    desk.point_to(service)
    (desk.folder / "partner.csv").write_text("\n".join([HEADER, *ROWS, ""]), "utf-8")
    return desk


def test_one_dialogue_and_one_edit_lead_from_a_file_to_published_events(partner: Desk, service: Service) -> None:
    code, seen = at_a_terminal(["init", "partner.csv"], partner.folder, partner.env, ANSWERS)
    assert code == 0, seen
    assert "101 city-agenda   102 " in seen
    mapping = partner.folder / "feeds" / "partner.yaml"
    text = mapping.read_text("utf-8")
    assert EVENT in text
    assert CLASSES in text
    assert "            Lisbon: lisboa # 3 rows\n" in text
    assert "  # sure: as you said\n  zone: Europe/Lisbon\n" in text
    (checked,) = partner.command("check", "partner", "--json", code=0).document["feeds"]
    assert (checked["problems"], checked["warnings"], checked["examples"]["failed"]) == ([], [], [])
    mapping.write_text(text.replace("status: draft", "status: published"), "utf-8")
    partner.command("run", "partner", "--no-dagster", "--json", code=0)
    published = {event["title"]: event["status"] for event in service.events()}
    assert published == dict.fromkeys(("Fado at dusk", "Book fair", "Hamlet"), "published")


def test_a_zone_that_is_left_open_sends_no_event_in_utc(partner: Desk, service: Service) -> None:
    source = partner.folder / "partner.csv"
    source.write_text(source.read_text("utf-8").replace("Lisbon", "Rivertown"), "utf-8")
    answers = (
        "{channel: city-agenda, zone: fill-in, places: {Rivertown: lisboa},"
        " classifications: {Concert: music, Markets: market, Theater: theatre, '': culture}}"
    )
    (partner.folder / "answers.yaml").write_text(answers, "utf-8")
    partner.command("init", "partner.csv", "--answers", "answers.yaml", code=0)
    assert "partner (feeds/partner.yaml): 1 value to fill in" in partner.command("check", "partner", code=0).words
    refused = partner.command("run", "partner", "--no-dagster", code=2)
    assert "the zone of the times is still open: fill_in_zone is UTC" in refused.words, refused
    assert service.events() == []
    mapping = partner.folder / "feeds" / "partner.yaml"
    mapping.write_text(mapping.read_text("utf-8").replace("fill_in_zone: UTC", "fill_in_zone: Europe/Lisbon"), "utf-8")
    partner.command("run", "partner", "--no-dagster", code=0)
    assert {event["payload"]["timezone"] for event in service.events()} == {"Europe/Lisbon"}


def test_ctrl_c_in_a_dialogue_writes_nothing(partner: Desk) -> None:
    code, seen = at_a_terminal(["init", "partner.csv"], partner.folder, partner.env, [*ANSWERS[:4], (ANSWERS[6][0], CTRL_C)])
    assert (code, "no file is written" in seen, "Traceback" in seen) == (130, True, False), seen
    assert not (partner.folder / "feeds" / "partner.yaml").exists()


def test_a_service_that_cannot_be_asked_leaves_free_answers_and_enter_leaves_fill_in(partner: Desk) -> None:
    env = {**partner.env, "EVENT_API_KEY": ""}
    typed = [
        ("EVENT_API_KEY is not set", ""),
        ("Channel, its id or slug [fill-in]: ", "101\n"),
        ("Time zone [Europe/Lisbon]: ", "Lisbon\n"),
        ('did you mean "Europe/Lisbon"?', ""),
        ("Time zone [Europe/Lisbon]: ", "Europe/Madrid\n"),
        ("Concert (1 row) [fill-in]: ", "\n"),
        ("Markets (1 row) [fill-in]: ", "skip\n"),
        ("Lisbon (3 rows) [fill-in]: ", "\n"),
    ]
    code, seen = at_a_terminal(["init", "partner.csv"], partner.folder, env, typed)
    assert code == 0, seen
    text = (partner.folder / "feeds" / "partner.yaml").read_text("utf-8")
    assert "  channelId: 101\n" in text
    assert "zone: Europe/Madrid" in text
    assert text.count(": fill-in # ") == 4


@pytest.mark.parametrize("word", ["--no-input", "--json"])
def test_a_terminal_is_not_asked_where_no_answer_is_wanted(word: str, partner: Desk) -> None:
    code, seen = at_a_terminal(["init", "partner.csv", word], partner.folder, partner.env)
    assert (code, "[fill-in]: " in seen) == (0, False), seen
    assert (partner.folder / "feeds" / "partner.yaml").read_text("utf-8").count("fill-in") > 5
