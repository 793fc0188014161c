"""Mapping files as a whole: how they are read, what they share and include, their examples, editors, and payloads foreseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from dagster._utils.schedules import is_valid_cron_string
from jsonschema import Draft202012Validator
from unit.mappings.conftest import VALID, Build, cases, mistakes

from connectors.sources.catalogue import open_source
from mappings.compiler.mapper import compile_with_problems
from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.examples import run_examples
from mappings.outcome import MappedRow
from mappings.outgoing import Outgoing, outgoing_of
from mappings.reference import read_vocabulary
from mappings.spec.feed import Brakes, Example, FeedMapping, PublishPolicy, Schedule
from mappings.spec.source import CsvSource
from mappings.spec.source_words import Header
from mappings.yaml.loader import load_feed, load_folder, parse_feed


def loaded(tmp_path: Path, text: str) -> FeedMapping:
    (tmp_path / "cities.csv").write_text("city,placeId\nLisboa,pt-lisboa\n", "utf-8")
    return parse_feed(text, tmp_path / "sample.yaml")


def test_scalars_keep_their_spelling_and_anchors_and_merges_are_understood(tmp_path: Path) -> None:
    example = "examples: [{row: {ID: 02134, TITLE: no, START: 1.0, ZONE: 2026-01-01}, skipped: NULL}]\n"
    text = VALID.replace("{from: START}", "&start {from: START}") + "  endAt: {<<: *start, on_empty: omit}\n"
    mapping = loaded(tmp_path, text + example)
    assert mapping.examples[0].row == {"ID": "02134", "TITLE": "no", "START": "1.0", "ZONE": "2026-01-01"}
    assert mapping.examples[0].skipped == "NULL"
    assert mapping.event.root["endAt"].source == "START"


def named(folder: Path, **names: str) -> None:
    """Put feeds into a folder, each with what stands there in place of its name."""
    for file, name in names.items():
        (folder / f"{file}.yaml").write_text(VALID.replace("feed: sample", name), "utf-8", newline="")


@pytest.mark.parametrize("wanted", [None, {"city_agenda"}, {"city-agenda"}, {"b"}])
def test_a_broken_file_harms_no_other_and_feed_names_are_taken_once(tmp_path: Path, wanted: set[str] | None) -> None:
    named(tmp_path, a="feed: city-agenda", b="feed: city_agenda")
    if wanted is None:
        (tmp_path / "c.yaml").write_text("feed: [", "utf-8")
        (tmp_path / "d.yml").write_text(VALID, "utf-8")
    folder = load_folder(tmp_path, wanted)
    assert [mapping.path.name for mapping in folder.feeds] == ["a.yaml", *["d.yml"] * (wanted is None)]
    assert [error.path.name for error in folder.broken] == ["b.yaml", *["c.yaml"] * (wanted is None)]
    assert 'the feed name "city_agenda" is taken by a.yaml' in str(folder.broken[0])


def test_files_that_can_hold_none_of_the_feeds_wanted_are_left_alone(tmp_path: Path) -> None:
    named(tmp_path, b='feed: "sample" # of all', c="feed: third")
    (tmp_path / "a.yaml").write_text("feed: other\nsource: [", "utf-8")
    (tmp_path / "c.yaml").write_bytes((tmp_path / "c.yaml").read_bytes().replace(b"\n", b"\r\n"))
    for wanted, found in (({"sample"}, ["sample"]), ({"b"}, ["sample"]), ({"third", "sample"}, ["sample", "third"])):
        folder = load_folder(tmp_path, wanted)
        assert ([mapping.feed for mapping in folder.feeds], folder.broken) == (found, ())


@pytest.mark.parametrize("name", ["feed: &name sample", "feed:\n  sample", "'feed': sample", "feed : sample"])
def test_a_file_that_does_not_tell_its_name_at_a_glance_is_read(name: str, tmp_path: Path) -> None:
    named(tmp_path, a=name)
    assert [mapping.feed for mapping in load_folder(tmp_path, {"sample"}).feeds] == ["sample"]


def test_the_digest_changes_with_what_rows_become_and_with_nothing_else(build: Build) -> None:
    same = build().digest
    assert len(same) == 16
    assert build(top="# a comment\nowner: someone@example.org\n").digest == same
    assert build(event="approxLocation.city.placeId: pt-porto").digest != same
    lookup = {"event": "classifications: {from: KIND, do: [{lookup: kinds.csv}]}"}
    included = {"top": "include: shared/common.yaml\nlet: {own: {from: TITLE, do: [{use: clean}]}}\n"}
    common = "let:\n  place: {from: PLACE, do: [{use: clean}]}\nsteps:\n  clean: [collapse, {prefix: music}]\n"
    for parts, name, text in (
        (lookup, "kinds.csv", "kind,slug\nJazz,music\n"),
        (included | {"event": "title: {join: [$own, $place]}"}, "shared/common.yaml", common),
    ):
        assert len({build(**parts, files={name: text.replace("music", word)}).digest for word in ("music", "dance")}) == 2


def test_policies_are_read_from_text(build: Build) -> None:
    brakes = "{rejected: 10%, shrink: off, new: 80%}"
    policy = build(top=f"publish: {{max_pause: 20m, key_memory: 48h, in_flight: 4, brakes: {brakes}}}\n").publish
    assert (policy.max_pause_s, policy.key_memory_s, policy.in_flight) == (1200, 172800, 4)
    found = policy.brakes
    assert (found.rejected, found.shrink, found.new, found.rejected_at_least) == (0.1, None, 0.8, 3)


ONE_FOR_MANY = r"""
feed: sample
source: {kind: csv, path: a.csv, encoding: windows-1252, required: ID, delimiter: '\t', quote: null}
key: ID
rows:
  - skip: {column: KIND, in: closed, ignore: case}
    because: closed
