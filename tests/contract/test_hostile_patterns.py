"""Patterns that keep a backtracking matcher busy for ever, over long cells, in every place where a mapping file has one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LONG = 100_000
SEARCHED = 20_000
FEED = """\
feed: hostile
source:
  kind: csv
  path: rows.csv
  header: {{matches: '{pattern}|^ID$'}}
  until: '{pattern}|^END$'
key: [ID]
rows:
  - skip: {{column: TEXT, matches: '{pattern}', ignore: [case]}}
    because: matches
event:
  channelId: "7"
  title: {{first_of: [{{from: TEXT, do: [{{regex_extract: '({pattern})'}}], on_error: omit}}, untitled]}}
  startAt: "2031-05-03T20:00:00+01:00"
  timezone: Europe/Lisbon
  classifications:
    {{from: TEXT, do: [{{regex_split: '{pattern}'}}, {{map: {{x: music}}, on_miss: omit}}], on_empty: {{use: [music]}}}}
  approxLocation.city.placeId: {{from: TEXT, do: [{{lookup: cities.csv, match: regex}}], on_error: {{use: lisboa}}}}
  locationName:
    {{from: TEXT, do: [{{regex_replace: '{pattern}', with: x}}, {{regex_all: '{pattern}'}}, {{join: ' '}}], on_empty: omit}}
"""


@pytest.mark.slow(about_s=4)
@pytest.mark.parametrize(
    ("pattern", "cell"),
    [
        ("^(?:a|a)*$", "a" * LONG + "b"),
        ("(?:a?){40}a{40}$", "a" * LONG + "b"),
        ("^(?:.*?,){15}P", "1," * (LONG // 2)),
        ("(?:a+)+$", "a" * LONG + "b"),
        (r"^(?:\s*\w+\s*)+$", "é " * (LONG // 2) + "-"),
    ],
)
def test_no_pattern_takes_long_wherever_it_stands(tmp_path: Path, pattern: str, cell: str) -> None:
    (tmp_path / "feed.yaml").write_text(FEED.format(pattern=pattern), "utf-8")
    (tmp_path / "cities.csv").write_text(f'key,placeId\n"{pattern}",lisboa\n', "utf-8")
    rows = "".join(f'2-{number},"{cell[-SEARCHED:]}"\n' for number in range(3))
    (tmp_path / "rows.csv").write_text(f'"{cell}",-\nID,TEXT\n1-x,"{cell}"\n{rows}END,\n', "utf-8")
    command = [Path(sys.executable).with_name("eventsync"), "preview", str(tmp_path / "feed.yaml"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)  # of seconds
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert json.loads(done.stdout), done.stderr
