"""`eventsync check`: every mistake at its place, offline; the key, the lists, the source and the channels where asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lookalikes.notices import Inbox, webhook
from unit.cli.conftest import FEED, HEADER, MAPPING, Desk, holds

from connectors.event_api.answers import AnswerKind, Meaning
from connectors.event_api.lists import Classifications
from mappings.delivery import Answer
from mappings.yaml.loader import load_feed
from pipelines.cli.check_live import of_service
from pipelines.cli.findings import LiveFinding
from pipelines.cli.service_lists import ServiceAnswers
from pipelines.settings import PACKAGED_FEEDS

WITHOUT_EXAMPLES = MAPPING.partition("examples:")[0]


def live_of(document: Any) -> dict[str, Any]:
    """What was asked of the service and the source of the first feed, by what was asked."""
    return {answer["asked"]: answer for answer in document["feeds"][0]["live"]}


def test_sound_files_end_with_0_and_their_examples_are_counted(desk: Desk) -> None:
    feed = {"feed": FEED, "path": "feeds/town.yaml", "problems": [], "warnings": [], "examples": {"run": 2, "failed": []}}
    assert desk.run("check", "--json", code=0).document == {"feeds": [feed], "ok": True}
    (desk.folder / "events.csv").unlink()
    desk.run("check", code=0)  # a source that is not at hand is not missed


def test_every_mistake_is_shown_with_its_place_its_line_and_a_caret(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("do: [collapse]", "do: [colapse]").replace("timezone: Europe/Warsaw", "timezone: Europe/Warsav"))
    said = desk.run("check")
    said.assert_told(2, 'feeds/town.yaml:11:29: unknown step "colapse", did you mean "collapse"?', "Europe/Warsav")
    lines = said.out.splitlines()
    snippet = next(number for number, line in enumerate(lines) if "do: [colapse]" in line and "unknown" not in line)
    assert lines[snippet].index("colapse") == lines[snippet + 1].index("^")


def test_a_broken_file_does_not_hide_what_is_found_in_the_others(desk: Desk) -> None:
    desk.mapping("feed: other\nsource: {kind: csv}\n", "broken.yaml")
    desk.mapping(MAPPING.replace("{title: required}", "{title: too_long}"))
    document = desk.run("check", "--json", code=2).document
    broken, failing = document["feeds"]
    assert (document["ok"], broken["feed"], failing["problems"]) == (False, "broken", [])
    assert {problem["path"] for problem in broken["problems"]} == {"feeds/broken.yaml"}
    failed = [{"number": 2, "field": "title", "expected": "too_long", "found": "required"}]
    assert failing["examples"] == {"run": 2, "failed": failed}


def test_a_failing_example_is_shown_field_by_field(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("event: {title: Jazz, startAt", "event: {title: Jaz, timezone: UTC, startAt"))
    shown = ('example 1, title: expected "Jaz", got "Jazz"', 'example 1, timezone: expected "UTC", got "Europe/Warsaw"')
    desk.run("check").assert_told(2, *shown)


def test_what_is_unwise_is_a_warning_and_no_failure(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("key: [ID]", "key: [DAY]"))
    desk.run("check").assert_told(0, "warning: feeds/town.yaml:5:7: ")
    desk.mapping(WITHOUT_EXAMPLES.replace("%Y-%m-%d", "%d/%m/%Y"))
    (feed,) = desk.run("check", "--json", code=0).document["feeds"]
    (warning,) = (one for one in feed["warnings"] if "none of the first" in one["message"])
    assert ("startAt: This is not a date" in warning["message"], "explain town-hall ROW" in warning["hint"]) == (True, True)


def test_a_file_may_be_named_by_its_path_wherever_it_lies(desk: Desk) -> None:
    draft = desk.folder / "draft.yaml"
    draft.write_text(MAPPING.replace("town-hall", "draft"), "utf-8")
    for word in ("draft.yaml", str(draft)):
        assert desk.run("check", word, "--json", code=0).document["feeds"][0]["feed"] == "draft"
    desk.run("check", "drafts/none.yaml").assert_told(2, "cannot be read")


def test_settings_of_dagster_that_a_person_wrote_are_held_against_ours(desk: Desk) -> None:
    assert "dagster.yaml" not in desk.run("check").out
    (desk.folder / "dagster").mkdir()
    text = "telemetry: {enabled: false}\nfreshness: {enabled: true}\n"
    (desk.folder / "dagster" / "dagster.yaml").write_text(text, "utf-8")
    desk.run("check").assert_told(0, "does not say nux, python_logs, run_launcher,")


def test_a_live_check_of_a_sound_feed_asks_the_service_and_the_source(desk: Desk) -> None:
    with desk.service() as service:
        answers = live_of(desk.run("check", "--live", "--json", code=0).document)
    assert list(answers) == ["service", "scopes", "channels", "classifications", "contract", "source"]
    assert all(answer["ok"] for answer in answers.values())
    assert (service.base_url in answers["service"]["told"], "version 20" in answers["classifications"]["told"]) == (True, True)


@pytest.mark.parametrize(
    ("old", "new", "asked", "told"),
    [
        ("channel: city-agenda", "channel: city-agneda", "channels", 'did you mean "city-agenda"?'),
        ("{channel: city-agenda}", '"999"', "channels", "no channel with the id 999"),
        ("theatre", "theater", "classifications", 'names "theater", which the service does not know, did you mean "theatre"?'),
        ("theatre", "fill-in", "classifications", 'names "fill-in", which the service does not know; it knows circus, '),
        ("from: TITLE", "from: TITEL", "source", 'lacks the column "TITEL" (closest: "TITLE")'),
    ],
)
def test_a_live_check_names_what_the_service_or_the_source_lacks(desk: Desk, old: str, new: str, asked: str, told: str) -> None:
    desk.mapping(WITHOUT_EXAMPLES.replace(old, new))
    # A source that is a file of this machine is looked at without --live, too.
    desk.run("check", code=2 if asked == "source" else 0)
    with desk.service():
        document = desk.run("check", "--live", "--json", code=2).document
    (failing,) = (answer for answer in live_of(document).values() if not answer["ok"])
    assert (failing["asked"], told in failing["told"], document["ok"]) == (asked, True, False)


def test_a_live_check_says_what_is_wrong_with_key_and_service_and_still_looks_at_the_source(desk: Desk) -> None:
    unset = ("EVENT_API_BASE_URL is not set", "EVENT_API_KEY is not set", "ok: source: csv ../events.csv")
    desk.run("check", "--live").assert_told(2, *unset)
    wrong = "sk-wrong-key-of-nobody-9876"
    with desk.service(secret=wrong):
        said = desk.run("check", "--live")
    said.assert_told(3, "9876")
    assert wrong not in said.words
    desk.run("check", "--live", code=6)  # it is away now


def test_a_column_that_the_source_at_hand_lacks_is_named_at_each_place(desk: Desk) -> None:
    text = MAPPING.replace("from: TITLE", "from: TITEL").replace("key: [ID]", "key: [IDD]")
    desk.mapping(text.replace("column: KIND", "column: KINDS"))
    problems = desk.run("check", "--json", code=2).document["feeds"][0]["problems"]
    assert [(one["line"], one["column"], one["message"], one["hint"]) for one in problems] == [
        (5, 7, 'events.csv has no column "IDD"', 'did you mean "ID"?'),
        (7, 20, 'events.csv has no column "KINDS"', 'did you mean "KIND"?'),
        (11, 17, 'events.csv has no column "TITEL"', 'did you mean "TITLE"?'),
    ]


def test_a_file_to_be_included_is_checked_with_the_feeds_that_include_it(desk: Desk) -> None:
    desk.mapping("steps:\n  tidy: [collapze]\n", "_shared.yaml")
    alone = ("is no feed but a file to be included, and no feed beside it", "include: [_shared.yaml]")
    desk.run("check", "feeds/_shared.yaml").assert_told(2, *alone)
    desk.mapping(MAPPING.replace("key: [ID]", "include: [_shared.yaml]\nkey: [ID]"))
    included = "feeds/_shared.yaml is no feed but a file to be included, by feeds/town.yaml"
    mistake = 'feeds/_shared.yaml:2:10: unknown step "collapze", did you mean "collapse"?'
    desk.run("check", "feeds/_shared.yaml").assert_told(2, included, mistake)
    desk.mapping("steps:\n  tidy: [collapse]\n", "_shared.yaml")
    shared = [{"path": "feeds/_shared.yaml", "included_by": ["feeds/town.yaml"]}]
    document = {"feeds": [{"feed": FEED}], "shared": shared, "ok": True}
    assert holds(desk.told("check", "feeds/_shared.yaml"), document)


WITH_CITIES = MAPPING.replace("placeId: krk", "placeId: {from: TITLE, do: [{lookup: cities.csv, ignore: [case]}]}")
NAMED_STEPS = MAPPING.replace("do: [{map: {concert: music, play: theatre}}]", "do: [{use: genres}]")
INCLUDED_STEPS = NAMED_STEPS.replace("key: [ID]", "include: [_shared.yaml]\nkey: [ID]")
GENRES = "steps:\n  genres:\n    - map: {concert: music, play: theatre}\n"
NO_PLAY = '"play": no row of events.csv asks for it; 50 rows looked at'


def _unasked(desk: Desk, mapping: str, rows: int = 50) -> list[tuple[str, str]]:
    """The places of entries of lookups that no row asks for, and what is said of them."""
    desk.mapping(mapping.partition("examples:")[0])
    (desk.folder / "feeds" / "cities.csv").write_text("city,id\nOpole,o\nGdynia,g\n\nSopot,s\nLubin,l\nKielce,k\n", "utf-8")
    desk.source([f"{number},OPOLE,2030-05-01,19:30,,concert" for number in range(rows)], HEADER)
    (found,) = (feed for feed in desk.told("check")["feeds"] if feed["feed"] == FEED)
    return [(f"{one['line']}:{one['column']}", one["message"]) for one in found["warnings"] if "asks for" in one["message"]]


def test_entries_of_lookups_that_no_row_of_the_source_asks_for_are_named_with_their_lines(desk: Desk) -> None:
    no_city = "cities.csv:3, 5 and 2 more: no row of events.csv asks for them; 50 rows looked at"
    assert _unasked(desk, WITH_CITIES) == [("19:45", NO_PLAY), ("20:64", no_city)]
    assert _unasked(desk, WITH_CITIES, 19) == [], "of so few rows nothing is said"
    desk.mapping(WITH_CITIES.replace("feed: town-hall", "feed: other"), "other.yaml")
    assert _unasked(desk, WITH_CITIES) == [("19:45", NO_PLAY)], "a file that another feed names is not told of"


def test_maps_of_named_steps_are_held_against_the_source_of_the_only_feed_that_has_them(desk: Desk) -> None:
    own = NAMED_STEPS.replace("key: [ID]", f"{GENRES}key: [ID]")
    line = own.splitlines().index("    - map: {concert: music, play: theatre}") + 1
    assert _unasked(desk, own) == [(f"{line}:12", NO_PLAY)]
    desk.mapping(GENRES, "_shared.yaml")
    assert _unasked(desk, INCLUDED_STEPS) == [("3:12", NO_PLAY)]
    desk.run("check").assert_told(0, "feeds/_shared.yaml:3:")
    desk.mapping(INCLUDED_STEPS.replace("feed: town-hall", "feed: other"), "other.yaml")
    assert _unasked(desk, INCLUDED_STEPS) == []


@pytest.mark.slow
def test_of_a_source_that_is_too_long_to_look_through_nothing_is_said(desk: Desk) -> None:
    assert _unasked(desk, WITH_CITIES, 50_001) == []


TOKEN = "tok-8Kx2vLm9Zq4RtW"


@pytest.fixture
def hook(desk: Desk) -> Iterator[Inbox]:
    with webhook() as inbox, desk.service():
        desk.mapping(f"owner: agenda@example.org\nnotify: [ops, crew]\n{MAPPING}")
        addresses = f"json://us:{TOKEN}@127.0.0.1:{inbox.port}/ops?to={{owner}}"
        desk.monkeypatch.setenv("EVENTSYNC_NOTIFY", f"ops={addresses} {inbox.address('all')} crews=nosuch://{TOKEN}")
        yield inbox


def _notified(desk: Desk, *words: str) -> list[tuple[str, str]]:
    (feed,) = desk.told("check", *words)["feeds"]
    return [(one["severity"], one["told"]) for one in feed["live"] if one["asked"] == "notify"]


def test_a_live_check_says_who_would_be_notified_and_notify_sends_each_a_test(desk: Desk, hook: Inbox) -> None:
    missing = ("warning", 'EVENTSYNC_NOTIFY has no channel "crew"; did you mean "crews"?')
    assert _notified(desk, "--live") == [missing, ("ok", "what needs somebody is told to ops (agenda@example.org), all")]
    assert hook.told == []
    assert _notified(desk, "--notify")[-1] == ("ok", "a test went to ops (agenda@example.org), all")
    assert sorted(hook.titles()) == ["a test", "a test"]


def test_a_channel_that_does_not_work_is_a_warning_without_the_address(desk: Desk, hook: Inbox) -> None:
    hook.status = 401
    desk.mapping(f"notify: crews\n{MAPPING}")
    said = desk.run("check", "--notify", code=0)
    lines = [line.partition("cannot be told")[0].strip() for line in said.out.splitlines() if "notify" in line]
    assert lines == ["warning: notify: crews", "warning: notify: all"]
    assert TOKEN not in said.words


LISBON = load_feed(PACKAGED_FEEDS / "lisbon-agenda.yaml")


def _scopes(probe: Meaning | None) -> LiveFinding:
    lists = ServiceAnswers({"lisbon-agenda": 7}, Classifications("2026-03-02", frozenset()), key_tail="…0042", probe=probe)
    return next(one for one in of_service("https://events.example.org", lists, LISBON) if one.asked == "scopes")


_REFUSED = Answer(400, "invalid_request", field="title", issue="is required")
_CREATED = "created event 4711 from an event without any field: delete it by hand"


@pytest.mark.parametrize(
    ("probe", "severity", "exit_code", "says"),
    [
        (None, "ok", 0, "`--probe` sends an event without any field"),
        (Meaning(AnswerKind.REFUSED, _REFUSED), "ok", 0, "proves `events:create` unless"),
        (Meaning(AnswerKind.SCOPE_MISSING, Answer(403, "insufficient_scope")), "error", 3, "the key …0042 may not create events"),
        (Meaning(AnswerKind.NO_ACCESS, Answer(403, "forbidden")), "error", 3, "may not create events"),
        (Meaning(AnswerKind.KEY_REFUSED, Answer(401, "invalid_api_key")), "error", 3, "refused the API key …0042"),
        (Meaning(AnswerKind.READ, Answer(201), value=4711), "error", 1, _CREATED),
        (Meaning(AnswerKind.FOREIGN, Answer(400, message="text/html, 12 bytes")), "warning", 0, "could not be told: 400"),
        (Meaning(AnswerKind.FAILING, Answer(500, "internal_error")), "warning", 0, "could not be told: 500"),
        (Meaning(AnswerKind.LOST, Answer(0, "timeout", "no whole answer in time")), "warning", 0, "no whole answer in time"),
    ],
)
def test_a_probe_is_told_for_what_it_proves(probe: Meaning | None, severity: str, exit_code: int, says: str) -> None:
    finding = _scopes(probe)
    assert (finding.severity, finding.ok, finding.exit_code) == (severity, severity != "error", exit_code)
    assert says in finding.told
