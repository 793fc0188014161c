"""Keys and digests are pinned to literal values: others would send every event of their feeds again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unit.mappings.conftest import EVENT

import mappings.row_key
from mappings.compiler.key import key_definition
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowLocation, SourceRow
from mappings.row_key import (
    FeedName,
    RowKey,
    duplicate_digest,
    duplicate_digest_of,
    fingerprint,
    idempotency_key,
    row_digest,
    row_key,
)
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed

LET = """let:
  code: {from: LINK, do: [{regex_extract: "cultcode=([0-9]+)"}]}
  short: {from: $code, do: [{strip_prefix: "0"}]}
  words: {join: [{from: LINK}, {from: ID}]}
  lax: {from: LINK, do: [trim], on_empty: omit}
"""
TABLE = "old,new\nA 1,77\nB,78\n"


def feed_of(folder: Path, key: str, table: str = TABLE, rows: str = "") -> FeedMapping:
    (folder / "renumbered.csv").write_text(table, "utf-8")
    unused = "  locationName: {join: [$code, $short, $words, $lax]}\n"
    text = f"feed: sample\nsource: {{kind: csv, path: sample.csv}}\nkey: {key}\n{LET}{rows}{EVENT}{unused}"
    return parse_feed(text, folder / "sample.yaml")


def mapper_of(folder: Path, key: str) -> RowMapper:
    return compile_feed(feed_of(folder, key), Directory())


def key_of(mapper: RowMapper, **cells: str) -> str:
    outcome = mapper(SourceRow(RowLocation("sample.csv:2", 2), {"LINK": "x?cultcode=1", "TITLE": "Jazz"} | cells))
    if isinstance(outcome, Rejection):
        (reason, *_) = [one for one in outcome.reasons if not one.field]
        return f"{reason.column}: {reason.code}"
    assert isinstance(outcome, MappedRow)
    return outcome.row_key


KEYS = [
    ("ID", {"ID": " e\u0301 "}, "\u00e9"),
    ("[ID, {column: SUB, optional: true}]", {"ID": "A|1"}, "A\\|1|"),
    ("[$$ID]", {"$ID": "7"}, "7"),
    ("[$code]", {"LINK": "https://x.pt/?cultcode=0017&a=b"}, "0017"),
    ("[$short, ID]", {"LINK": "?cultcode=0017", "ID": "b c"}, "017|b c"),
    ('[{from: LINK, do: [{extract: "cultcode=([0-9]+)"}]}, ID]', {"LINK": "?cultcode=17", "ID": "x"}, "17|x"),
    ("[{from: ID, do: [trim, collapse]}]", {"ID": " A\u00a0 \n 1\u200b"}, "A 1"),
    ("[{from: ID, do: [upper]}]", {"ID": "stra\u00dfe \u0131 \u01c6"}, "STRASSE I \u01c4"),
    ("[{from: ID, do: [lower]}]", {"ID": "\u0130STANBUL \u03a3\u03a3 \u00c9"}, "i\u0307stanbul \u03c3\u03c2 \u00e9"),
    ("[{from: ID, do: [{upper: true, locale: tr}]}]", {"ID": "izmir"}, "\u0130ZM\u0130R"),
    ("[{from: ID, do: [{replace: '-', with: '/'}]}]", {"ID": "a-b-c"}, "a/b/c"),
    ("[{from: ID, do: [{split: ['/', ';']}, {nth: -1}]}]", {"ID": "a/b; c \u200b;"}, "c"),
    ("[{from: ID, do: [{strip_prefix: [EV-, E]}, {strip_suffix: -x}]}]", {"ID": "EV-E9-x"}, "E9"),
    ("[{from: ID, do: [{map: {A: '1', B: '2'}, ignore: [case, accents]}]}]", {"ID": "\u00e1"}, "1"),
    ("[{from: ID, do: [{lookup: renumbered.csv, on_miss: keep}]}]", {"ID": "A 1"}, "77"),
    ("[{from: ID, do: [{lookup: renumbered.csv, on_miss: keep}]}]", {"ID": "C"}, "C"),
    ("[$code]", {"LINK": ""}, "LINK: required"),
    ("[$code]", {"LINK": "x"}, "LINK: bad_text"),
    ("[$short]", {"LINK": "?cultcode=0"}, "LINK: required"),
    ("[{from: ID, do: [trim]}]", {"ID": "9.18E+11"}, "ID: bad_key"),
    ("[{from: ID, do: [{lookup: renumbered.csv}]}]", {"ID": "C"}, "ID: not_in_lookup"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"ID": "7", "DAY": "1"}, "7"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"ID": " ", "DAY": "1"}, "Jazz|1"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"DAY": ""}, "ID: required"),
    ("{first_of: [ID, [TITLE, DAY]]}", {"ID": "9.18E+11", "DAY": "1"}, "ID: bad_key"),
    ("{first_of: [{from: SUB, do: [{extract: x.}]}, ID]}", {"SUB": "none", "ID": "7"}, "7"),
]


@pytest.mark.parametrize(("key", "cells", "expected"), KEYS)
def test_a_derived_key_is_the_same_for_ever(key: str, cells: dict[str, str], expected: str, tmp_path: Path) -> None:
    assert key_of(mapper_of(tmp_path, key), **cells) == expected


FROM_LINK = '[{"from": "LINK", "do": [["regex_extract", {"regex_extract": "cultcode=([0-9]+)"}]]}]'
DEFINITIONS = [
    ("[ID, {column: SUB, optional: true}]", '["ID", "SUB"]'),
    ("[$code]", FROM_LINK),
    ('[{from: LINK, do: [{extract: "cultcode=([0-9]+)"}]}]', FROM_LINK),
    ("[{from: ID}, ID]", '["ID", "ID"]'),
    ("{first_of: [ID, [TITLE, DAY]]}", '{"first_of": [["ID"], ["TITLE", "DAY"]]}'),
]


@pytest.mark.parametrize(("key", "expected"), DEFINITIONS)
def test_the_definition_of_a_key_is_the_same_for_ever(key: str, expected: str, tmp_path: Path) -> None:
    assert key_definition(feed_of(tmp_path, key)) == expected


def test_the_definition_of_a_key_changes_with_what_its_lookup_file_says(tmp_path: Path) -> None:
    key = "[{from: ID, do: [{lookup: renumbered.csv, on_miss: keep}]}]"
    one, same, other = (key_definition(feed_of(tmp_path, key, table)) for table in (TABLE, TABLE + "\n", TABLE + "C,79\n"))
    assert one == same != other


MISTAKES = [
    ("[{from: ID, do: [html_to_text]}]", '3:23 the step "html_to_text" cannot be used in a key, a key may use trim, collapse,'),
    ("[{from: ID, do: [{split: ','}]}]", "3:7 a part of a key is one text, and this is a list"),
    ("[{from: ID, do: [{map: {A: B}, on_miss: omit}]}]", '3:23 a choice beside the step "map" is not allowed in a key'),
    ("[$words]", '3:7 "$words" cannot be used in a key, a key takes a named value that is a column with its steps'),
    ("[$nothing]", '3:7 unknown name "$nothing", define it under let'),
    ("[$lax]", "8:43 the key uses $lax, and on_empty is not allowed in a key"),
    ("[{from: ID, on_empty: omit}]", '3:18 unknown key "on_empty"'),
    ("[ID, {first_of: [A, B]}]", "3:11 first_of must be the whole key, and other parts are beside it"),
    ("{first_of: [A]}", "3:6 first_of chooses from two keys at least"),
]


@pytest.mark.parametrize(("key", "expected"), MISTAKES)
def test_what_cannot_stand_in_a_key_is_named_at_its_place(key: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(MappingFileError) as raised:
        feed_of(tmp_path, key)
    found = [f"{one.line}:{one.column} {one.message}, {one.hint}" for one in raised.value.problems]
    assert [one for one in found if one.startswith(expected)], found


def test_rows_of_several_events_have_one_key(tmp_path: Path) -> None:
    with pytest.raises(MappingFileError, match="first_of and the rule explode cannot be combined"):
        feed_of(tmp_path, "{first_of: [ID, DAY]}", rows='rows: [{explode: {columns: DAY, by: " "}}]\n')


ROOT = Path(mappings.row_key.__file__).parent.parent
FEED = FeedName("lisbon-agenda")

IDEMPOTENCY_KEYS = {
    ("default", "lisbon-agenda", "17", "create", 0): "es1-8af8353b5e5b488203b85a3a5ead3161",
    ("default", "lisbon-agenda", "17", "create", 1): "es1-44f9de710656accbb61362c73437cad3",
    ("default", "lisbon-agenda", "17", "draft", 0): "es1-00a191d5f08cc222adde6854e4a83e8a",
    ("prod", "lisbon-agenda", "17", "create", 0): "es1-4fa94674e0bce033ec5d8d00c3b9f78d",
    ("default", "ünï", "Æ|\\|日本", "create", 0): "es1-51073b18f9ffc1ae4c574eed5d873e44",
}
ELSEWHERE = """
import json
from mappings.row_key import fingerprint, idempotency_key, row_digest, row_key, duplicate_digest
keys = [idempotency_key(n, f, k, action=a, revision=r) for n, f, k, a, r in json.loads(input())]
print(json.dumps([*keys, row_key(["A 17", "x|y", " e\\u0301\\u2003"]), fingerprint(b"{}", "u"), row_digest(b"m", "ab").hex(),
    duplicate_digest(7, "Stra\\u00dfe", "s", "\\u00c9vora").hex()]))
