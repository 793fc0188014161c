"""Loads mapping files, singly or a folder of them, with their lookup files; all problems get their positions."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mappings.allowed_files import OutsideError, allowed_path
from mappings.compiler.mapper import compile_with_problems
from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.event import Directory
from mappings.lint.mistakes import (
    find_endless_names,
    find_misfit_fields,
    find_misfit_settings,
    find_problems,
    find_unknown_states,
    find_unusual_availability,
    item_names,
)
from mappings.lint.warnings import find_unwise, find_warnings, without_secrets
from mappings.lookup_table import Table, TableError, parse_table
from mappings.outgoing import outgoing_of
from mappings.positions import START, Block, IncludedFile, MappingProblem, Position, locate, plain, position_after, read_yaml
from mappings.reasons import did_you_mean
from mappings.spec.feed import FeedMapping, PublishPolicy
from mappings.spec.plugins import installed_kinds
from mappings.spec.rules import RULES
from mappings.spec.source import SOURCES
from mappings.spec.values import MARKERS, STEPS
from mappings.strict import FileContext
from mappings.yaml.includes import FRAGMENT_MARK, include_files, insert_named_steps

SUFFIXES = (".yaml", ".yml")
FOLDER = "lookups"
FAULT = "a fault of eventsync while loading this file"
_ABOUT_ROWS = ("feed", "source", "key", "let", "rows", "event")
Shelf = dict[Path, Table]
"""Lookup files already read, shared by the feeds of a folder."""


@dataclass(frozen=True, slots=True)
class FeedFolder:
    """The usable feeds of a folder, and the problems of its broken files."""

    feeds: tuple[FeedMapping, ...]
    broken: tuple[MappingFileError, ...]


def load_folder(folder: Path, wanted: Collection[str] = (), *, folders: Sequence[Path] = (), warns: bool = True) -> FeedFolder:
    """Load every mapping file of a folder, sorted by name; files whose name begins with _ are only included.

    A broken file does not affect others. Of two files with the same feed name (apart from `-` and `_`) the later is broken.
    `wanted`: names of feeds or files to load; files that cannot contain them are skipped. `folders`: others in which the files
    that they name may lie. `warns` False: valid files get no
    warnings, which take a fifth of the time.
    """
    feeds: list[FeedMapping] = []
    broken: list[MappingFileError] = []
    shelf: Shelf = {}
    owners: dict[str, Path] = {}
    paths = sorted(
        path for path in folder.glob("*") if path.suffix in SUFFIXES and path.name[0] != FRAGMENT_MARK and path.is_file()
    )
    for path in _may_be_named(paths, wanted) if wanted else paths:
        try:
            mapping = load_feed(path, shelf, folders=folders, warns=warns)
            owner = owners.setdefault(same_name(mapping.feed), path)
            if owner != path:
                message = f'the feed name "{mapping.feed}" is taken by {owner.name}'
                raise _one_problem(path, START, message, "feed names must differ in more than - and _")
            feeds.append(mapping)
        except MappingFileError as error:
            broken.append(error)
    return FeedFolder(tuple(feeds), tuple(broken))


_NAME = re.compile(rb"""^feed:[ \t]+(["']?)([a-z0-9_-]+)\1[ \t]*(?:#[^\n]*)?\r?$""", re.MULTILINE)


def same_name(feed: str) -> str:
    """Return a feed's name for comparison: `-` and `_` are the same."""
    return feed.replace("-", "_")


def _may_be_named(paths: Sequence[Path], wanted: Collection[str]) -> list[Path]:
    """Return the files that may contain one of the wanted feeds, by feed name or file name.

    The result includes every file with the same feed name, so that the later of two is still reported, and every file whose
    feed name cannot be found without parsing it.
    """
    claims = {path: _claimed(path) for path in paths}
    names = {same_name(name) for name in wanted} | {claim for path, claim in claims.items() if path.stem in wanted}
    return [path for path, claim in claims.items() if not claim or claim in names or path.stem in wanted]


def _claimed(path: Path) -> str:
    """Return the feed name in a file, found without parsing; "" if it cannot be found."""
    try:
        names = [match[2].decode() for match in _NAME.finditer(path.read_bytes())]
    except OSError:
        return ""
    return same_name(names[0]) if len(names) == 1 else ""


def load_feed(path: Path, shelf: Shelf | None = None, *, folders: Sequence[Path] = (), warns: bool = True) -> FeedMapping:
    """Load one mapping file with its lookup files; `shelf` caches them, `folders` are others in which they may lie.

    Raises:
        MappingFileError: with all problems of the file, sorted by line.
    """
    try:
        text = allowed_path(path.name, path.parent, folders).read_bytes().decode("utf-8-sig")
    except OutsideError as error:
        raise _one_problem(path, START, str(error), error.hint) from error
    except OSError as error:
        raise _one_problem(path, START, f"the file cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        position = position_after(error.object[: error.start].decode("utf-8", "replace"))
        raise _one_problem(path, position, "the file is not UTF-8 from here on", "save it as UTF-8") from error
    return parse_feed(text, path, shelf, folders=folders, warns=warns)


def parse_feed(
    text: str, path: Path, shelf: Shelf | None = None, *, folders: Sequence[Path] = (), warns: bool = True
) -> FeedMapping:
    """Parse and check the text of a mapping file located at `path`. An unexpected exception is reported as a problem of the
    file.

    Raises:
        MappingFileError: with all problems of the file, sorted by line.
    """
    try:
        return _parsed(text, path, {} if shelf is None else shelf, folders, warns=warns)
    except SyncError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{FAULT}: {type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}: {error}"
        raise _one_problem(path, START, message, "please report it, with the file") from error


def _parsed(text: str, path: Path, shelf: Shelf, folders: Sequence[Path], *, warns: bool) -> FeedMapping:
    document, problems = _assembled(text, path, folders)
    if not isinstance(document, Block):
        no_block = MappingProblem(START, "a mapping file is a block of keys: feed, source, key, event")
        raise MappingFileError(path, _at_lines(path, text, document, problems or [no_block]))
    context = FileContext(_names(document), lambda name: _open_table(path.parent, name, shelf, folders))
    endless = tuple(find_endless_names(document.get("let")))
    try:
        mapping = FeedMapping.model_validate(document, context=context)
    except ValidationError as error:
        problems += find_model_problems(error, document)
        mapping = None
    if mapping is None or endless:
        problems += (*find_problems(document, context.tables), *endless)
        raise MappingFileError(path, _at_lines(path, text, document, problems), _unwise(path, text, document))
    mapping = mapping.loaded(path, _digest(document, context.tables, mapping.publish), context.tables, folders=tuple(folders))
    mapper, misfits = compile_with_problems(mapping, Directory())
    problems += (*misfits, *find_problems(document, context.tables))
    sent = outgoing_of(mapping)
    problems += (*find_misfit_fields(mapping, sent), *find_unknown_states(sent, document))
    problems += find_misfit_settings(mapping, mapper.columns)
    if problems:
        raise MappingFileError(path, _at_lines(path, text, document, problems), _unwise(path, text, document))
    if not warns:
        return mapping
    found = chain(find_unusual_availability(sent, document), find_warnings(mapping, mapper.columns, mapper.field_columns))
    warnings = (*_unwise(path, text, document), *_at_lines(path, text, document, found))
    in_order = sorted(warnings, key=lambda one: (one.line, one.column))
    return mapping.loaded(path, mapping.digest, context.tables, tuple(in_order), tuple(folders))


def _unwise(path: Path, text: str, document: Block) -> tuple[FileProblem, ...]:
    return tuple(one for one in _at_lines(path, text, document, find_unwise(document)) if one.path == path)


def _open_table(folder: Path, name: str, shelf: Shelf, others: Sequence[Path]) -> Table:
    """Return the lookup file for a feed of `folder`: beside the feed, or in `lookups` beside its folder.

    `others`: folders in which it may lie, too.

    Raises:
        TableError: there is no such file, or it cannot be read.
    """
    places = (folder, folder.parent / FOLDER)
    try:
        full = (allowed_path(name, place, (*places, *others)) for place in places)
        path = next((path for path in full if path.is_file()), None)
        if path is None:
            known = [str(path.relative_to(place)) for place in places if place.is_dir() for path in place.rglob("*.csv")]
            near = did_you_mean(name, known)
            message = f'there is no lookup file "{name}", neither beside the feed file nor in ../{FOLDER}/'
            raise TableError(f"{message}, {near}" if near else message)
        path = path.resolve()
        if path not in shelf:
            shelf[path] = parse_table(name, path.read_text("utf-8-sig"))
        return shelf[path]
    except OutsideError as error:
        raise TableError(f"the lookup file {error}, {error.hint}") from error
    except OSError as error:
        raise TableError(f"the lookup file {name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise TableError(f"the lookup file {name} is not UTF-8 from line {line} on: save it as UTF-8") from error


def document_of(path: Path, folders: Sequence[Path] = ()) -> Mapping[str, Any]:
    """Return a loaded mapping file's document, with included files and named steps inserted."""
    document = _assembled(path.read_bytes().decode("utf-8-sig"), path, folders)[0]
    return document if isinstance(document, Block) else {}


def readable_document(path: Path, folders: Sequence[Path] = ()) -> Mapping[str, Any]:
    """Return the readable part of a broken file's document, empty if there is none."""
    with suppress(Exception):  # a broken file harms no other
        return document_of(path, folders)
    return {}


def at_places(mapping: FeedMapping, problems: Iterable[MappingProblem]) -> tuple[FileProblem, ...]:
    """Return problems of a loaded mapping file with their lines and columns."""
    path = mapping.path
    found = tuple(problems)
    text = path.read_bytes().decode("utf-8-sig") if found else ""
    document = _assembled(text, path, mapping.folders)[0]
    return _at_lines(path, text, document, found) if isinstance(document, Block) else ()


def _assembled(text: str, path: Path, folders: Sequence[Path]) -> tuple[object, list[MappingProblem]]:
    """Return the document with included files and named steps inserted, and all problems found."""
    document, problems = read_yaml(text)
    if isinstance(document, Block):
        problems += include_files(document, path.parent, folders)
        problems += insert_named_steps(document)
    return document, problems


def _names(document: Block) -> frozenset[str]:
    """Return the names that values may use: those of `let`, loop items, `$item` and `$day`."""
    let, rules = document.get("let"), document.get("rows")
    kinds = {key for rule in rules if isinstance(rule, Block) for key in rule} if isinstance(rules, list) else set()
    given = {name for name, kind in (("item", "explode"), ("day", "recur")) if kind in kinds}
    return frozenset(let if isinstance(let, Block) else ()) | given | item_names(document)


def _digest(document: Block, tables: Mapping[str, Table], publish: PublishPolicy) -> bytes:
    """Return the digest of everything that affects outcomes: not comments, layout, owner, schedule, examples or most of
    publishing.
    """
    content = {key: document[key] for key in _ABOUT_ROWS if key in document}
    if publish.draft_on_warning:
        content["draft_on_warning"] = "true"
    if "years_ahead" in publish.model_fields_set:
        content["years_ahead"] = str(publish.years_ahead)
    shelves = {name: [table.columns, table.rows] for name, table in tables.items()}
    text = orjson.dumps([plain(content), shelves], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).digest()


def _one_problem(path: Path, position: Position, message: str, hint: str = "") -> MappingFileError:
    return MappingFileError(path, (FileProblem(path, position.line, position.column, message, hint),))


def _at_lines(path: Path, text: str, document: object, problems: Iterable[MappingProblem]) -> tuple[FileProblem, ...]:
    """Return the problems sorted by line, those of the feed's own file first."""
    own, found = IncludedFile(path, text), dict[FileProblem, None]()
    for problem in problems:
        position = problem.where if isinstance(problem.where, Position) else locate(document, problem.where)[0]
        file = position.file or own
        snippet = "".join(without_secrets(file.text).splitlines()[position.line - 1 : position.line])
        found[FileProblem(file.path, position.line, position.column, problem.message, problem.hint, snippet)] = None
    return tuple(sorted(found, key=lambda one: (one.path != path, str(one.path), one.line, one.column)))


_CHOICES = {
    "step": tuple(STEPS),
    "rule": RULES,
    "kind": tuple(SOURCES),
    "value": MARKERS,
    "policy": ("reject", "omit", "warn", "draft"),
    "when": ("column", "value", "all", "any", "not"),
}
_SAID_ELSEWHERE = {
    "on": "by",
    "null": "empty_if",
    "null_values": "empty_if",
    "na_values": "empty_if",
    "null_in": "empty_in",
    "empty": "omit",
    "ignore": "omit",
    "sep": "delimiter",
    "separator": "delimiter",
    "sheet": "tab",
    "tab": "sheet",
    "zone": "timezone",
    "timezone": "zone",
}
"""Words for the same thing in other programs, or elsewhere in a mapping file."""
_REMOVED = {
    "shards": 'one process sends a feed: write "in_flight: 64", or divide the source into feeds, which run side by side',
    "create_draft_again": 'write "report", and change the event by hand',
    "on_longer": "leave it out: a longer event is rejected; `skip` a row before, by a condition on its days",
    "on_more": "leave it out: a row with more days is rejected; write a larger `at_most`",
    "ellipsis": "leave it out: a shortened text ends with …",
    "forms": "leave it out: read such days with a format of the step `date`",
    "marker": 'write `settle: "1m"`: a file that has only just changed is left alone',
    "namespaces": "leave it out, and write names with their prefix: dc:date",
    "bulk_above": "leave it out: more than 10,000 records are read in bulk; or write api: rest, or api: bulk",
    "footer": "write `until`, a pattern that a cell of the first row matches that is none",
    "largest": "leave it out: a remote file may have 2 GB",
    "children": 'write a query: "SELECT Id, (SELECT Name FROM Sessions__r ORDER BY Id) FROM Event__c"',
}
"""What to write instead of words that earlier versions knew."""
_CALLED = {"when": "condition", "key": "column's name", "kind": "kind of source"}
_WORDS = {
    "int_parsing": "a whole number is needed",
    "bool_parsing": "true or false is needed",
    "string_type": "a text is needed",
    "tuple_type": "a list is needed",
    "model_type": "a block of keys is needed",
    "model_attributes_type": "a block of keys is needed",
    "dict_type": "a block of keys is needed",
    "too_short": "at least one entry is needed",
    "int_parsing_size": "a smaller number is needed",
    "greater_than_equal": "a larger number is needed",
    "less_than_equal": "a smaller number is needed",
    "string_too_short": "a text is needed",
}


def find_model_problems(error: ValidationError, document: Block) -> Iterator[MappingProblem]:
    """Yield the problems that the models found, without "too short" for lists whose items were refused."""
    problems = error.errors(include_url=False)
    for problem in problems:
        loc = problem["loc"]
        is_inside = (one["loc"][: len(loc)] == loc and one["loc"] != loc for one in problems)
        if problem["type"] != "too_short" or not any(is_inside):
            yield _model_problem(problem, document)


def _model_problem(problem: ErrorDetails, document: Block) -> MappingProblem:  # noqa: PLR0911 - one arm per type of error
    loc, found, context = problem["loc"], problem["input"], problem.get("ctx", {})
    position, block = locate(document, loc)[0], locate(document, loc[:-1])[1]
    match problem["type"]:
        case "extra_forbidden":
            key, allowed = str(loc[-1]), block.allowed if block is not None else ()
            where = block.key_position(key) if block is not None and key in block else position
            if instead := _REMOVED.get(key):
                return MappingProblem(where, f'"{key}" was removed', instead)
            hint = _meant(key, allowed) or (f"the keys here are {', '.join(allowed)}" if allowed else "")
            return MappingProblem(where, f'unknown key "{key}"', hint)
        case "missing":
            others = [] if block is None else [key for key in block if key not in block.allowed]
            hint = did_you_mean(str(loc[-1]), others).replace("did you mean", "is it written as")
            return MappingProblem(position, f'the key "{loc[-1]}" is missing', hint)
        case "union_tag_invalid":
            return _unknown_choice(str(context.get("tag", "")), found, position, document)
        case "mistake":
            return MappingProblem(position, str(context.get("message", "")), str(context.get("hint", "")))
        case "literal_error" | "enum":
            known = [word.strip(" '") for word in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
            if instead := _REMOVED.get(str(found)):
                return MappingProblem(position, f'"{found}" was removed', instead)
            hint = _meant(str(found), known) or f"there are {', '.join(known)}"
            return MappingProblem(position, f'"{found}" is not among the choices', hint)
        case "string_pattern_mismatch":
            return MappingProblem(position, f'"{found}" is not a valid name', "write lower-case words joined by -")
        case "value_error":
            return MappingProblem(position, problem["msg"].removeprefix("Value error, "))
        case kind:
            message = _WORDS.get(kind, problem["msg"])
            hint = f"write its entries below `{loc[-1]}:`, or delete this line" if (kind, found) == ("tuple_type", "") else ""
            return MappingProblem(position, f'{message}, not "{found}"' if isinstance(found, str) else message, hint)


def _unknown_choice(tag: str, found: object, position: Position, document: Block) -> MappingProblem:
    what, _, word = tag.partition(":")
    known = (*_CHOICES.get(what, ()), *(installed_kinds() if what == "kind" else ()))
    noun, choices = _CALLED.get(what, what), ", ".join(known)
    if not word or word in {"scalar", "yamllist", "block"}:
        return MappingProblem(position, f"a {noun} is needed here", f"one of {choices}" if known else "")
    if isinstance(found, Block) and word in found and found is not document:
        position = found.key_position(word)
    return MappingProblem(position, f'unknown {noun} "{word}"', did_you_mean(word, known) or f"there are {choices}")


def _meant(word: str, known: Collection[str]) -> str:
    """Return a hint with a similar word or a synonym, "" if there is none."""
    other = _SAID_ELSEWHERE.get(word, "")
    return f'did you mean "{other}"?' if other in known else did_you_mean(word, known)
