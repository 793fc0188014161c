"""`eventsync check`: whether the mapping files are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NotRequired

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, feed_words

if IS_WORKING:
    from mappings.errors import FileProblem, MappingFileError
    from mappings.spec.feed import FeedMapping
    from pipelines.before_serving import settings_lacking
    from pipelines.cli.feed_files import SharedFile, folder_of, mapping_or_error, shared_file
    from pipelines.cli.findings import ExampleFindings, FeedFindings, LiveFinding, find
    from pipelines.cli.output.console import Output, counted, document_from, worst
    from pipelines.settings import Settings, current_settings

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
    notify: Annotated[bool, typer.Option("--notify", help="Also send a test to all who would be notified of the feeds.")] = False,
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
    is_live = live or probe or notify
    settings, output = current_settings(), Output(json=as_json)
    shared = [one for one in (shared_file(settings, word) for word in feeds or ()) if one]
    loaded = _loaded(settings, feeds or (), shared)
    findings = [find(one) for one in loaded]
    if is_live:
        from pipelines.cli.check_live import ask_for  # offline, nothing of the network is loaded

        sound = [one for one in loaded if not isinstance(one, MappingFileError)]
        answers = ask_for(settings, sound, is_probing=probe, is_testing=notify)
        findings = [replace(found, live=answers.get(one.path, ())) for one, found in zip(loaded, findings, strict=True)]
    answer_codes = {answer.exit_code for one in findings for answer in one.live}
    code = worst({UNSOUND for one in findings if not one.is_sound} | answer_codes)
    output.document(_document(findings, shared, is_live=is_live, is_ok=code == 0))
    for each in shared:
        output.note(f"{each.path} is no feed but a file to be included, by {', '.join(each.included_by)}")
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


def _loaded(settings: Settings, words: Sequence[str], shared: Sequence[SharedFile]) -> list[FeedMapping | MappingFileError]:
    """Load what is named, in the place of a file to be included the feeds that include it; or all, in the order of their paths.

    Raises:
        ConfigError: there is no such feed, no such folder, or no mapping file in it.
    """
    feeds = {one.path: one.included_by for one in shared}
    names = dict.fromkeys(name for word in words for name in feeds.get(word, (word,)))
    if names:
        return [mapping_or_error(settings, name) for name in names]
    folder = folder_of(settings)
    return sorted([*(feed.mapping for feed in folder.feeds), *folder.broken], key=lambda one: one.path)


def _document(findings: Sequence[FeedFindings], shared: Sequence[SharedFile], *, is_live: bool, is_ok: bool) -> Check:
    feeds = [document_from(CheckedFile, one) for one in findings]
    document = Check(feeds=feeds, ok=is_ok)
    if not is_live:
        for checked in feeds:
            del checked["live"]
    if shared:
        document["shared"] = shared
    return document


def _summary(findings: Sequence[FeedFindings]) -> str:
    unsound = [one.feed for one in findings if not one.is_sound]
    if unsound:
        return f"{len(unsound)} of {len(findings)} mapping files must be mended: {', '.join(unsound)}"
    problems = ", but see the live problems" if any(not answer.ok for one in findings for answer in one.live) else ""
    return f"{counted(len(findings), 'mapping file')} {'is' if len(findings) == 1 else 'are'} sound{problems}"


def _show(output: Output, one: FeedFindings) -> None:
    """Print the verdict, then every problem with its line and a caret under the place."""
    found = [
        (len(one.problems), "mistake"),
        (len({failure.number for failure in one.examples.failed}), "failing example"),
        (sum(not answer.ok for answer in one.live), "live problem"),
        (len(one.warnings) + sum(answer.severity == "warning" for answer in one.live), "warning"),
    ]
    verdict = [counted(count, noun) for count, noun in found if count]
    if one.is_sound:
        examples = f"{counted(one.examples.run, 'example')} came true" if one.examples.run else "no examples"
        verdict.insert(0, f"sound, {examples}")
    output.note(f"{one.feed} ({one.path}): {', '.join(verdict)}")
    for kind, problems in (("error", one.problems), ("warning", one.warnings)):
        for problem in problems:
            output.note(f"{kind}: {problem}", indent=2)
            if problem.snippet:
                output.note(problem.snippet.replace("\t", " "), " " * (problem.column - 1) + "^", indent=6)
    for failure in one.examples.failed:
        output.note(f"error: {one.path}: {failure}", indent=2)
    for answer in one.live:
        output.note(f"{answer.severity}: {answer.asked}: {answer.told}", indent=2)
