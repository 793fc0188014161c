"""Stories of one line a step: a command or a change of the world, and what must be seen of it then."""

from __future__ import annotations

import re
import shlex

import ledger_tables
import yaml
from unit.cli.conftest import FEED, MAPPING, ROWS, Decider, holds

from state.enums import Waiting
from state.opening import open_database

IN_CONFLICT = "run => 0\nforget\nswitch idempotency: refuse\nrun => 1\nstates => conflict 3"
"""The state DB was lost, and the service answers 409 for every key that it has seen."""
RUN_TWICE = "source ROWS\nrun => 0\nsource 1,Jazz again,2030-05-01,19:30,,concert / 2 / 4 / 5\nrun => 0"
"""The second run finds one row edited, one gone, two that cannot be used."""
OFFLINE = "source ROWS\nunset EVENT_API_BASE_URL\nunset EVENT_API_KEY"
BEGINNINGS = {"in conflict": IN_CONFLICT, "run twice": RUN_TWICE, "offline": OFFLINE}
WITHOUT_FEED = {"runs", "metrics", "state", "prune", "check", "feeds"}


def told_in(text: str) -> dict[str, str]:
    """Part a text of several stories, each below its `# title`."""
    stories = (part.partition("\n") for part in text.strip().removeprefix("# ").split("\n# "))
    return {title: "\n".join(BEGINNINGS.get(step, step) for step in steps.splitlines()) for title, _, steps in stories}


def follow(decider: Decider, story: str) -> None:
    """Do each line: `words of a command => exit code | a text it shows | !a text it does not show | {part of its document}`.

    The feed is named by itself, except after `eventsync`. `<Jazz>` is the id of the event with that title, `SERVICE` and
    `FOLDER` are where the service and the working folder are.
    """
    places = {"SERVICE": decider.service.base_url, "FOLDER": str(decider.desk.folder)}
    for written in story.splitlines():
        line = re.sub("SERVICE|FOLDER", lambda place: places[place[0]], written)
        step, _, seen = re.sub(r"<(\w+)>", lambda title: decider.event_id(title[1]), line).partition(" => ")
        verb, _, rest = step.partition(" ")
        if verb in CHANGES:
            CHANGES[verb](decider, rest)
        elif verb in VIEWS:
            assert VIEWS[verb](decider, rest) == seen, line
        else:
            _command(decider, verb, rest, seen.split(" | ") if seen else [])


def _command(decider: Decider, verb: str, rest: str, seen: list[str]) -> None:
    words = shlex.split(rest) if verb == "eventsync" else [verb, *([] if verb in WITHOUT_FEED else [FEED]), *shlex.split(rest)]
    code = int(seen.pop(0)) if seen and seen[0].isdigit() else None
    documents = [yaml.safe_load(one) for one in seen if one[0] == "{"]
    more = [*(["--no-dagster"] if verb == "run" and "--dry-run" not in rest else []), *(["--json"] if documents else [])]
    said = decider.desk.run(*words, *more, code=code)
    written = [word for word in words if word.endswith((".html", ".csv"))]
    shown = " ".join([said.words, *((decider.desk.folder / name).read_text("utf-8-sig") for name in written)])
    assert "Traceback" not in shown
    assert [one for one in documents if not holds(said.document, one)] == [], said.out
    for text in (one for one in seen if one[0] != "{"):
        assert (text.removeprefix("!") in shown) is (text[0] != "!"), (text, shown)


def _source(decider: Decider, rows: str) -> None:
    """Rows that are parted by ` / `; of a row of `ROWS` the first cell will do."""
    known = {row.partition(",")[0]: row for row in ROWS}
    decider.desk.source([known.get(row, row) for row in rows.replace("ROWS", " / ".join(ROWS)).split(" / ") if row])


def _file(decider: Decider, words: str) -> None:
    name, _, text = words.partition(" ")
    path = decider.desk.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("\\n", "\n"), "utf-8")


def _mapping(decider: Decider, change: str) -> None:
    old, _, new = change.partition(" -> ")
    assert old in MAPPING
    decider.desk.mapping(MAPPING.partition("examples:")[0].replace(old, new.replace("\\n", "\n")) if change else MAPPING)


def _edit(decider: Decider, change: str) -> None:
    """Change the mapping file where it says something, examples included."""
    old, _, new = change.replace("\\n", "\n").partition(" -> ")
    path = decider.desk.folder / "feeds" / "town.yaml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def _tables(decider: Decider, words: str) -> None:
    """Do what no command does: a function of `ledger_tables`, and its arguments."""
    name, *arguments = words.split()
    engine = open_database(f"sqlite:///{decider.desk.state}")
    getattr(ledger_tables, name)(engine, *arguments)
    engine.dispose()


def _key(decider: Decider, scopes: str) -> None:
    """Go on with a key that may do no more than this."""
    secret = decider.service.change("/keys", name="few", scopes=scopes.split())["secret"]
    decider.desk.monkeypatch.setenv("EVENT_API_KEY", secret)


CHANGES = {
    "switch": lambda decider, switches: decider.service.switch(**yaml.safe_load(f"{{{switches}}}")),
    "key": _key,
    "allow": lambda decider, channel: decider.service.change("/channels/access", channel=channel, allowed=True),
    "reset": lambda decider, _: decider.service.change("/reset"),
    "forget": lambda decider, _: decider.forget(),
    "env": lambda decider, words: decider.desk.monkeypatch.setenv(*words.split(maxsplit=1)),
    "unset": lambda decider, name: decider.desk.monkeypatch.delenv(name),
    "source": _source,
    "file": _file,
    "delete": lambda decider, name: (decider.desk.folder / name).unlink(),
    "mapping": _mapping,
    "edit": _edit,
    "tables": _tables,
}


def _waiting(decider: Decider, _: str) -> str:
    """What `status` counts; the list of each kind has as many rows."""
    (feed,) = decider.told("status")["feeds"]
    assert [len(decider.listed("--state", kind)) for kind in Waiting] == [feed["waiting"].get(kind, 0) for kind in Waiting]
    return _counted(feed["waiting"])


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "none"


VIEWS = {
    "states": lambda decider, _: _counted(decider.told("status")["feeds"][0]["counts"]),
    "waiting": _waiting,
    "listed": lambda decider, words: ", ".join(decider.listed(*words.split())),
    "titles": lambda decider, _: ", ".join(decider.service.titles()),
    "files": lambda decider, _: ", ".join(sorted(path.name for path in decider.desk.folder.iterdir())),
}