event:
  channelId: {channel: city}
  title: {from: TITLE, do: collapse}
  startAt: {from: AT, do: {datetime: "%Y-%m-%dT%H:%M%z"}}
  timezone: Europe/Lisbon
  classifications: culture
  approxLocation.city.placeId: {lookup: cities.csv, by: {from: CITY}, ignore: accents}
"""


def test_one_item_needs_no_list_around_it(tmp_path: Path) -> None:
    mapping = loaded(tmp_path, ONE_FOR_MANY)
    source = mapping.source
    assert isinstance(source, CsvSource)
    assert (source.encoding, source.required, source.delimiter, source.quote) == (("windows-1252",), ("ID",), "\t", None)
    assert [column.column for column in mapping.key_columns] == ["ID"]
    text = ONE_FOR_MANY.replace("do: collapse", "do: colapse").replace("windows-1252", "windoes-1252").replace("'\\t'", '";;"')
    with pytest.raises(MappingFileError) as refused:
        loaded(tmp_path, text)
    assert [(problem.line, problem.message, problem.hint) for problem in refused.value.problems] == [
        (3, '"windoes-1252" is not an encoding that Python knows', 'did you mean "windows-1252"?'),
        (3, '";;" is not a single character (other than a line break)', 'write a tab as "\\t"'),
        (10, 'unknown step "colapse"', 'did you mean "collapse"?'),
    ]


def test_the_reference_names_every_key_of_every_block_of_the_file() -> None:
    page = read_vocabulary().text
    for model in (CsvSource, Header, Schedule, PublishPolicy, Brakes, Example):
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in page


@pytest.mark.parametrize(
    "cron",
    ["15 */2 * * *", "0 22-6 * * *", "0 6 29 2 *", "0 0 31 2,3 *", "*/5 8-18 * * mon-fri", "0 6 * jan,jul 7", "0 0 28-31 2 *"],
)
def test_every_other_one_is_kept_by_dagster_too(cron: str) -> None:
    assert is_valid_cron_string(Schedule.model_validate({"cron": cron}).cron)


@pytest.mark.parametrize(
    ("schedule", "reported"),
    [
        ("{cron: 0 6 * * *, timezone: Europe/Lisbon}", "0 6 * * * (Europe/Lisbon)"),
        ("{look_every: 5m}", "when changed (looked at every 300 s)"),
        ("{cron: 0 6 * * *, look_every: 1h}", "0 6 * * * (UTC), when changed (looked at every 3600 s)"),
        ("{cron: 0 6 * * *, on_update: true}", "0 6 * * * (UTC), when an asset of `after` is updated"),
    ],
)
def test_a_schedule_is_reported_in_words(schedule: str, reported: str) -> None:
    assert str(Schedule.model_validate(yaml.safe_load(schedule))) == reported


CLEAN = "steps:\n  plain: [html_unescape, collapse]\n  clean: [{use: plain}, {truncate: 12}]\n"


def test_a_feed_says_the_same_whether_its_steps_are_named_or_written_out(build: Build) -> None:
    named = build(top=CLEAN, event="title: {from: TITLE, do: [{use: clean}, upper]}")
    written = build(event="title: {from: TITLE, do: [html_unescape, collapse, {truncate: 12}, upper]}")
    assert named.digest == written.digest


def test_mistakes_in_named_steps_are_reported_where_they_are_written_and_once(build: Build) -> None:
    steps = "steps:\n  a: [{use: b}]\n  b: [trimm, {use: a}]\n  c: [trim]\n"
    event = "title: {from: TITLE, do: [{use: a}, {use: cc}, {use: c, on_error: omit}]}\nlocationName: {from: P, do: [{use: a}]}"
    with pytest.raises(MappingFileError) as error:
        build(top=steps, event=event)
    assert [(problem.line, problem.message) for problem in error.value.problems] == [
        (6, 'unknown step "trimm"'),
        (6, "the named steps refer to each other in a circle: a -> b -> a"),
        (14, 'there are no steps "cc"'),
        (14, '"use" has no key "on_error"'),
    ]


def test_ways_that_grow_without_end_are_cut_short(build: Build) -> None:
    steps = "steps:\n  s0: [trim, trim]\n" + "".join(f"  s{n}: [{{use: s{n - 1}}}, {{use: s{n - 1}}}]\n" for n in range(1, 40))
    assert "more than 500 steps" in mistakes(build, top=steps)


def test_mistakes_in_an_included_file_are_reported_with_its_name_and_its_lines(build: Build) -> None:
    files = {"common.yaml": "let:\n  day: {from: DAY, do: [daet]}\nevent: {}\n", "other.yaml": "let: {day: {from: X}}\n"}
    with pytest.raises(MappingFileError) as error:
        build(top="include: [common.yaml, other.yaml, gone.yaml]\n", files=files)
    places = [(problem.path.name, problem.line) for problem in error.value.problems]
    assert places == [("sample.yaml", 4), ("common.yaml", 2), ("common.yaml", 3), ("other.yaml", 1)]
    messages = str(error.value)
    assert 'unknown step "daet", did you mean "date"?' in messages
    assert '"day" is named twice, first in common.yaml, line 2' in messages
    assert 'may have let and steps, not "event"' in messages
    assert 'the file "gone.yaml" cannot be included' in messages
    assert [one.snippet for one in error.value.problems if "daet" in one.message] == ["  day: {from: DAY, do: [daet]}"]


RULES = {
    "window": "rows: [{window: {past: skip}}]\n",
    "recur": """rows:
  - recur: {from: {from: DAY, do: [{date: "%Y-%m-%d"}]}, until: "2026-05-05", horizon: 9d}
  - window: {past: skip}
