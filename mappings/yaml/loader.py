"""Lookup files found and read: beside the feed file, else in the folder `lookups` next to the feed's folder.

What a table holds is `tables`'s.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from mappings.compiler.mapper import Directory, compile_with_problems
from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.feed_names import may_be_named, same_name
from mappings.file_context import FileContext
from mappings.lint.columns import find_unknown_names
from mappings.lint.lint import find_read_and_written, find_unwise, find_warnings
from mappings.lint.soundness import find_circles, find_no_objects, find_overgrown, find_problems, item_names
from mappings.lint.values import without_secrets
from mappings.lookup_table import Table, TableError, parse_table
from mappings.positions import Block, Place, PlaceElsewhere, Problem, Slip, locate, place_after, read_blocks
from mappings.refusals import did_you_mean
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, PublishPolicy
from mappings.yaml.includes import FRAGMENT_MARK, include_files, open_named_steps
from mappings.yaml.problems import Told, told_by

FOLDER = "lookups"


@dataclass(slots=True)
class LookupShelf:
    """Lookup files already read, so that the feeds of one folder share them."""

    _tables: dict[Path, Table] = field(default_factory=dict)

    def opener(self, folder: Path) -> Callable[[str], Table]:
        """Return the function that finds a lookup file for the feeds of `folder`, by the name they give."""
        return lambda name: self._open(folder, name)

    def _open(self, folder: Path, name: str) -> Table:
        try:
            path = next((place / name for place in (folder, folder.parent / FOLDER) if (place / name).is_file()), None)
        except OSError as error:
            raise TableError(f"the lookup file cannot be read: {error.strerror}") from error
        if path is None:
            raise TableError(_missing(folder, name))
        return self._read(path, name)

    def _read(self, path: Path, name: str) -> Table:
        path = path.resolve()
        if path not in self._tables:
            try:
                self._tables[path] = parse_table(name, path.read_text("utf-8-sig"))
            except OSError as error:
                raise TableError(f"the lookup file {name} cannot be read: {error.strerror}") from error
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                raise TableError(f"the lookup file {name} is not UTF-8 from line {line} on: save it as UTF-8") from error
        return self._tables[path]


def _missing(folder: Path, name: str) -> str:
    places = (folder, folder.parent / FOLDER)
    known = [str(path.relative_to(place)) for place in places if place.is_dir() for path in place.rglob("*.csv")]
    near = did_you_mean(name, known)
    where = f"neither beside the feed file nor in {FOLDER}/"
    return f'there is no lookup file "{name}", {where}' + (f", {near}" if near else "")


SUFFIXES = (".yaml", ".yml")
FAULT = "a fault of eventsync while loading this file"
_ABOUT_ROWS = ("feed", "source", "key", "let", "rows", "event")


@dataclass(frozen=True, slots=True)
class LoadedFeed:
    """One feed that may run."""

    path: Path
    mapping: FeedMapping


@dataclass(frozen=True, slots=True)
class FeedFolder:
    """The feeds of a folder: those that may run, and the files that are broken, each by itself."""

    feeds: tuple[LoadedFeed, ...]
    broken: tuple[MappingFileError, ...]

    def named(self, name: str) -> FeedMapping | None:
        """Return the feed of that name, or None."""
        return next((feed.mapping for feed in self.feeds if feed.mapping.feed == name), None)


def load_folder(folder: Path, wanted: Collection[str] = ()) -> FeedFolder:
    """Load every mapping file of a folder, in the order of their names; one whose name begins with _ is only included.

    A broken file harms no other. Two files with one feed name (or two that differ in `-` and `_` only): the later is broken.
    `wanted`: names of feeds or of their files, if only these are needed; files that can hold none of them are left alone.
    """
    feeds: list[LoadedFeed] = []
    broken: list[MappingFileError] = []
    shelf = LookupShelf()
    taken: dict[str, Path] = {}
    paths = sorted(
        path for path in folder.glob("*") if path.suffix in SUFFIXES and path.name[0] != FRAGMENT_MARK and path.is_file()
    )
    for path in may_be_named(paths, wanted) if wanted else paths:
        try:
            mapping = load_feed(path, shelf)
            _claim_name(mapping.feed, path, taken)
        except MappingFileError as error:
            broken.append(error)
        else:
            feeds.append(LoadedFeed(path, mapping))
    return FeedFolder(tuple(feeds), tuple(broken))


def load_feed(path: Path, shelf: LookupShelf | None = None) -> FeedMapping:
    """Read and check one mapping file with its lookup files (`shelf` keeps those already read).

    Raises:
        MappingFileError: with every problem of the file, in the order of its lines.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise MappingFileError(path, (FileProblem(path, 1, 1, f"the file cannot be read: {error}"),)) from error
    except UnicodeDecodeError as error:
        raise MappingFileError(path, (_not_utf8(path, error),)) from error
    return parse_feed(text, path, shelf or LookupShelf())