"""


@pytest.mark.parametrize(("parts", "expected"), IDEMPOTENCY_KEYS.items())
def test_an_idempotency_key_is_the_same_for_ever(parts: tuple[str, str, str, str, int], expected: str) -> None:
    namespace, feed, key, action, revision = parts
    assert idempotency_key(namespace, FeedName(feed), RowKey(key), action=action, revision=revision) == expected


def test_the_digests_of_rows_are_the_same_for_ever() -> None:
    assert fingerprint(b'{"title":"Jazz"}') == "0dd7e975344af1ce96c03c3287e7667a"
    assert fingerprint(b'{"title":"Jazz"}', "https://img.example/a.jpg") == "e9cac7faf4bc823a5f782a56427d5d19"
    assert row_digest(b"m" * 16, ["a", "b", ""]).hex() == "e7e4b50dddfadb52f2671d267de4a852"
    twin = duplicate_digest(7, "Jazz & Blues", "2026-04-01T20:00:00+02:00", "Lisboa")
    assert twin.hex() == "dae8e5313e3ae8d86f861719ed72ff48"
    event = {"channelId": 7, "title": "Jazz & Blues", "startAt": "2026-04-01T20:00:00+02:00"}
    event["approxLocation"] = {"city": {"placeId": "pt-lisboa"}}
    assert duplicate_digest_of(event).hex() == "dbaf527e49e2be9eeead00431d937eb6"
    assert duplicate_digest_of({**event, "locationName": "Hot Clube"}).hex() == "41f1e2f014a518ef29a33dd77f17dfe4"


def test_a_row_key_joins_its_parts_legibly() -> None:
    assert row_key(["A 17", "x|y", "b\\c", " \u00a0é\u2003"]) == "A 17|x\\|y|b\\\\c|é"


def test_the_two_spellings_of_an_accent_are_one_row_key() -> None:
    assert row_key(["e\u0301vora"]) == row_key(["\u00e9vora"])


def test_copies_are_recognised_whatever_their_capitals() -> None:
    assert duplicate_digest(7, "JAZZ", "s", "LISBOA") == duplicate_digest(7, "jazz", "s", "lisboa")


def _digests(interpreter: str, seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(
        [interpreter, "-c", ELSEWHERE],
        input=json.dumps(list(IDEMPOTENCY_KEYS)),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    digests: list[str] = json.loads(told.stdout)
    return digests


def _interpreter(name: str) -> str | None:
    """Find a Python that starts, on the path or among pyenv's; pyenv's own command fails for versions that are not selected."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(name), *map(str, sorted(pyenv.glob(f"versions/*/bin/{name}")))]
    return next((one for one in found if one and _starts(one)), None)


def _starts(interpreter: str) -> bool:
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_hash_randomisation_changes_no_digest(seed: str) -> None:
    assert _digests(sys.executable, seed)[: len(IDEMPOTENCY_KEYS)] == list(IDEMPOTENCY_KEYS.values())
    assert _digests(sys.executable, seed) == _digests(sys.executable, "2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["python3.11", "python3.12", "python3.13"])
def test_every_python_gives_the_same_digests(name: str) -> None:
    interpreter = _interpreter(name)
    if interpreter is None:
        pytest.skip(f"no {name} here")
    assert _digests(interpreter, "0") == _digests(sys.executable, "0")