""",
    "days": """let: {days: {from: DAYS, do: [{dates: "%d %B %Y", by: [",", " and "]}]}}
rows: [{recur: {days: $days, at_most: 3, horizon: 9d}}]
""",
    "group": "rows: [{group: {collect: offers}}]\n",
}
EVENTS = dict.fromkeys(("recur", "days"), 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}')
EVENTS["group"] = "offers: [{name: {from: OFFER}}]"
TWO = "row: {ID: 1, TITLE: Jazz, DAY: 2026-05-04}"
EXAMPLES = cases("""
window | row: {ID: 1, TITLE: Jazz}, event: {title: Jazz, channelId: 7, approxLocation.city.placeId: pt-lisboa} => NOTHING
window | row: {ID: 1, TITLE: Jazz}, event: {title: Jazz, endAt: absent} ~ row: {}, skipped: blank row => NOTHING
window | row: {ID: 1, TITLE: Jazz}, event: {title: Blues} => example 1, title: expected "Blues", got "Jazz"
window | row: {ID: 1, TITLE: x}, event: {classifications: [a, b]} => example 1, classifications: expected ["a","b"], got ["music"]
window | row: {ID: 1, TITLE: Jazz}, event: {endAt: soon} => example 1, endAt: expected "soon", got nothing
window | row: {ID: 1}, rejected: {title: required} ~ row: {TITLE: x}, rejected: {'': required} => NOTHING
window | row: {ID: 1}, rejected: {title: not_a_date} => example 1, title: expected not_a_date, got required
window | row: {ID: 1}, event: {title: x} => example 1: expected an event, got a rejection: title: required (fill in the column
window | row: {ID: 1}, skipped: old => example 1: expected skipped as "old", got a rejection: title: required
window | row: {ID: 1, TITLE: x}, event: {title: x}, as_of: '2026-06-01T00:00:00Z' => NOTHING
window | row: {ID: 1, TITLE: x}, skipped: already over, as_of: '2026-08-01T00:00:00Z' => NOTHING
recur | TWO, events: [{title: Jazz}, {startAt: '2026-05-05T20:00:00+01:00'}] => NOTHING
recur | TWO, events: [{title: Jazz}, {title: Blues}] => example 1, events[1].title: expected "Blues", got "Jazz"
recur | TWO, events: [{title: Jazz}] => example 1: expected 1 events, got 2: an event
recur | TWO, event: {title: Jazz} => example 1: expected one outcome, got 2: an event
recur | TWO, as_of: '2026-05-05T12:00:00Z', events: [{title: Jazz}] => NOTHING
recur | row: {ID: 1, TITLE: Jazz, DAY: 2026-05-09}, rejected: {'': end_before_start} => NOTHING
recur | row: {ID: 1, TITLE: Jazz, DAY: 2026-05-05}, event: {title: Jazz} => NOTHING
days | row: {ID: 1, TITLE: Jazz, DAYS: '7, 3 and 7 May 2026'}, events: [{startAt: '2026-05-03T20:00:00+01:00'}, {}] => NOTHING
days | row: {ID: 1, TITLE: Jazz, DAYS: '7, 3 and 7 May 2026'}, events: [{}, {startAt: '2026-05-07T20:00:00+01:00'}] => NOTHING
days | row: {ID: 2, TITLE: Jazz, DAYS: ''}, rejected: {'': required} => NOTHING
days | row: {ID: 3, TITLE: Jazz, DAYS: '3, 4, 5 and 6 May 2026'}, rejected: {'': too_many} => NOTHING
group | rows: [{ID: 1, TITLE: x, OFFER: a}, {ID: 1, OFFER: b}], event: {offers: [{name: a}, {name: b}]} => NOTHING
""")


@pytest.mark.parametrize(("rules", "example", "reported"), EXAMPLES)
def test_an_example_says_what_was_expected_and_what_came(rules: str, example: str, reported: str, build: Build) -> None:
    written = example.replace("TWO", TWO)
    mapping = build(top=f"{RULES[rules]}examples: [{{{written}}}]\n", event=EVENTS.get(rules, ""))
    found = [str(one)[: len(reported)] for one in run_examples(mapping)]
    assert found == ([] if reported == "NOTHING" else [reported])


ACCEPTED = """
  x: {for_each: {from: A, do: {use: b}}, as: i, give: {y: $i, z: {meta: row, do: [to_text]}}}
  w: {from: B, do: [{boolean: {true: x, false: ""}}]}
include: _a.yaml
steps: {a: trim, b: [trim, {use: a}]}
"""
UNDERLINED = """
source: {kind: csv, path: events.csv, delimitter: ;}
source: {kind: cvs, path: events.csv}
key: []
let: {first day: {from: DAY}}
rows: [{skipp: {column: KIND, is: present}, because: x}]
rows: [{skip: {column: KIND, iss: present}, because: x}]
event: {title: {from: TITLE, do: [trimm]}}
event: {title: {from: TITLE, do: [{truncate: 10, elipsis: ...}]}}
event: {title: {from: TITLE, on_empty: rejct}}
event: {x: {for_each: {from: A}, az: i, give: $i}}
event: {x: {meta: rows}}
publish: {on_change: reprt}
steps: {a: trimm}
steps: {b: [{use: [a]}]}
""".strip().split("\n")


def as_edited(text: str) -> dict[str, Any]:
    """Return a document as an editor sees it, whose keys are texts."""
    document: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(text), default=str))
    return document


@pytest.mark.parametrize("text", [VALID, VALID + ACCEPTED, ONE_FOR_MANY.replace(r"'\t'", "tab")])
def test_an_editor_accepts_a_feed_with_named_steps_included_files_and_one_item_without_a_list(
    text: str, editor: Draft202012Validator
) -> None:
    assert [error.message for error in editor.iter_errors(as_edited(text))] == []


@pytest.mark.parametrize("mistake", UNDERLINED)
def test_an_editor_underlines_each_kind_of_mistakes_at_its_key(mistake: str, editor: Draft202012Validator) -> None:
    paths = [list(error.absolute_path)[:1] for error in editor.iter_errors(as_edited(VALID) | as_edited(mistake))]
    assert paths
    assert all(path == [mistake.partition(":")[0]] for path in paths)


ROOT = Path(__file__).parents[3]
FEEDS = sorted([*(ROOT / "mappings" / "feeds").glob("*.yaml"), *(ROOT / "tests" / "feeds").glob("[!_]*.yaml")])
KINDS: dict[type, str] = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
FEED = """\
feed: one
source: {kind: csv, path: one.csv}
key: [ID]
let:
  place: {from: PLACE, do: [{lookup: places.csv}], on_empty: omit}
extra: [seats, tags, stage, hall]
rows: [{skip: {any: [{column: KIND, equals: x}, {value: $place, equals: None, ignore: [case]}]}, because: nowhere}]
event:
  channelId: "7"
  title: {from: TITLE, do: [collapse, {truncate: 60}]}
  startAt: {from: START, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]}
  timezone: {choose: [{when: {column: ZONE, equals: lisbon}, then: Europe/Lisbon}], otherwise: UTC}
  classifications: [{from: KIND, do: [{map: {c: music, p: theatre}, on_miss: {use: culture}}]}, festival]
  approxLocation.city.placeId: $place
  approxLocation.city.countryCode: PT
  seats: {from: SEATS, do: [{number: "."}], on_error: omit}
  tags: {from: TAGS, do: [{split: ","}, lower]}
  stage: {from: STAGE, on_empty: draft}
  hall: {from: HALL, do: [{map: {A: Main}}], on_empty: warn}