def parse_feed(text: str, path: Path, shelf: LookupShelf) -> FeedMapping:
    """Check the text of a mapping file as if it stood at `path`.

    Raises:
        MappingFileError: with every problem, in the order of the lines.
    """
    with _own_faults(path):
        return _parsed(text, path, shelf)


def _parsed(text: str, path: Path, shelf: LookupShelf) -> FeedMapping:
    document, slips = _assembled(text, path)
    told = [_told_slip(slip) for slip in slips]
    if not isinstance(document, Block):
        raise _error(path, text, told or [Told((1, 1), "a mapping file is a block of keys: feed, source, key, event")])
    unwise = [one for one in _placed(document, find_unwise(document)) if not isinstance(one.place, PlaceElsewhere)]
    context = FileContext(_let_names(document) | _given_names(document) | item_names(document), shelf.opener(path.parent))
    try:
        mapping = FeedMapping.model_validate(document, context=context)
    except ValidationError as error:
        problems = (*find_problems(document, context.tables), *find_circles(document.get("let")))
        raise _error(path, text, [*told, *told_by(error, document), *_placed(document, problems)], unwise) from None
    mapping = mapping.loaded(path, _digest(document, context.tables, mapping.publish), context.tables)
    if overgrown := tuple(find_overgrown(document.get("let"))):
        raise _error(path, text, [*told, *_placed(document, overgrown)], unwise)
    mapper, misfits = compile_with_problems(mapping, Directory())
    circles = tuple(find_circles(document.get("let")))
    told.extend(_placed(document, misfits or circles))
    told.extend(_placed(document, find_problems(document, context.tables)))
    told.extend(_placed(document, () if circles else (*find_no_objects(mapping), *find_unknown_names(mapping))))
    told.extend(_placed(document, _find_unseen(mapping)))
    told.extend(_placed(document, find_read_and_written(mapping, mapper.columns)))
    if told:
        raise _error(path, text, told, unwise)
    warnings = _file_problems(path, text, [*unwise, *_placed(document, find_warnings(mapping, mapper))])
    return mapping.loaded(path, mapping.digest, context.tables, warnings)


@contextmanager
def _own_faults(path: Path) -> Iterator[None]:
    """Turn an exception that no check foresaw into a problem of the file, so that the other feeds go on."""
    try:
        yield
    except SyncError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{FAULT}: {type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}: {error}"
        raise MappingFileError(path, (FileProblem(path, 1, 1, told, "please report it, with the file"),)) from error


def document_of(path: Path) -> Mapping[str, Any]:
    """Return a loaded mapping file's plain document, with what it includes, and with its named steps in their places."""
    document = _assembled(path.read_bytes().decode("utf-8-sig"), path)[0]
    return document if isinstance(document, Block) else {}


def readable_document(path: Path) -> Mapping[str, Any]:
    """Return what can still be read of the document of a file that cannot be used; nothing of one that is gone, or no text."""
    try:
        with _own_faults(path):
            return document_of(path)
    except MappingFileError:
        return {}


