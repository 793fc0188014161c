"""`make reference`: every page and schema that is generated from the code.

commands.md is written from the commands, assets.md from the definitions of one feed as Dagster sees them, documents.md from the
types of `--json` documents, which are published as JSON Schema in docs/json. In notifications.md, observability.md and
sandbox.md one table is written.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import dagster as dg
import typer
from architecture.places import ROOT
from commands import every_command

from mappings.reference import feed_json_schema, read_vocabulary
from pipelines.cli.schema import DOCUMENTS, document_schema
from pipelines.definitions import application
from pipelines.metrics import GAUGES
from pipelines.notices import Cause
from pipelines.orchestration import names
from pipelines.orchestration.assets import BackfillWay, LaunchOptions
from pipelines.orchestration.automation import FEWEST_FEEDS
from pipelines.orchestration.broken import CHECK, GROUP
from pipelines.orchestration.metadata import PUBLISH_CHECKS
from pipelines.run.context import open_context
from pipelines.run.options import BRAKE_TEXTS
from pipelines.settings import read_settings
from sandbox.switches import Switches, accepted_values, format_switches


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing at all without rows. What would end a cell or a row is made harmless."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(columns), "|" + "---|" * len(columns), *lines]) if lines else ""


def page(*parts: str) -> str:
    """Parts with an empty line between them; those that are empty are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _line(cells: Sequence[str]) -> str:
    safe = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(safe)} |"


_COMMANDS = """\
# The command line

All commands of `eventsync`, with the text of their `--help`. `make reference` generates this page from the code.

Commands print tables, and during long work a progress bar on stderr. `NO_COLOR` switches colours off. With `--json` stdout has
one document and nothing else: [JSON documents](documents.md). Settings: [The environment](environment.md). Completion in the
shell: [Observability](observability.md#completion-in-the-shell)."""

_EXIT_CODES = """\
## Exit codes

Of a run. Other commands use the same codes with the same meaning; each section names those of its command."""

_INDENTED = re.compile(r"(?:^ {4}.*(?:\n|\Z))+", re.MULTILINE)


def write_commands() -> str:
    verbs = list(every_command())
    links = {name: f"[{name}](#eventsync-{name.replace(' ', '-')})" for name, _ in verbs}
    overview = table(("command", "does"), ((links[name], (verb.help or "").partition("\n\n")[0]) for name, verb in verbs))
    return page(_COMMANDS, overview, *(_section(name, verb) for name, verb in verbs), _EXIT_CODES, _exit_codes())


def _section(name: str, verb: typer.core.TyperCommand) -> str:
    arguments = [one.display_name_raw for one in verb.params if isinstance(one, typer.core.TyperArgument)]
    usage = " ".join(["eventsync", name, *arguments, *(["[OPTIONS]"] if len(arguments) < len(verb.params) else [])])
    context = typer.Context(verb, info_name=f"eventsync {name}")
    words = table(("argument or option", "meaning"), (_word(one, context) for one in verb.params))
    return page(f"## eventsync {name}", f"`{usage}`", _text(verb.help or ""), words)


def _text(text: str) -> str:
    """A docstring as Markdown that needs no indentation: examples are shell blocks, a paragraph is one line."""
    pieces, end = [], 0
    for found in _INDENTED.finditer(text):
        pieces += [_paragraphs(text[end : found.start()]), f"```sh\n{dedent(found[0]).strip()}\n```"]
        end = found.end()
    return page(*pieces, _paragraphs(text[end:]))


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n")).strip()


def _word(one: typer.core.TyperArgument | typer.core.TyperOption, context: typer.Context) -> tuple[str, str]:
    spelt, told = one.get_help_record(context) or ("", "")
    if isinstance(one, typer.core.TyperArgument):
        spelt = one.display_name_raw
    return f"`{spelt.replace('|', ', ')}`", told


def _exit_codes() -> str:
    """The table of the README, with its links as they lead from here."""
    chapter = (ROOT / "README.md").read_text("utf-8").partition("\n## When it fails\n")[2].partition("\n## ")[0]
    return "\n".join(line for line in chapter.splitlines() if line.startswith("|")).replace("](docs/", "](")


_DOCUMENTS = """\
# JSON documents

With `--json` a command prints one document on stdout, and nothing else. `make reference` generates this page from the code. The
JSON Schema (draft 2020-12) of each document is in [json/](json); `eventsync schema --document run` prints that of your version.

New versions add keys; present keys keep their meaning. Scripts should ignore unknown keys. Times are ISO 8601 with their zone,
durations (`_s`) are seconds, infinite numbers are null. A command that fails prints an [ErrorDocument](#errordocument) instead,
and ends with an [exit code](commands.md#exit-codes)."""

_ERROR = "#/$defs/ErrorDocument"


def file_name(verb: str) -> str:
    """Return the name of the schema file of a verb."""
    return f"{verb.replace(' ', '-')}.schema.json"