"""


def test_constants_and_lookups_are_known_before_any_row_is_read(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(FEED, "utf-8")
    (tmp_path / "places.csv").write_text("place,id\nLisboa,lx\nPorto,opo\nInternet,none\nTV,none\n", "utf-8")
    fields = outgoing_of(load_feed(tmp_path / "one.yaml")).fields
    assert fields["channelId"].values == {7}
    assert fields["title"].values == set()
    assert fields["timezone"].values == {"Europe/Lisbon", "UTC"}
    classifications = fields["classifications"].item
    assert classifications is not None
    assert classifications.values == {"music", "theatre", "culture", "festival"}
    city = fields["approxLocation"].fields["city"].fields
    assert {name: one.values for name, one in city.items()} == {"placeId": {"lx", "opo"}, "countryCode": {"PT"}}
    assert (fields["seats"].kind, fields["tags"].kind) == ("number", "array")


def _holds(sent: Outgoing, value: Any, path: str = "") -> None:
    assert sent.kind in {None, KINDS[type(value)]}, path
    if isinstance(value, dict):
        assert value.keys() <= sent.fields.keys(), path
        for name, inner in value.items():
            _holds(sent.fields[name], inner, f"{path}.{name}")
    if isinstance(value, list):
        assert sent.item is not None, path
        for inner in value:
            _holds(sent.item, inner, f"{path}[]")


@pytest.mark.parametrize("path", FEEDS, ids=lambda path: path.stem)
def test_every_row_of_the_feeds_we_have_is_as_it_was_foreseen(path: Path) -> None:
    mapping = load_feed(path, folders=(ROOT,))
    sent = outgoing_of(mapping)
    mapper = compile_with_problems(mapping, Directory())[0]
    events = 0
    with open_source(mapping.source, mapping.path.parent, mapper.columns, folders=mapping.folders).read() as reading:
        for row in reading.rows:
            outcome = mapper(row)
            if isinstance(outcome, MappedRow):
                events += 1
                _holds(sent, orjson.loads(outcome.body))
    assert events or path.stem.startswith("sf-campaign-tree")  # whose rows have no day