def at_places(path: Path, problems: Iterable[Problem]) -> tuple[FileProblem, ...]:
    """Tell what was found out about a loaded mapping file elsewhere, at its lines and columns."""
    found = tuple(problems)
    text = path.read_bytes().decode("utf-8-sig") if found else ""
    document = _assembled(text, path)[0]
    return _file_problems(path, text, _placed(document, found)) if isinstance(document, Block) else ()


def _assembled(text: str, path: Path) -> tuple[object, tuple[Slip, ...]]:
    """Return the document with what it includes, and with its named steps in their places, and every slip on the way."""
    document, slips = read_blocks(text)
    if not isinstance(document, Block):
        return document, slips
    return document, (*slips, *include_files(document, path.parent), *open_named_steps(document))


def _not_utf8(path: Path, error: UnicodeDecodeError) -> FileProblem:
    before = error.object[: error.start].decode("utf-8", "replace")
    return FileProblem(path, *place_after(before), "the file is not UTF-8 from here on", "save it as UTF-8")


def _placed(document: Block, problems: Iterable[Problem]) -> list[Told]:
    return [Told(locate(document, problem.loc)[0], problem.message, problem.hint) for problem in problems]


def _claim_name(feed: FeedName, path: Path, taken: dict[str, Path]) -> None:
    other = taken.setdefault(same_name(feed), path)
    if other != path:
        message = f'the feed name "{feed}" is taken by {other.name}'
        hint = "feed names must differ in more than - and _"
        raise MappingFileError(path, (FileProblem(path, 1, 1, message, hint),))


def _find_unseen(mapping: FeedMapping) -> Iterator[Problem]:
    if mapping.schedule and mapping.schedule.look_every_s is not None and not mapping.source.can_be_looked_at:
        told = f"a source of kind {mapping.source.kind} cannot be looked at without reading it"
        yield Problem(("schedule", "look_every"), told, "write cron, as often as it may be asked")


def _let_names(document: Block) -> frozenset[str]:
    names = document.get("let")
    return frozenset(names) if isinstance(names, Block) else frozenset()


def _given_names(document: Block) -> frozenset[str]:
    """Return what the rules about rows make known to each event."""
    rules = document.get("rows")
    kinds = {key for rule in rules if isinstance(rule, Block) for key in rule} if isinstance(rules, list) else set()
    return frozenset(name for name, kind in (("item", "explode"), ("day", "recur")) if kind in kinds)


def _digest(document: Block, tables: Mapping[str, Table], publish: PublishPolicy) -> bytes:
    """Digest what decides over rows: comments, layout, owner, schedule, examples and most of publishing do not."""
    content = {key: document[key] for key in _ABOUT_ROWS if key in document}
    if publish.draft_on_warning:
        content["draft_on_warning"] = "true"
    shelves = {name: [table.columns, table.rows] for name, table in tables.items()}
    text = orjson.dumps([_plain(content), shelves], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).digest()


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _told_slip(slip: Slip) -> Told:
    return Told(slip.place, slip.message, slip.hint)


def _error(path: Path, text: str, told: Iterable[Told], unwise: Iterable[Told] = ()) -> MappingFileError:
    return MappingFileError(path, _file_problems(path, text, told), _file_problems(path, text, unwise))


def _file_problems(path: Path, text: str, told: Iterable[Told]) -> tuple[FileProblem, ...]:
    found = dict.fromkeys(sorted(told, key=lambda one: (_file_of(one.place), one.place)))
    lines = without_secrets(text).splitlines()
    return tuple(
        _elsewhere(one, one.place) if isinstance(one.place, PlaceElsewhere) else _problem(one, path, lines) for one in found
    )


def _file_of(place: Place) -> str:
    """Return what sorts the problems of the feed's own file before those of the files that it includes."""
    return str(place.path) if isinstance(place, PlaceElsewhere) else ""


def _elsewhere(told: Told, place: PlaceElsewhere) -> FileProblem:
    return _problem(told, place.path, without_secrets(place.text).splitlines())


def _problem(told: Told, path: Path, lines: list[str]) -> FileProblem:
    snippet = lines[told.place[0] - 1] if told.place[0] <= len(lines) else ""
    return FileProblem(path, *told.place, told.message, told.hint, snippet)
