"""The page about the command line, written from the commands: their words, their examples, their arguments and options.

What a verb promises stands in its own docstring; what an exit code means, in the README.
"""

from __future__ import annotations

import re
from textwrap import dedent

import typer
from architecture.places import ROOT
from commands import every_command
from reference_pages.tables import page, table

_OPENING = """\
# The command line

Every verb of `eventsync`, as its `--help` tells it. This page is written from the code (`make reference`); a test keeps the
two alike.

People get tables, and on long work a bar with rate and time left on stderr; no colour where stdout is no terminal or
`NO_COLOR` is set. With `--json` stdout carries one document and nothing else ([documents.md](documents.md)). Feeds, runs,
brakes, states and row keys complete in the shell ([observability.md](observability.md#completion-in-the-shell)). Settings
come from [the environment](environment.md)."""

_EXIT_CODES = """\
## Exit codes

Those of a run. Other verbs use the same numbers for the same things; what each may end with stands above."""

_INDENTED = re.compile(r"(?:^ {4}.*(?:\n|\Z))+", re.MULTILINE)


def write_commands() -> str:
    """The whole page, as Markdown."""
    verbs = list(every_command())
    overview = table(
        ("verb", "does"), ((f"[{name}](#eventsync-{name.replace(' ', '-')})", _first_sentence(verb)) for name, verb in verbs)
    )
    return page(_OPENING, overview, *(_section(name, verb) for name, verb in verbs), _EXIT_CODES, _exit_codes())


def _first_sentence(verb: typer.core.TyperCommand) -> str:
    return (verb.help or "").partition("\n\n")[0]


def _section(name: str, verb: typer.core.TyperCommand) -> str:
    return page(f"## eventsync {name}", f"`{_usage(name, verb)}`", _text(verb.help or ""), _words(name, verb))


def _usage(name: str, verb: typer.core.TyperCommand) -> str:
    arguments = [one.display_name_raw for one in verb.params if isinstance(one, typer.core.TyperArgument)]
    return " ".join(["eventsync", name, *arguments, *(["[OPTIONS]"] if len(arguments) < len(verb.params) else [])])


def _text(told: str) -> str:
    """A docstring as Markdown that needs no indentation: examples are shell blocks, a paragraph is one line."""
    pieces, end = [], 0
    for found in _INDENTED.finditer(told):
        pieces += [_paragraphs(told[end : found.start()]), f"```sh\n{dedent(found[0]).strip()}\n```"]
        end = found.end()
    return page(*pieces, _paragraphs(told[end:]))


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n")).strip()


def _words(name: str, verb: typer.core.TyperCommand) -> str:
    context = typer.Context(verb, info_name=f"eventsync {name}")
    return table(("word", "what it says"), (_word(one, context) for one in verb.params))


def _word(one: typer.core.TyperArgument | typer.core.TyperOption, context: typer.Context) -> tuple[str, str]:
    spelt, told = one.get_help_record(context) or ("", "")
    if isinstance(one, typer.core.TyperArgument):
        spelt = one.display_name_raw
    return f"`{spelt.replace('|', ', ')}`", told


def _exit_codes() -> str:
    """The table of the README, with its links as they lead from here."""
    chapter = (ROOT / "README.md").read_text("utf-8").partition("\n## When it fails\n")[2].partition("\n## ")[0]
    return "\n".join(line for line in chapter.splitlines() if line.startswith("|")).replace("](docs/", "](")