def write_documents() -> str:
    schemas = {verb: document_schema(verb) for verb in DOCUMENTS}
    kinds = {verb: [_kind(one) for one in schema["anyOf"] if one.get("$ref") != _ERROR] for verb, schema in schemas.items()}
    files = {verb: f"[{file_name(verb)}](json/{file_name(verb)})" for verb in schemas}
    verbs = table(
        ("command", "document", "schema"), ((f"`eventsync {verb}`", " or ".join(kinds[verb]), files[verb]) for verb in schemas)
    )
    types: dict[str, Mapping[str, Any]] = {}
    for verb, schema in schemas.items():
        for name, one in schema["$defs"].items():
            assert types.setdefault(name, one) == one, f"{name} of {verb} is called as another type is"
    return page(_DOCUMENTS, verbs, "## Types", *(_type(name, types[name]) for name in sorted(types, key=str.casefold)))


def _type(name: str, schema: Mapping[str, Any]) -> str:
    told = " ".join(schema.get("description", "").split())
    if "properties" not in schema:
        return page(f"### {name}", told, f"It is {_kind(schema)}.")
    needed = set(schema.get("required", ()))
    rows = (
        (f"`{key}`", _kind(one) + ("" if key in needed else ", if any"), one.get("description", ""))
        for key, one in schema["properties"].items()
    )
    return page(f"### {name}", told, table(("key", "value", "meaning"), rows))


def _kind(schema: Mapping[str, Any]) -> str:  # noqa: PLR0911  # a table, one line a kind
    match schema:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})"
        case {"anyOf": choices}:
            return " or ".join(map(_kind, choices))
        case {"enum": words}:
            return f"one of {', '.join(f'`{word}`' for word in words)}"
        case {"const": word}:
            return f"`{word}`"
        case {"type": "array"}:
            return f"list of {_kind(schema['items'])}" if "items" in schema else "list"
        case {"type": "object", "propertyNames": names, "additionalProperties": values}:
            return f"object of {_kind(values)} by {_kind(names)}"
        case {"type": "object", "additionalProperties": {} as values}:
            return f"object of {_kind(values)}"
        case {"type": kind, "format": form}:
            return f"{kind} ({form})"
        case {"type": kind}:
            return str(kind)
        case _:
            return "anything"


_FEED = "town-hall"
_MAPPING = """\
feed: town-hall
owner: agenda@example.org
source: {kind: csv, path: "in/agenda-{date:%Y%m%d}.csv"}
after: [warehouse/events]
schedule: {cron: "15 */2 * * *", timezone: Europe/Warsaw, look_every: 5m, on_update: true}
key: [ID]
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [collapse]}
  startAt: {at: {day: {from: DAY, do: [{date: "%Y-%m-%d"}]}, clock: {from: HOUR, do: [{time: "%H:%M"}]}, zone: Europe/Warsaw}}
  timezone: Europe/Warsaw
  classifications: {from: GENRE, do: [{map: {concert: music}}]}
  approxLocation: {city: {placeId: krk}}
"""
_ENVIRON = {
    "EVENT_API_BASE_URL": "https://events.example.org",
    "EVENTSYNC_FEEDS": "feeds",
    "EVENTSYNC_NOTIFY": "json://alerts.example.org",
    "DAGSTER_HOME": "dagster",
}

_ASSETS = f"""\
# Assets, checks, jobs

The names that a feed has in Dagster, for scripts and alerts. The example is `{_FEED}`, with a dated file as source, a cron line,
`look_every`, `on_update` and notifications. In names of groups, jobs, schedules and sensors, `-` becomes `_`. `make reference`
generates this page from the definitions. How to use them: [Feeds in the Dagster UI](dagster.md)."""

_BROKEN = f"""\
A broken mapping file is instead an asset of the group `{GROUP}`, with one check, `{CHECK}`, which fails until the file is
corrected."""

_LAUNCHING = f"""\
Options of the resource `{names.OPTIONS}` in the launchpad, as of `eventsync run`. They hold no secrets."""

_LAUNCHED_BY = (
    "What launched it: `schedule` (also for a changed source or an updated asset), `backfill`, `cli`, or `dagster` (the UI)."
)
_PLANNED = "The days of a backfill that the command launched, and what decides a row's day."
_TAGS = (
    (names.FEED_TAG, "The feed."),
    (names.FEEDS_TAG, "How many feeds a shared run has."),
    (names.LAUNCHED_BY_TAG, _LAUNCHED_BY),
    (names.PLAN_TAG, _PLANNED),
)
_SEQUENCES = f"""\
Each can be switched on and off in the UI. {FEWEST_FEEDS} or more feeds with the same cron line and time zone have one schedule
together, `due_feeds_` and the cron line."""


