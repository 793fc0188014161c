"""A program that prints the rows of `rows.json` in its folder: lines of JSON, or messages of a Singer tap or Airbyte connector.

`tap.py SPEAKS [--config FILE] [--state FILE]`; it needs nothing but Python, as a tap of its own environment. Each row is
`[number of its edit, is deleted, record]`. A file `cut` makes it end in the middle of the last line, as a full disk does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STREAM = "events"


def main(speaks: str, *words: str) -> None:
    options = dict(zip(words[::2], words[1::2], strict=True))
    if "--config" in options:
        print(f"the token is {json.loads(Path(options['--config']).read_text())['token']}", file=sys.stderr)
    state = json.loads(Path(options["--state"]).read_text()) if "--state" in options else {}
    since = (state[0]["stream"]["stream_state"] if isinstance(state, list) else state).get("edit", 0)
    rows = json.loads(Path("rows.json").read_text())
    edit = max((number for number, _, _ in rows["rows"]), default=0)
    changed = [(is_gone, record) for number, is_gone, record in rows["rows"] if number > since and (since or not is_gone)]
    lines = {"json": _lines, "singer": _singer, "airbyte": _airbyte}[speaks](rows["columns"], changed, edit)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()
    sys.stdout.buffer.write(text[: len(text) // 2] if Path("cut").exists() else text)
    sys.stdout.flush()
    if "--fails" in options:
        sys.exit(int(options["--fails"]))


Changed = list[tuple[bool, dict[str, str]]]


def _lines(columns: list[str], changed: Changed, _edit: int) -> list[Any]:
    return [record for _, record in changed] or [""] * bool(columns)


def _marked(is_gone: bool, record: dict[str, str]) -> dict[str, str]:
    return {**record, "_sdc_deleted_at": "2026-05-03T00:00:00Z"} if is_gone else record


def _singer(columns: list[str], changed: Changed, edit: int) -> list[Any]:
    schema = {"type": "SCHEMA", "stream": STREAM, "key_properties": [], "schema": {"properties": {}}}
    records = [{"type": "RECORD", "stream": STREAM, "record": _marked(*each)} for each in changed]
    other = {"type": "RECORD", "stream": "venues", "record": {"ref": "none of ours"}}
    states = [{"type": "STATE", "value": {"edit": number}} for number in (0, edit)]
    return [states[0], *[schema] * bool(columns), *records, other, {"type": "ACTIVATE_VERSION", "stream": STREAM}, states[1]]


def _airbyte(columns: list[str], changed: Changed, edit: int) -> list[Any]:
    stream = {"stream_descriptor": {"name": STREAM}}
    records = [{"type": "RECORD", "record": {"stream": STREAM, "data": _marked(*each), "emitted_at": 1}} for each in changed]
    state = {"type": "STATE", "state": {"type": "STREAM", "stream": {**stream, "stream_state": {"edit": edit}}}}
    done = {"type": "TRACE", "trace": {"type": "STREAM_STATUS", "stream_status": {**stream, "status": "COMPLETE"}}}
    return [{"type": "LOG", "log": {"level": "INFO", "message": "begins"}}, *records, state, *[done] * bool(columns)]


if __name__ == "__main__":
    main(*sys.argv[1:])
