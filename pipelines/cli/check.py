"""`eventsync check`: whether the mapping files are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NotRequired

import typer
from typing_extensions import TypedDict

from pipelines.cli.completion import feed_words
from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import FileProblem, MappingFileError
    from pipelines.before_serving import settings_lacking
    from pipelines.cli.feed_files import SharedFile, every_mapping, mapping_or_error, shared_file
    from pipelines.cli.findings import ExampleFindings, FeedFindings, LiveFinding, find
    from pipelines.cli.output.console import Output
    from pipelines.cli.output.words import worst
    from pipelines.settings import current_settings

FeedsOrFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FEED]...", help="Feeds by name, or paths of mapping files; all without any.", autocompletion=feed_words
    ),
]


def check(
    feeds: FeedsOrFiles = None,
    live: Annotated[bool, typer.Option("--live", help="Ask the service and the sources as well; nothing is written.")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also send an event without any field, to see whether the key may create events.")
    ] = False,
    notify: Annotated[bool, typer.Option("--notify", help="Also send a test to whoever would be told of the feeds.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check mapping files: every mistake with its line and column, then the examples, offline.

    For example:

        # Every file of the folder
        eventsync check
        # A file that you are writing
        eventsync check drafts/lisbon.yaml
        # The feeds that include a file
        eventsync check feeds/_shared.yaml
        # Also the service and the source
        eventsync check lisbon-agenda --live
        # Also the notifications: each recipient gets a test
        eventsync check lisbon-agenda --notify

    --live asks for the key, its channels, the classifications and the service's own page (OpenAPI), which is compared
    with what the mapping sends; it also lists who is notified of each feed.

    Exit codes: 0 all is well (warnings are allowed), 2 a file has a mistake, an example did not come true, or the service
    would refuse what the mapping sends; with --live also 3 key or scope refused, 6 the service or a source does not
    answer; with --probe also 1 the service created an event.
    """
    words = tuple(feeds or ())
    is_live = live or probe or notify
    settings, output = current_settings(), Output(json=as_json)
    shared = [one for one in (shared_file(settings, word) for word in words) if one]
    loaded = [mapping_or_error(settings, word) for word in _feeds_of(words, shared)] or every_mapping(settings)
    findings = [find(one) for one in loaded]
    if is_live:
        from pipelines.cli.check_live import ask_for  # offline, nothing of the network is loaded

        sound = [one for one in loaded if not isinstance(one, MappingFileError)]
        answers = ask_for(settings, sound, is_probing=probe, is_telling=notify)
        findings = [replace(found, live=answers.get(one.path, ())) for one, found in zip(loaded, findings, strict=True)]
    code = worst(_codes(findings))
    document = Check(feeds=[_document(one, is_live=is_live) for one in findings], ok=code == 0)
    if shared:
        document["shared"] = shared
    output.document(document)
    for each in shared:
        output.note(str(each))
    for one in findings:
        _show(output, one)
    if lacking := settings_lacking(settings.dagster_home):
        output.note(f"{settings.dagster_home / 'dagster.yaml'} does not say {', '.join(lacking)}: {_BY_DEFAULT}")
    output.note(_summary(findings))
    return code


class CheckedFile(TypedDict):
    """What was found in one mapping file; `live` is there with --live."""

    feed: str
    path: Path
    problems: Sequence[FileProblem]
    warnings: Sequence[FileProblem]
    examples: ExampleFindings
    live: NotRequired[Sequence[LiveFinding]]


class Check(TypedDict):
    """What was found in all files; `shared`: files that were named, and are there to be included."""

    feeds: Sequence[CheckedFile]
    shared: NotRequired[Sequence[SharedFile]]
    ok: bool


UNSOUND = 2
_BY_DEFAULT = "Dagster goes by its defaults there; what `eventsync ui` would write is in docs/dagster.md"


def _feeds_of(words: Sequence[str], shared: Sequence[SharedFile]) -> list[str]:
    """Return the words, with the feeds that include it in the place of each file to be included."""
    feeds = {one.path: one.included_by for one in shared}
    return [*dict.fromkeys(name for word in words for name in feeds.get(word, (word,)))]


def _codes(findings: Sequence[FeedFindings]) -> set[int]:
    unsound = {UNSOUND for one in findings if not one.is_sound}
    return unsound | {answer.exit_code for one in findings for answer in one.live}


def _document(one: FeedFindings, *, is_live: bool) -> CheckedFile:
    document = CheckedFile(feed=one.feed, path=one.path, problems=one.problems, warnings=one.warnings, examples=one.examples)
    if is_live:
        document["live"] = one.live
    return document


def _show(output: Output, one: FeedFindings) -> None:
    output.note(f"{one.feed} ({one.path}): {_verdict(one)}")
    for problem in one.problems:
        output.note(_spot("error", problem))
    for warning in one.warnings:
        output.note(_spot("warning", warning))
    for failure in one.examples.failed:
        output.note(f"  error: {one.path}: {failure}")
    for answer in one.live:
        output.note(f"  {answer.severity}: {answer.asked}: {answer.told}")


def _verdict(one: FeedFindings) -> str:
    found = [
        _counted(len(one.problems), "mistake"),
        _counted(len({failure.number for failure in one.examples.failed}), "failing example"),
        _counted(sum(not answer.ok for answer in one.live), "live problem"),
        _counted(len(one.warnings) + sum(answer.severity == "warning" for answer in one.live), "warning"),
    ]
    if one.is_sound:
        examples = _counted(one.examples.run, "example") or "no examples"
        found.insert(0, f"sound, {examples} came true" if one.examples.run else "sound, no examples")
    return ", ".join(filter(None, found))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}" if count else ""


def _spot(kind: str, problem: FileProblem) -> str:
    """Return a problem with its line and a caret under the place."""
    told = f"  {kind}: {problem}"
    if not problem.snippet:
        return told
    return f"{told}\n      {problem.snippet.replace(chr(9), ' ')}\n      {' ' * (problem.column - 1)}^"


def _summary(findings: Sequence[FeedFindings]) -> str:
    unsound = [one.feed for one in findings if not one.is_sound]
    if unsound:
        return f"{len(unsound)} of {len(findings)} mapping files must be mended: {', '.join(unsound)}"
    sound = f"{len(findings)} mapping file{'s are' if len(findings) != 1 else ' is'} sound"
    return f"{sound}, but see the live problems" if any(not answer.ok for one in findings for answer in one.live) else sound