def write_assets() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "feeds").mkdir()
        (Path(folder) / "feeds" / f"{_FEED}.yaml").write_text(_MAPPING, "utf-8")
        settings = read_settings(_ENVIRON, Path(folder))
        definitions = application(settings, lambda: open_context(settings))
        steps = ("source", "staged", "published", "backfilled")
        own = (spec for spec in definitions.resolve_all_asset_specs() if spec.key.path[0] == _FEED)
        specs = sorted(own, key=lambda spec: steps.index(spec.key.path[-1]))
        repository = definitions.get_repository_def()
        options, ways = (
            [
                (f"`{name}`", f"`{one.get_default(call_default_factory=True)!r}`", one.description or "")
                for name, one in kind.model_fields.items()
            ]
            for kind in (LaunchOptions, BackfillWay)
        )
        jobs = sorted(repository.get_all_jobs(), key=lambda job: job.name)
        return page(
            _ASSETS,
            "## Assets",
            table(("asset", "group", "kinds", "meaning"), map(_asset, specs)),
            _BROKEN,
            "## Checks",
            table(("asset", "check", "blocks what comes after", "passes if"), _checks()),
            "## Jobs",
            table(("job", "does"), ((f"`{job.name}`", job.description or "") for job in jobs if not job.name.startswith("__"))),
            "## Schedules and sensors",
            _SEQUENCES,
            table(("name", "when", "on from the start", "starts"), _automations(repository)),
            "## Launch options",
            _LAUNCHING,
            table(("option", "default", "meaning"), options),
            "Configuration of the asset `backfilled`:",
            table(("option", "default", "meaning"), ways),
            "## Tags",
            table(("tag of a run", "meaning"), ((f"`{tag}`", said) for tag, said in _TAGS)),
        )


def _asset(spec: dg.AssetSpec) -> tuple[str, str, str, str]:
    kinds = ", ".join(f"`{kind}`" for kind in sorted(spec.kinds))
    return f"`{'/'.join(spec.key.path)}`", f"`{spec.group_name}`", kinds, spec.description or ""


def _checks() -> Iterator[tuple[str, str, str, str]]:
    yield from (("`staged`", f"`{name}`", "yes", text) for name, text in BRAKE_TEXTS.items())
    yield from (("`published`", f"`{name}`", "no", text) for name, text in PUBLISH_CHECKS.items())


def _automations(repository: dg.RepositoryDefinition) -> Iterator[tuple[str, str, str, str]]:
    for schedule in sorted(repository.schedule_defs, key=lambda one: one.name):
        zone = f", {schedule.execution_timezone}" if schedule.execution_timezone else ""
        is_on = schedule.default_status is dg.DefaultScheduleStatus.RUNNING
        yield f"`{schedule.name}`", f"`{schedule.cron_schedule}`{zone}", "yes" if is_on else "no", f"`{schedule.job_name}`"
    for sensor in sorted(repository.sensor_defs, key=lambda one: one.name):
        is_on = sensor.default_status is dg.DefaultSensorStatus.RUNNING
        every = f"every {sensor.minimum_interval_seconds} s"
        yield f"`{sensor.name}`", every, "yes" if is_on else "no", sensor.description or ""


def write_sandbox() -> str:
    """The page as it is, with the table of today's switches."""
    fields, defaults = Switches.model_fields, format_switches(Switches())
    rows = ((f"`{name}`", f"`{defaults[name]}`", accepted_values(name), one.description or "") for name, one in fields.items())
    return _with_table("sandbox.md", "switches", table(("switch", "default", "values", "what it decides"), rows))


def write_notifications() -> str:
    """The page as it is, with the table of today's causes."""
    rows = ((f"`{one.value}`", one.heading) for one in Cause)
    return _with_table("notifications.md", "causes", table(("cause", "title"), rows))


def write_observability() -> str:
    """The page as it is, with the table of today's metrics."""
    rows = ((f"`{name}`", meaning) for name, meaning in GAUGES.items())
    return _with_table("observability.md", "metrics", table(("metric", "meaning"), rows))


def _with_table(page: str, name: str, written: str) -> str:
    """Return a page of docs with this table between its marks."""
    marks = re.compile(rf"(?<=<!-- the table of {name}, written by `make reference` -->\n).*(?=<!-- the end)", re.DOTALL)
    text, count = marks.subn(lambda _: f"\n{written}\n\n", (ROOT / "docs" / page).read_text("utf-8"))
    assert count == 1
    return text


def generated_files() -> Iterator[tuple[Path, Callable[[], str]]]:
    """Yield each generated file with the function that returns its text."""
    docs = ROOT / "docs"
    yield docs / "assets.md", write_assets
    yield docs / "commands.md", write_commands
    yield docs / "documents.md", write_documents
    yield docs / "notifications.md", write_notifications
    yield docs / "observability.md", write_observability
    yield docs / "sandbox.md", write_sandbox
    yield docs / "vocabulary.md", lambda: read_vocabulary().text
    yield ROOT / "mappings" / "eventsync.schema.json", lambda: _json(feed_json_schema())
    for verb in DOCUMENTS:
        yield docs / "json" / file_name(verb), lambda verb=verb: _json(document_schema(verb))  # type: ignore[misc]


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write every file whose text has changed, and print its name."""
    for path, text_of in generated_files():
        text = text_of()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"{path.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
