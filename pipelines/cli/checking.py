"""The command `check` at work: every file looked through, everything found shown at once, one exit code.

What can be found is `findings`' and `live.findings`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mappings.errors import FileProblem, MappingFileError
from mappings.spec.feed import FeedMapping
from pipelines.cli.feed_files import every_mapping, mapping_or_error
from pipelines.cli.findings import FeedFindings, find
from pipelines.cli.output import Output
from pipelines.cli.severity import worst
from pipelines.cli.shared_files import SharedFile, shared_file
from pipelines.orchestration.dagster_home import settings_lacking
from pipelines.settings import Settings, current_settings

UNSOUND = 2
_BY_DEFAULT = "Dagster goes by its defaults there; what `eventsync ui` would write is in docs/dagster.md"


@dataclass(frozen=True, slots=True)
class Asking:
    """Who is asked beside the files. `is_live`: the service and the sources; `is_probing`: and the service is sent an event
    without any field; `is_telling`: and whoever would be told of a feed is sent a test.
    """

    is_live: bool = False
    is_probing: bool = False
    is_telling: bool = False


def check_feeds(words: Sequence[str], asking: Asking, *, as_json: bool) -> int:
    """Check the feeds or files named, or all; return the exit code.

    Raises:
        ConfigError: a word names neither a feed nor a file, or there is nothing to check.
    """
    settings, output = current_settings(), Output(json=as_json)
    shared = [one for one in (shared_file(settings, word) for word in words) if one]
    loaded = [mapping_or_error(settings, word) for word in _feeds_of(words, shared)] or every_mapping(settings)
    findings = [find(one) for one in loaded]
    if asking.is_live:
        findings = _with_live(settings, loaded, findings, asking)
    code = worst(_codes(findings))
    output.document(
        {
            "feeds": [_document(one, is_live=asking.is_live) for one in findings],
            **({"shared": shared} if shared else {}),
            "ok": code == 0,
        }
    )
    for each in shared:
        output.note(str(each))
    for one in findings:
        _show(output, one)
    if lacking := settings_lacking(settings.dagster_home):
        output.note(f"{settings.dagster_home / 'dagster.yaml'} does not say {', '.join(lacking)}: {_BY_DEFAULT}")
    output.note(_summary(findings))
    return code


def _feeds_of(words: Sequence[str], shared: Sequence[SharedFile]) -> list[str]:
    """Return the words, with the feeds that include it in the place of each file to be included."""
    feeds = {one.path: one.included_by for one in shared}
    return [*dict.fromkeys(name for word in words for name in feeds.get(word, (word,)))]


def _with_live(
    settings: Settings,
    loaded: Sequence[FeedMapping | MappingFileError],
    findings: Sequence[FeedFindings],
    asking: Asking,
) -> list[FeedFindings]:
    from pipelines.cli.live.findings import ask_for  # noqa: PLC0415  # offline, nothing of the network is loaded

    asked = [one for one in loaded if not isinstance(one, MappingFileError)]
    answers = ask_for(settings, asked, is_probing=asking.is_probing, is_telling=asking.is_telling)
    return [replace(found, live=answers.get(one.path, ())) for one, found in zip(loaded, findings, strict=True)]


def _codes(findings: Sequence[FeedFindings]) -> set[int]:
    unsound = {UNSOUND for one in findings if not one.is_sound}
    return unsound | {answer.exit_code for one in findings for answer in one.live}


def _document(one: FeedFindings, *, is_live: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "feed": one.feed,
        "path": one.path,
        "problems": one.problems,
        "warnings": one.warnings,
        "examples": asdict(one.examples),
    }
    return {**document, "live": one.live} if is_live else document


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
    """Tell a problem with its line and a caret under the very place."""
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
