"""`eventsync check`: every mistake at its place, offline; the key, the lists and the source where asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lookalikes.notices import Inbox, webhook
from unit.cli.conftest import HEADER, MAPPING, SECRET, Desk


def test_sound_files_end_with_0_and_their_examples_are_counted(desk: Desk) -> None:
    said = desk.run("check", "--json")
    assert said.code == 0
    assert said.document == {
        "feeds": [
            {
                "feed": "town-hall",
                "path": "feeds/town.yaml",
                "problems": [],
                "warnings": [],
                "examples": {"run": 2, "failed": []},
            }
        ],
        "ok": True,
    }


def test_every_mistake_is_told_with_its_place_its_line_and_a_caret(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("do: [collapse]", "do: [colapse]").replace("timezone: Europe/Warsaw", "timezone: Europe/Warsav"))
    said = desk.run("check")
    assert said.code == 2
    assert 'feeds/town.yaml:11:29: unknown step "colapse", did you mean "collapse"?' in said.out
    lines = said.out.splitlines()
    snippet = next(number for number, line in enumerate(lines) if "do: [colapse]" in line and "unknown" not in line)
    assert lines[snippet].index("colapse") == lines[snippet + 1].index("^")
    assert "Europe/Warsav" in said.out


def test_a_broken_file_does_not_hide_what_is_found_in_the_others(desk: Desk) -> None:
    desk.mapping("feed: other\nsource: {kind: csv}\n", "broken.yaml")
    desk.mapping(MAPPING.replace("{title: required}", "{title: too_long}"))
    told = desk.run("check", "--json")
    broken, failing = told.document["feeds"]
    assert (told.code, told.document["ok"]) == (2, False)
    assert broken["feed"] == "broken"
    assert broken["problems"]
    assert all(problem["path"] == "feeds/broken.yaml" for problem in broken["problems"])
    assert failing["problems"] == []
    assert failing["examples"] == {
        "run": 2,
        "failed": [{"number": 2, "field": "title", "expected": "too_long", "found": "required"}],
    }


def test_a_failing_example_is_told_field_by_field(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("event: {title: Jazz, startAt", "event: {title: Jaz, timezone: UTC, startAt"))
    said = desk.run("check")
    assert said.code == 2
    assert 'example 1, title: expected "Jaz", got "Jazz"' in said.out
    assert 'example 1, timezone: expected "UTC", got "Europe/Warsaw"' in said.out


def test_what_is_unwise_is_a_warning_and_no_failure(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("key: [ID]", "key: [DAY]"))
    said = desk.run("check")
    assert said.code == 0
    assert "warning: feeds/town.yaml:5:7: " in said.out


def test_a_file_may_be_named_by_its_path_wherever_it_lies(desk: Desk) -> None:
    draft = desk.folder / "draft.yaml"
    draft.write_text(MAPPING.replace("town-hall", "draft"), "utf-8")
    assert desk.run("check", "draft.yaml", "--json").document["feeds"][0]["feed"] == "draft"
    assert desk.run("check", str(draft)).code == 0
    missing = desk.run("check", "drafts/none.yaml")
    assert missing.code == 2
    assert "cannot be read" in missing.out


def test_settings_of_dagster_that_somebody_wrote_are_told_by_what_they_lack(desk: Desk) -> None:
    assert "dagster.yaml" not in desk.run("check").out
    home = desk.folder / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nfreshness: {enabled: true}\n", "utf-8")
    said = desk.run("check")
    assert said.code == 0
    assert "does not say nux, python_logs, run_launcher," in " ".join(said.out.split())


def test_a_live_check_of_a_sound_feed_asks_the_service_and_the_source(desk: Desk) -> None:
    with desk.service() as service:
        said = desk.run("check", "--live", "--json")
    answers = {answer["asked"]: answer for answer in said.document["feeds"][0]["live"]}
    assert said.code == 0
    assert list(answers) == ["service", "scopes", "channels", "classifications", "contract", "source"]
    assert all(answer["ok"] for answer in answers.values())
    assert service.base_url in answers["service"]["told"]
    assert "version 20" in answers["classifications"]["told"]


@pytest.mark.parametrize(
    ("old", "new", "asked", "told"),
    [
        ("channel: city-agenda", "channel: city-agneda", "channels", 'did you mean "city-agenda"?'),
        ("channelId: {channel: city-agenda}", 'channelId: "999"', "channels", "no channel with the id 999"),
        (
            "play: theatre",
            "play: theater",
            "classifications",
            'names "theater", which the service does not know, did you mean "theatre"?',
        ),
        (
            "play: theatre",
            "play: fill-in",
            "classifications",
            'names "fill-in", which the service does not know; it knows circus, ',
        ),
        ("from: TITLE", "from: TITEL", "source", 'lacks the column "TITEL" (closest: "TITLE")'),
    ],
)
def test_a_live_check_names_what_the_service_or_the_source_lacks(desk: Desk, old: str, new: str, asked: str, told: str) -> None:
    without_examples = MAPPING[: MAPPING.index("examples:")]
    desk.mapping(without_examples.replace(old, new))
    # A source that is a file of this machine is looked at without --live, too.
    assert desk.run("check").code == (2 if asked == "source" else 0)
    with desk.service():
        said = desk.run("check", "--live", "--json")
    failing = [answer for answer in said.document["feeds"][0]["live"] if not answer["ok"]]
    assert [answer["asked"] for answer in failing] == [asked]
    assert told in failing[0]["told"]
    assert (said.code, said.document["ok"]) == (2, False)


def test_a_live_check_with_a_wrong_key_ends_with_3_and_shows_only_the_end_of_the_key(desk: Desk) -> None:
    wrong = "sk-wrong-key-of-somebody-9876"
    with desk.service(secret=wrong):
        said = desk.run("check", "--live")
    assert said.code == 3
    assert wrong not in said.out + said.err
    assert "9876" in said.out


def test_a_live_check_without_a_service_says_what_is_not_set_and_still_looks_at_the_source(desk: Desk) -> None:
    said = desk.run("check", "--live")
    assert said.code == 2
    assert "EVENT_API_BASE_URL is not set" in said.out
    assert "EVENT_API_KEY is not set" in said.out
    assert "ok: source: csv ../events.csv" in said.out


def test_a_live_check_of_a_service_that_is_away_ends_with_6(desk: Desk) -> None:
    with desk.service() as service:
        pass
    desk.monkeypatch.setenv("EVENT_API_BASE_URL", service.base_url)
    desk.monkeypatch.setenv("EVENT_API_KEY", SECRET)
    assert desk.run("check", "--live").code == 6


def test_a_column_that_the_source_at_hand_lacks_is_told_at_each_place(desk: Desk) -> None:
    desk.mapping(
        MAPPING.replace("from: TITLE", "from: TITEL").replace("key: [ID]", "key: [IDD]").replace("column: KIND", "column: KINDS")
    )
    said = desk.run("check", "--json")
    assert said.code == 2
    told = [(one["line"], one["column"], one["message"], one["hint"]) for one in said.document["feeds"][0]["problems"]]
    assert told == [
        (5, 7, 'events.csv has no column "IDD"', 'did you mean "ID"?'),
        (7, 20, 'events.csv has no column "KINDS"', 'did you mean "KIND"?'),
        (11, 17, 'events.csv has no column "TITEL"', 'did you mean "TITLE"?'),
    ]


def test_a_source_that_is_not_at_hand_is_not_missed(desk: Desk) -> None:
    (desk.folder / "events.csv").unlink()
    assert desk.run("check").code == 0


def test_a_mapping_that_rejects_every_row_is_told_with_the_commonest_reasons(desk: Desk) -> None:
    desk.mapping(MAPPING.replace("%Y-%m-%d", "%d/%m/%Y").partition("examples:")[0])
    said = desk.run("check", "--json")
    assert said.code == 0
    (warning,) = (one for one in said.document["feeds"][0]["warnings"] if "none of the first" in one["message"])
    assert "startAt: This is not a date" in warning["message"]
    assert "eventsync explain town-hall ROW" in warning["hint"]


def test_a_file_to_be_included_is_told_as_such_and_checked_with_the_feeds_that_include_it(desk: Desk) -> None:
    desk.mapping("steps:\n  tidy: [collapze]\n", "_shared.yaml")
    desk.mapping(MAPPING.replace("key: [ID]", "include: [_shared.yaml]\nkey: [ID]"))
    said = desk.run("check", "feeds/_shared.yaml")
    assert said.code == 2
    assert "feeds/_shared.yaml is no feed but a file to be included, by feeds/town.yaml" in said.out
    assert 'feeds/_shared.yaml:2:10: unknown step "collapze", did you mean "collapse"?' in said.out
    desk.mapping("steps:\n  tidy: [collapse]\n", "_shared.yaml")
    document = desk.run("check", "feeds/_shared.yaml", "--json").document
    assert [feed["feed"] for feed in document["feeds"]] == ["town-hall"]
    assert document["shared"] == [{"path": "feeds/_shared.yaml", "included_by": ["feeds/town.yaml"]}]
    assert document["ok"]


def test_a_file_to_be_included_that_no_feed_includes_ends_with_2_and_says_how_one_would(desk: Desk) -> None:
    desk.mapping("steps:\n  tidy: [collapse]\n", "_shared.yaml")
    said = desk.run("check", "feeds/_shared.yaml")
    assert said.code == 2
    assert "is no feed but a file to be included, and no feed beside it" in said.err
    assert "include: [_shared.yaml]" in said.err


WITH_CITIES = MAPPING.replace(
    "{city: {placeId: krk}}", "{city: {placeId: {from: TITLE, do: [{lookup: cities.csv, ignore: [case]}]}}}"
)


def _held_against(desk: Desk, mapping: str, rows: int, genre: str = "concert") -> list[tuple[int, int, str]]:
    desk.mapping(mapping.partition("examples:")[0])
    (desk.folder / "feeds" / "cities.csv").write_text(
        "city,id\nOpole,opo\nGdynia,gdy\n\nSopot,sop\nLubin,lub\nKielce,kie\n", "utf-8"
    )
    lines = [f"{number},OPOLE,2030-05-01,19:30,,{genre}" for number in range(rows)]
    (desk.folder / "events.csv").write_text("\n".join([HEADER, *lines]), "utf-8")
    (found,) = [feed for feed in desk.run("check", "--json").document["feeds"] if feed["feed"] == "town-hall"]
    return [(one["line"], one["column"], one["message"]) for one in found["warnings"] if "asks for" in one["message"]]


def test_rows_of_lookups_that_no_row_of_the_source_asks_for_are_told_with_their_lines(desk: Desk) -> None:
    assert _held_against(desk, WITH_CITIES, 50) == [
        (19, 45, '"play": no row of events.csv asks for it; 50 rows looked at'),
        (20, 64, "cities.csv:3, 5 and 2 more: no row of events.csv asks for them; 50 rows looked at"),
    ]
    assert desk.run("check").code == 0


def test_of_a_source_with_few_rows_nothing_is_said_about_what_they_ask_for(desk: Desk) -> None:
    assert _held_against(desk, WITH_CITIES, 19) == []


def test_a_lookup_file_that_another_feed_names_is_not_told_of(desk: Desk) -> None:
    desk.mapping(WITH_CITIES.replace("feed: town-hall", "feed: other"), "other.yaml")
    assert [message.partition(":")[0] for _, _, message in _held_against(desk, WITH_CITIES, 50)] == ['"play"']


IN_NAMED_STEPS = MAPPING.replace("do: [{map: {concert: music, play: theatre}}]", "do: [{use: genres}]").replace(
    "key: [ID]", "include: [_shared.yaml]\nkey: [ID]"
)
GENRES = "steps:\n  genres:\n    - map: {concert: music, play: theatre}\n"


def test_maps_of_named_steps_are_held_against_the_source_wherever_they_were_written(desk: Desk) -> None:
    own = IN_NAMED_STEPS.replace("include: [_shared.yaml]\n", GENRES)
    ((line, _, message),) = _held_against(desk, own, 50)
    assert own.splitlines()[line - 1] == "    - map: {concert: music, play: theatre}"
    assert message.startswith('"play": no row of events.csv asks for it')


def test_maps_of_an_included_file_are_held_against_the_source_of_the_only_feed_that_includes_it(desk: Desk) -> None:
    desk.mapping(GENRES, "_shared.yaml")
    ((line, _, message),) = _held_against(desk, IN_NAMED_STEPS, 50)
    assert (line, message) == (3, '"play": no row of events.csv asks for it; 50 rows looked at')
    assert "feeds/_shared.yaml:3:" in desk.run("check").out
    desk.mapping(IN_NAMED_STEPS.replace("feed: town-hall", "feed: other"), "other.yaml")
    assert _held_against(desk, IN_NAMED_STEPS, 50) == []


@pytest.mark.slow
def test_of_a_source_that_is_too_long_to_look_through_nothing_is_said(desk: Desk) -> None:
    assert _held_against(desk, WITH_CITIES, 50_001) == []


TOKEN = "tok-8Kx2vLm9Zq4RtW"


@pytest.fixture
def hook(desk: Desk) -> Iterator[Inbox]:
    with webhook() as inbox, desk.service():
        desk.mapping(f"owner: agenda@example.org\nnotify: [ops, crew]\n{MAPPING}")
        addresses = f"json://us:{TOKEN}@127.0.0.1:{inbox.port}/ops?to={{owner}}"
        desk.monkeypatch.setenv("EVENTSYNC_NOTIFY", f"ops={addresses} {inbox.address('all')} crews=nosuch://{TOKEN}")
        yield inbox


def _told(desk: Desk, *words: str) -> list[tuple[str, str]]:
    (feed,) = desk.run("check", "--json", *words).document["feeds"]
    return [(one["severity"], one["told"]) for one in feed["live"] if one["asked"] == "notify"]


def test_who_would_be_told_and_which_channel_is_not_there(desk: Desk, hook: Inbox) -> None:
    assert _told(desk, "--live") == [
        ("warning", 'EVENTSYNC_NOTIFY has no channel "crew"; did you mean "crews"?'),
        ("ok", "what needs somebody is told to ops (agenda@example.org), all"),
    ]
    assert hook.told == []


def test_a_test_goes_to_everybody_once(desk: Desk, hook: Inbox) -> None:
    assert _told(desk, "--notify")[-1] == ("ok", "a test went to ops (agenda@example.org), all")
    assert sorted(hook.titles()) == ["a test", "a test"]


def test_what_keeps_somebody_from_being_told_is_a_warning_without_the_address(desk: Desk, hook: Inbox) -> None:
    hook.status = 401
    desk.mapping(f"notify: crews\n{MAPPING}")
    said = desk.run("check", "--notify")
    assert said.code == 0
    lines = [line for line in said.out.splitlines() if "notify" in line]
    assert [line.partition("cannot be told")[0].strip() for line in lines] == ["warning: notify: crews", "warning: notify: all"]
    assert TOKEN not in said.out + said.err


def test_of_a_feed_that_names_nobody_nothing_is_said(desk: Desk) -> None:
    with desk.service():
        assert _told(desk, "--live") == []
