"""Mapping files loaded: one at a time, or a folder of them, with their lookup files and every problem at its position."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mappings.compiler.mapper import Directory, compile_with_problems
from mappings.errors import FileProblem, MappingFileError, SyncError
from mappings.lint.mistakes import find_circles, find_no_objects, find_overgrown, find_problems, find_unknown_names, item_names
from mappings.lint.warnings import find_read_and_written, find_unwise, find_warnings, without_secrets
from mappings.lookup_table import Table, TableError, parse_table
from mappings.outcome import did_you_mean
from mappings.positions import (
    START,
    Block,
    IncludedFile,
    MappingProblem,
    PlacedProblem,
    Position,
    locate,
    plain,
    position_after,
    read_yaml,
)
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, PublishPolicy
from mappings.spec.rules import RULES
from mappings.spec.source import SOURCES
from mappings.spec.values import MARKERS
from mappings.steps.catalogue import STEPS
from mappings.strict import FileContext
from mappings.yaml.includes import FRAGMENT_MARK, include_files, insert_named_steps

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
"""Words by which other programs, or other places of a mapping file, call the same thing."""
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


def find_model_problems(error: ValidationError, document: Block) -> Iterator[PlacedProblem]:
    """Yield every problem that the models found."""
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] != "too_short" or not any(_is_inside(other["loc"], problem["loc"]) for other in problems):
            yield _placed(problem, document)


def _is_inside(loc: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    """A list is too short only for want of the items that were refused."""
    return len(loc) > len(outer) and loc[: len(outer)] == outer


def _placed(problem: ErrorDetails, document: Block) -> PlacedProblem:  # noqa: PLR0911 - one arm per type of error
    loc = problem["loc"]
    position, block = locate(document, loc)[0], locate(document, loc[:-1])[1]
    match problem["type"]:
        case "extra_forbidden":
            return _unknown_key(str(loc[-1]), position, block)
        case "missing":
            return _missing_key(str(loc[-1]), position, block)
        case "union_tag_invalid":
            return _unknown_choice(problem, position, document)
        case "mistake":
            context = problem.get("ctx", {})
            return PlacedProblem(position, str(context.get("message", "")), str(context.get("hint", "")))
        case "literal_error" | "enum":
            return _not_among(problem, position)
        case "string_pattern_mismatch":
            return PlacedProblem(position, f'"{problem["input"]}" is not written as it must be', "lower-case words joined by -")
        case "value_error":
            return PlacedProblem(position, problem["msg"].removeprefix("Value error, "))
        case kind:
            return PlacedProblem(position, _found(_WORDS.get(kind, problem["msg"]), problem["input"]))


def _found(message: str, found: object) -> str:
    return f'{message}, not "{found}"' if isinstance(found, str) else message


def _unknown_key(key: str, position: Position, block: Block | None) -> PlacedProblem:
    where = block.key_position(key) if block is not None and key in block else position
    allowed = block.allowed if block is not None else ()
    hint = _meant(key, allowed) or (f"the keys here are {', '.join(allowed)}" if allowed else "")
    return PlacedProblem(where, f'unknown key "{key}"', hint)


def _missing_key(key: str, position: Position, block: Block | None) -> PlacedProblem:
    near = did_you_mean(key, (other for other in block if other not in block.allowed)) if block is not None else ""
    return PlacedProblem(position, f'the key "{key}" is missing', near.replace("did you mean", "is it written as"))


def _unknown_choice(problem: ErrorDetails, position: Position, document: Block) -> PlacedProblem:
    what, _, word = str(problem.get("ctx", {}).get("tag", "")).partition(":")
    known = _CHOICES.get(what, ())
    noun, choices = _CALLED.get(what, what), ", ".join(known)
    if not word or word in {"scalar", "yamllist", "block"}:
        return PlacedProblem(position, f"a {noun} is needed here", f"one of {choices}" if known else "")
    found = problem["input"]
    if isinstance(found, Block) and word in found and found is not document:
        position = found.key_position(word)
    return PlacedProblem(position, f'unknown {noun} "{word}"', did_you_mean(word, known) or f"there are {choices}")


def _not_among(problem: ErrorDetails, position: Position) -> PlacedProblem:
    expected = str(problem.get("ctx", {}).get("expected", ""))
    known = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    found = str(problem["input"])
    return PlacedProblem(position, f'"{found}" is not among the choices', _meant(found, known) or f"there are {', '.join(known)}")


def _meant(word: str, known: Collection[str]) -> str:
    """Return the word that is spelt alike, or that means the same; "" if there is none."""
    other = _SAID_ELSEWHERE.get(word, "")
    return f'did you mean "{other}"?' if other in known else did_you_mean(word, known)


_NAME = re.compile(rb"""^feed:[ \t]+(["']?)([a-z0-9_-]+)\1[ \t]*(?:#[^\n]*)?\r?$""", re.MULTILINE)


def same_name(feed: str) -> str:
    """Return a feed's name as names are compared: those that differ in `-` and `_` only are one."""
    return feed.replace("-", "_")


def may_be_named(paths: Sequence[Path], wanted: Collection[str]) -> list[Path]:
    """Return those files, in their order, that are called so or may hold a feed of one of these names.

    Every file that claims the same name as one of them is among them, so that of two with one name the later stays
    broken; and every file whose name only YAML can read.
    """
    claims = {path: _claimed(path) for path in paths}
    names = {same_name(name) for name in wanted} | {claim for path, claim in claims.items() if path.stem in wanted}
    return [path for path, claim in claims.items() if not claim or claim in names or path.stem in wanted]


def _claimed(path: Path) -> str:
    """Return the name that a file gives its feed; "" if that takes reading it as YAML."""
    try:
        names = [match[2].decode() for match in _NAME.finditer(path.read_bytes())]
    except OSError:
        return ""
    return same_name(names[0]) if len(names) == 1 else ""


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
    document, problems = _assembled(text, path)
    if not isinstance(document, Block):
        no_block = PlacedProblem(START, "a mapping file is a block of keys: feed, source, key, event")
        raise _error(path, text, problems or [no_block])
    let, tables = document.get("let"), FileContext(_names(document), shelf.opener(path.parent))
    unwise = [one for one in _placed_of_loader(document, find_unwise(document)) if one.position.file is None]
    try:
        mapping = FeedMapping.model_validate(document, context=tables)
    except ValidationError as error:
        problems += find_model_problems(error, document)
        problems += _placed_of_loader(document, (*find_problems(document, tables.tables), *find_circles(let)))
        raise _error(path, text, problems, unwise) from None
    mapping = mapping.loaded(path, _digest(document, tables.tables, mapping.publish), tables.tables)
    if overgrown := tuple(find_overgrown(let)):
        raise _error(path, text, [*problems, *_placed_of_loader(document, overgrown)], unwise)
    mapper, misfits = compile_with_problems(mapping, Directory())
    circles = tuple(find_circles(let))
    found = (
        *(misfits or circles),
        *find_problems(document, tables.tables),
        *(() if circles else (*find_no_objects(mapping), *find_unknown_names(mapping))),
        *_find_unseen(mapping),
        *find_read_and_written(mapping, mapper.columns),
    )
    if problems or found:
        raise _error(path, text, [*problems, *_placed_of_loader(document, found)], unwise)
    warnings = _file_problems(path, text, [*unwise, *_placed_of_loader(document, find_warnings(mapping, mapper))])
    return mapping.loaded(path, mapping.digest, tables.tables, warnings)


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


def at_places(path: Path, problems: Iterable[MappingProblem]) -> tuple[FileProblem, ...]:
    """Return problems found in a loaded mapping file elsewhere, at their lines and columns."""
    found = tuple(problems)
    text = path.read_bytes().decode("utf-8-sig") if found else ""
    document = _assembled(text, path)[0]
    return _file_problems(path, text, _placed_of_loader(document, found)) if isinstance(document, Block) else ()


def _assembled(text: str, path: Path) -> tuple[object, list[PlacedProblem]]:
    """Return the document with what it includes, and with its named steps in their places, and every problem on the way."""
    document, problems = read_yaml(text)
    if isinstance(document, Block):
        problems += include_files(document, path.parent)
        problems += insert_named_steps(document)
    return document, problems


def _not_utf8(path: Path, error: UnicodeDecodeError) -> FileProblem:
    before = error.object[: error.start].decode("utf-8", "replace")
    return FileProblem(path, *position_after(before)[:2], "the file is not UTF-8 from here on", "save it as UTF-8")


def _placed_of_loader(document: Block, problems: Iterable[MappingProblem]) -> list[PlacedProblem]:
    return [PlacedProblem(locate(document, problem.loc)[0], problem.message, problem.hint) for problem in problems]


def _claim_name(feed: FeedName, path: Path, taken: dict[str, Path]) -> None:
    other = taken.setdefault(same_name(feed), path)
    if other != path:
        message = f'the feed name "{feed}" is taken by {other.name}'
        hint = "feed names must differ in more than - and _"
        raise MappingFileError(path, (FileProblem(path, 1, 1, message, hint),))


def _find_unseen(mapping: FeedMapping) -> Iterator[MappingProblem]:
    if mapping.schedule and mapping.schedule.look_every_s is not None and not mapping.source.can_be_looked_at:
        told = f"a source of kind {mapping.source.kind} cannot be looked at without reading it"
        yield MappingProblem(("schedule", "look_every"), told, "write cron, as often as it may be asked")


def _names(document: Block) -> frozenset[str]:
    """Return the names that values may use: those of `let`, of items, and what the rules about rows add to each event."""
    let, rules = document.get("let"), document.get("rows")
    kinds = {key for rule in rules if isinstance(rule, Block) for key in rule} if isinstance(rules, list) else set()
    given = {name for name, kind in (("item", "explode"), ("day", "recur")) if kind in kinds}
    return frozenset(let if isinstance(let, Block) else ()) | given | item_names(document)


def _digest(document: Block, tables: Mapping[str, Table], publish: PublishPolicy) -> bytes:
    """Digest what decides over rows: comments, layout, owner, schedule, examples and most of publishing do not."""
    content = {key: document[key] for key in _ABOUT_ROWS if key in document}
    if publish.draft_on_warning:
        content["draft_on_warning"] = "true"
    shelves = {name: [table.columns, table.rows] for name, table in tables.items()}
    text = orjson.dumps([plain(content), shelves], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).digest()


def _error(path: Path, text: str, problems: Iterable[PlacedProblem], unwise: Iterable[PlacedProblem] = ()) -> MappingFileError:
    return MappingFileError(path, _file_problems(path, text, problems), _file_problems(path, text, unwise))


def _file_problems(path: Path, text: str, problems: Iterable[PlacedProblem]) -> tuple[FileProblem, ...]:
    """Return the problems in the order of the lines, those of the feed's own file first."""
    own = IncludedFile(path, text)
    files = [(problem, problem.position.file or own) for problem in dict.fromkeys(problems)]
    files.sort(key=lambda one: ("" if one[1] is own else str(one[1].path), one[0].position[:2]))
    return tuple(_file_problem(problem, file) for problem, file in files)


def _file_problem(problem: PlacedProblem, file: IncludedFile) -> FileProblem:
    line, column, _ = problem.position
    snippet = "".join(without_secrets(file.text).splitlines()[line - 1 : line])
    return FileProblem(file.path, line, column, problem.message, problem.hint, snippet)
