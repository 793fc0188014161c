"""The questions of `eventsync init`: what no sample shows is asked on a terminal, or read from a file of answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import typer

from connectors.event_api.lists import Classifications
from mappings.draft.questions import Answers, Questions
from mappings.errors import ConfigError, SyncError
from mappings.lint.warnings import FILL_IN, NO_PLACES
from mappings.positions import START, Block, Position, Scalar, read_yaml
from mappings.reasons import did_you_mean, nearest
from mappings.zones import find_zone, zone_hint
from pipelines.cli.output.console import Output, counted, shortened
from pipelines.cli.service_lists import ServiceAnswers, ask_service
from pipelines.run.context import require_service
from pipelines.run.signals import InterruptedRunError
from pipelines.safe_output import replaced
from pipelines.settings import Settings

_SKIP = "skip"
_SLUG = re.compile(r"[\w.~-]+", re.ASCII)
_ORDERS = ("day-first", "month-first")
Found = Mapping[str, Mapping[str, str]]
"""Answers by subject, and by text of a column."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is asked about: `prompts` has a question for each key that `Answers` needs.

    `read` returns an answer as the draft writes it, or raises `ValueError`. `numbers`: a list to choose from by number, with
    `names` for people. `defaults`: what Enter means, where it is not `fill-in`. `is_settled`: the draft has a likely guess.
    """

    name: str
    purpose: str
    prompts: Mapping[str, str]
    read: Callable[[str], str]
    numbers: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    is_settled: bool = False

    @property
    def choices(self) -> Sequence[str]:
        """The numbered list."""
        named = ((number, word, self.names.get(word, "")) for number, word in self.numbers.items())
        return [f"{number:>3} {word}" + f" ({name})" * (name.casefold() not in {"", word}) for number, word, name in named]


def collect_answers(questions: Questions, settings: Settings, output: Output, file: Path | None) -> Answers:
    """Ask at the terminal, or read the answers from `file`; offer what the service lists, or take any answer without it.

    Raises:
        ConfigError: the file cannot be read, or has wrong or missing answers; all are named.
    """
    subjects = [one for one in _subjects(questions, _lists(settings, output)) if one.prompts]
    found = _from_person(subjects, output) if file is None else _from_file(subjects, file, output)

    def of(name: str) -> Mapping[str, str]:
        return {text: one for text, one in found.get(name, {}).items() if one != FILL_IN}

    return Answers(
        channel=of("channel").get("", FILL_IN),
        zone=of("zone").get("", ""),
        order=of("dates").get("", "").removesuffix("-first"),
        classifications=of("classifications"),
        places=of("places"),
    )


def _lists(settings: Settings, output: Output) -> ServiceAnswers:
    try:
        require_service(settings)
        with output.progress("asking the service for its channels and classifications", is_counted=False):
            lists = ask_service(settings)
    except ConfigError as error:
        lists = ServiceAnswers(error, error)
    faults = {str(found): None for found in (lists.channels, lists.classifications) if isinstance(found, SyncError)}
    for fault in faults:
        output.aside(f"The service's lists cannot be offered: {'; '.join(fault.splitlines())}")
    return lists


def _subjects(questions: Questions, lists: ServiceAnswers) -> Iterator[_Subject]:
    channels = {} if isinstance(lists.channels, SyncError) else lists.channels
    known = Classifications("", frozenset()) if isinstance(lists.classifications, SyncError) else lists.classifications
    slugs, names = list(known.names), {name: slug for slug, name in known.names.items() if name}
    yield _Subject(
        "channel",
        "where people find the events; it becomes their `channelId`",
        {"": "Channel, its number or slug" if channels else "Channel, its id or slug"},
        partial(_channel, channels=channels),
        {str(number): slug for slug, number in channels.items()},
        defaults={"": next(iter(channels))} if len(channels) == 1 else {},
    )
    if questions.zone is not None:
        yield _Subject(
            "zone",
            f"the time zone in which the source writes its times; {questions.zone.why}",
            {"": "Time zone"},
            _zone,
            defaults={"": questions.usual_zone} if questions.usual_zone else {},
            is_settled=questions.zone.surety != "unsure",
        )
    if questions.date:
        purpose = f"whether {questions.date} is read as day-first or as month-first; no value of the sample decides it"
        yield _Subject("dates", purpose, {"": " or ".join(_ORDERS)}, _order)
    kinds = _per_text(questions.classifications, "Classification of every event")
    proposals = {text: names.get(near, near) for text in kinds if text and (near := nearest(text, [*names, *slugs]))}
    yield _Subject(
        "classifications",
        f"the kind of an event, by which people search{_of_column(questions.category)}",
        kinds,
        partial(_classification, slugs=slugs, names=names),
        {str(number): slug for number, slug in enumerate(slugs, start=1)},
        known.names,
        proposals,
    )
    yield _Subject(
        "places",
        f"the placeId of an event's city{_of_column(questions.city)}; {NO_PLACES}",
        _per_text(questions.places, "placeId of every event"),
        _place,
    )


def _of_column(name: str) -> str:
    return f', for each text of "{name}"' if name else ""


def _per_text(texts: Mapping[str, int], prompt: str) -> Mapping[str, str]:
    if [*texts] == [""]:
        return {"": prompt}
    return {text: f"{text or 'a row without one'} ({counted(rows, 'row')})" for text, rows in texts.items()}


def _channel(text: str, *, channels: Mapping[str, int]) -> str:
    if not channels:
        return _slug(text)
    for slug, number in channels.items():
        if text in {slug, str(number)}:
            return slug
    listed = f"its channels are {', '.join(f'{number} {slug}' for slug, number in channels.items())}"
    raise ValueError(f'the key has no channel "{text}"; {did_you_mean(text, channels) or listed}')


def _slug(text: str) -> str:
    if not _SLUG.fullmatch(text):
        raise ValueError(f'"{text}" is no slug: these have letters, digits and hyphens only')
    return text


def _zone(text: str) -> str:
    if find_zone(text) is None:
        raise ValueError(f'"{text}" is not a time zone; {zone_hint(text)}')
    return text


def _order(text: str) -> str:
    if text not in _ORDERS:
        raise ValueError(f'"{text}" is neither {" nor ".join(_ORDERS)}')
    return text


def _classification(text: str, *, slugs: Sequence[str], names: Mapping[str, str]) -> str:
    if not slugs:
        return _slug(text)
    if text in slugs or text in names:
        return text if text in slugs else names[text]
    near = did_you_mean(text, slugs) or f"it has {', '.join(slugs)}"
    raise ValueError(f'the service has no classification "{text}"; {near}')


def _place(text: str) -> str:
    if not text:
        raise ValueError("a placeId is expected")
    return text


def _from_person(subjects: Sequence[_Subject], output: Output) -> Found:
    output.aside(f"Enter takes what is in brackets; `{FILL_IN}` can be replaced later. Ctrl-C ends without writing a file.")
    try:
        return {subject.name: _ask(subject, output) for subject in subjects}
    except typer.Abort as stop:
        raise InterruptedRunError("interrupted; no file is written", hint="run the same command again to begin anew") from stop


def _ask(subject: _Subject, output: Output) -> Mapping[str, str]:
    """Ask all questions about one subject."""
    has_many = len(subject.prompts) > 1
    output.introduce(f"{subject.name}: {subject.purpose}" + f". `{_SKIP}` leaves the rest" * has_many, subject.choices)
    found = dict[str, str]()
    if has_many and subject.defaults:
        for text, word in subject.defaults.items():
            output.aside(f"  {shortened(subject.prompts[text])}: {word}")
        if typer.confirm("Accept all of these? n asks about each", default=True, err=True):
            found |= subject.defaults

    def read(typed: str) -> str:
        typed = subject.numbers.get(typed.strip(), typed.strip())
        try:
            return typed if typed == FILL_IN or (has_many and typed == _SKIP) else subject.read(typed)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    for text, prompt in subject.prompts.items():
        if text not in found:
            shown, default = replaced(shortened(prompt)), subject.defaults.get(text, FILL_IN)
            found[text] = typer.prompt(shown, default=default, value_proc=read, err=True)
            if found[text] == _SKIP:
                return {**found, text: FILL_IN}
    return found


def _from_file(subjects: Sequence[_Subject], file: Path, output: Output) -> Found:
    """Read the answers to all questions; warn of those that are not needed.

    Raises:
        ConfigError: the file cannot be read, or has wrong or missing answers; all are named.
    """
    try:
        document, wrong = read_yaml(file.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{file} cannot be read: {why}", hint="name a YAML or JSON file after --answers") from error
    problems = [(one.where if isinstance(one.where, Position) else START, one.message) for one in wrong]
    found = dict[str, Mapping[str, str]]()
    if isinstance(document, Block):
        asked = {subject.name: subject for subject in subjects}
        for name, subject in asked.items():
            found[name], more = _read_answers(subject, document)
            problems += ((position, f"{name}: {text}") for position, text in more)
        for name in document.keys() - asked.keys():
            near = did_you_mean(name, asked) or f"this source leaves open: {', '.join(asked)}"
            line, column, _ = document.key_position(name)
            output.aside(f'warning: {file}:{line}:{column}: nothing is asked about "{name}"; {near}')
    elif not problems:
        problems = [(START, "the answers are not written as `channel: city-agenda`")]
    if problems:
        lines = (f"{file}:{line}:{column}: {text}" for (line, column, _), text in sorted(problems, key=lambda one: one[0][:2]))
        raise ConfigError("\n".join(lines), hint=f"correct {file.name}")
    return found


def _read_answers(subject: _Subject, document: Block) -> tuple[Mapping[str, str], Sequence[tuple[Position, str]]]:
    """Return the answers about one subject, and what is wrong with them, at its position."""
    found, wrong, given = dict[str, str](), list[tuple[Position, str]](), document.get(subject.name)
    whole = {"": given} if isinstance(given, Scalar) and [*subject.prompts] == [""] else {}
    entries = given if isinstance(given, Block) else whole
    for text, word in entries.items():
        position = word.position if isinstance(word, Scalar) else document.key_position(subject.name)
        try:
            if text not in subject.prompts:
                wrong.append((position, f'the source has no "{text}"; {did_you_mean(text, subject.prompts)}'.rstrip("; ")))
            else:
                found[text] = FILL_IN if word == FILL_IN else subject.read(word.strip() if isinstance(word, Scalar) else "")
        except ValueError as error:
            wrong.append((position, str(error)))
    missing = [f'"{text}"' if text else "rows without one" for text in subject.prompts if text not in entries]
    if missing and not subject.is_settled:
        whose = f" for {', '.join(missing)}" if len(subject.prompts) > 1 else ""
        wrong.append((document.key_position(subject.name), f"no answer{whose}; write {FILL_IN} to leave it open"))
    return found, wrong
