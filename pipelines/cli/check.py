"""`eventsync check`: finds mistakes in mapping files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NotRequired

import typer
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, feed_words

if IS_WORKING:
    from mappings.errors import MappingFileError
    from mappings.spec.feed import FeedMapping
    from pipelines.before_serving import missing_settings
    from pipelines.cli.feed_files import SharedFile, folder_of, mapping_or_error, shared_file
    from pipelines.cli.findings import CheckedFile, find, is_sound
    from pipelines.cli.output.console import Output, counted
    from pipelines.run.outcome import worst
    from pipelines.settings import Settings, current_settings

FeedsOrFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FEED]...", help="Names of feeds, or paths of mapping files (default: all feeds).", autocompletion=feed_words
    ),
]


def check(
    feeds: FeedsOrFiles = None,
    live: Annotated[bool, typer.Option("--live", help="Also ask the service and the sources; nothing is written.")] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Also send an empty event, which the service refuses, to test whether the key may create events."
        ),
    ] = False,
    notify: Annotated[
        bool, typer.Option("--notify", help="Also send a test message to the recipients of the feeds' notifications.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check mapping files offline: print every mistake with its line and column, then run their examples.

    For example:

        # Every file of the folder
        eventsync check
        # A file that you are writing
        eventsync check drafts/lisbon.yaml
        # The feeds that include a file
        eventsync check feeds/_shared.yaml
        # Also the service and the source
        eventsync check lisbon-agenda --live
        # Also the notifications: each recipient gets a test message
        eventsync check lisbon-agenda --notify

    --live checks the key, its channels, the classifications, and the service's OpenAPI page against what the mapping sends;
    it opens the source and lists who is notified of each feed. A table shows what is ready for a run, what is not, and what
    could not be checked.

    Exit codes: 0 no mistakes (warnings are allowed), 2 a file has a mistake, an example fails, or the service would refuse
    what the mapping sends; with --live also 3 key or scope refused, 6 the service or a source does not answer; with --probe
    also 1 the service created an event.
    """
    is_live = live or probe or notify
    settings, output = current_settings(), Output(is_json=as_json)
    shared = [one for one in (shared_file(settings, word) for word in feeds or ()) if one]
    loaded = _loaded(settings, feeds or (), shared)
    findings = [find(one, settings.access) for one in loaded]
    if is_live:
        from pipelines.cli.check_live import ask_for, readiness  # offline, nothing of the network is loaded

        sound = [one for one in loaded if not isinstance(one, MappingFileError)]
        with output.progress(f"asking the service, and the sources of {counted(len(sound), 'feed')}", is_counted=False):
            answers = ask_for(settings, sound, is_probing=probe, is_testing=notify)
        for one, found in zip(loaded, findings, strict=True):
            found["live"] = answers.get(one.path, ())
    replies = [answer for found in findings for answer in found.get("live", ())]
    unsound = [found["feed"] for found in findings if not is_sound(found)]
    unfinished = [found["feed"] for found in findings if found["fill_ins"]]
    code = worst({UNSOUND for _ in unsound} | {answer.exit_code for answer in replies})
    document = Check(feeds=findings, ok=code == 0)
    if shared:
        document["shared"] = shared
    output.document(document)
    output.note(*(f"{one.path} is not a feed; these feeds include it: {', '.join(one.included_by)}" for one in shared))
    for found in findings:
        _show(output, found)
    if answered := {found["feed"]: found["live"] for found in findings if found.get("live")}:
        output.table("what a run needs", readiness(answered))
    if lacking := missing_settings(settings.dagster_home):
        output.note(f"{settings.dagster_home / 'dagster.yaml'} lacks {', '.join(lacking)}: {_BY_DEFAULT}")
    problems = "" if all(answer.ok for answer in replies) else ", but see the live problems"
    sound_files = f"{counted(len(findings), 'mapping file')} {'is' if len(findings) == 1 else 'are'} correct{problems}"
    unusable = f"{len(unsound)} of {len(findings)} mapping files must be corrected: {', '.join(unsound)}"
    open_values = f"{counted(sum(found['fill_ins'] for found in findings), 'value')} to fill in: {', '.join(unfinished)}"
    output.note(unusable if unsound else open_values if unfinished else sound_files)
    return code


class Check(TypedDict):
    """What was found in all files. `shared`: named files that are no feeds, and the feeds that include them."""

    feeds: Sequence[CheckedFile]
    shared: NotRequired[Sequence[SharedFile]]
    ok: bool


UNSOUND = 2
_BY_DEFAULT = "Dagster uses its defaults for them; docs/dagster.md shows what `eventsync ui` would write"


def _loaded(settings: Settings, words: Sequence[str], shared: Sequence[SharedFile]) -> list[FeedMapping | MappingFileError]:
    """Load the named feeds, in place of an included file the feeds that include it; without names all feeds, sorted by path.

    Raises:
        ConfigError: a named feed does not exist, or the folder is missing or has no mapping file.
    """
    feeds = {one.path: one.included_by for one in shared}
    names = dict.fromkeys(name for word in words for name in feeds.get(word, (word,)))
    if names:
        return [mapping_or_error(settings, name) for name in names]
    folder = folder_of(settings)
    return sorted([*folder.feeds, *folder.broken], key=lambda one: one.path)


def _show(output: Output, one: CheckedFile) -> None:
    """Print the verdict of one file, then every problem with its line and a caret under the place."""
    examples, live = one["examples"], one.get("live", ())
    found = [
        (len(one["problems"]), "mistake"),
        (len({failure.number for failure in examples.failed}), "failing example"),
        (sum(not answer.ok for answer in live), "live problem"),
        (len(one["warnings"]) + sum(answer.severity == "warning" for answer in live), "warning"),
    ]
    verdict = [counted(count, noun) for count, noun in found if count]
    if is_sound(one):
        ran = f"{counted(examples.run, 'example')} passed" if examples.run else "no examples"
        verdict.insert(0, f"{counted(one['fill_ins'], 'value')} to fill in" if one["fill_ins"] else "correct")
        verdict.insert(1, ran)
    output.note(f"{one['feed']} ({one['path']}): {', '.join(verdict)}")
    for kind, problems in (("error", one["problems"]), ("warning", one["warnings"])):
        for problem in problems:
            output.note(f"{kind}: {problem}", indent=2)
            if problem.snippet:
                output.note(problem.snippet.replace("\t", " "), " " * (problem.column - 1) + "^", indent=6)
    places = (f"{one['path']}:{failure.line}:{failure.column}: {failure}" for failure in examples.failed)
    output.note(*(f"error: {place}" for place in places), indent=2)
