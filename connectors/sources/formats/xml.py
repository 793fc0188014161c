"""XML in pieces, for whoever listens: elements, texts and nothing else. Entities are refused, and nothing is fetched.

What the elements mean is the listener's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol
from xml.parsers import expat

from connectors.sources.errors import BadSourceError, as_bad_source
from connectors.sources.files.opened_file import OpenedFile
from connectors.sources.files.text import TextPieces
from connectors.sources.formats.nested import OWN_TEXT
from connectors.sources.formats.records import Record
from connectors.sources.row_checks import LARGEST_RECORD, LONGEST_MARKUP, LONGEST_NAME, MOST_VALUES
from mappings.outcome import RowLocation
from mappings.spec.source import XmlSource
from mappings.spec.source_words import is_text_encoding

DEEPEST = 200
"""Elements inside one another. No table is deeper."""
_MOST_NAMES = 100_000
"""Different names of elements and attributes: the parser keeps each of them."""
_MOST_DEFAULTS = 1_000
"""Characters of the values that a document type gives to attributes, 50 for each at least: each element would repeat them."""
_WRONG_FILE = "no list of events does: is this the right file?"


class Listener(Protocol):
    """Is told of what stands in a document, in its order."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def text(self, text: str) -> None:
        """Text, as much as was read at once."""


class XmlPieces:
    """One document, once. `line` is the line of the piece that the listener is just told of."""

    def __init__(self, name: str, listener: Listener, encoding: str | None = None) -> None:
        """`encoding` overrides what the document says of itself."""
        self._name = name
        self._depth = 0
        self._listener = listener
        self._names: dict[str, str] = {}
        self._parser = expat.ParserCreate(encoding, intern=self._names)
        self._fed = self._defaults = self._known_names = 0
        self._doctype: int | None = None
        self._parser.buffer_text = True
        self._parser.buffer_size = 64 * 1024
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = listener.text
        self._parser.StartDoctypeDeclHandler = self._begin_doctype
        self._parser.EndDoctypeDeclHandler = self._end_doctype
        self._parser.AttlistDeclHandler = self._count_default
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity

    @property
    def line(self) -> int:
        """The line on which the present piece begins, from 1."""
        return int(self._parser.CurrentLineNumber)

    def told(self, chunks: Iterable[bytes | str]) -> Iterator[None]:
        """Tell the listener of one chunk after the other, and stop after each.

        Raises:
            BadSourceError: this is no XML, ends early, declares entities, nests too deeply, or has endless tags or names.
        """
        for chunk in chunks:
            piece = self._encoded(chunk) if isinstance(chunk, str) else chunk
            self._parse(piece, is_end=False)
            self._fed += len(piece)
            self._check_markup()
            yield
        self._parse(b"", is_end=True)
        yield

    def _parse(self, chunk: bytes, *, is_end: bool) -> None:
        what, hint = "this is not XML here", "the file may be cut off, or not be XML at all"
        with as_bad_source(lambda: f"{self._name}:{self._parser.ErrorLineNumber}", what, hint=hint, is_end=is_end):
            self._parser.Parse(chunk, is_end)

    def _encoded(self, chunk: str) -> bytes:
        with as_bad_source(lambda: f"{self._name}:{self.line}", "this is not XML here"):
            return chunk.encode()

    def _check_markup(self) -> None:
        """Refuse markup that has not ended: the parser holds all of it, and looks through it anew with each piece."""
        begun = self._parser.CurrentByteIndex if self._doctype is None else self._doctype
        if self._fed - begun > LONGEST_MARKUP:
            message = f"a tag, comment or document type is longer than {LONGEST_MARKUP // 2**20} million bytes"
            raise BadSourceError(f"{self._name}:{self.line}", message, hint=_WRONG_FILE)
        if len(self._names) != self._known_names:
            self._check_names()

    def _check_names(self) -> None:
        self._known_names = len(self._names)
        if any(name and len(name) > LONGEST_NAME for name in self._names):
            message = f"the name of an element or attribute is longer than {LONGEST_NAME} characters"
            raise BadSourceError(f"{self._name}:{self.line}", message, hint=_WRONG_FILE)
        if self._known_names > _MOST_NAMES:
            message = f"there are more than {_MOST_NAMES} different names of elements and attributes"
            raise BadSourceError(f"{self._name}:{self.line}", message, hint=_WRONG_FILE)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            message = f"more than {DEEPEST} elements stand inside one another"
            raise BadSourceError(f"{self._name}:{self.line}", message, hint=_WRONG_FILE)
        self._listener.start(name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._listener.end(name)

    def _begin_doctype(self, *_: object) -> None:
        self._doctype = self._parser.CurrentByteIndex

    def _end_doctype(self) -> None:
        self._doctype = None

    def _count_default(self, element: str, name: str, kind: str, default: str | None, is_required: bool) -> None:  # noqa: ARG002
        if default is None:
            return
        self._defaults += max(50, len(default))
        if self._defaults > _MOST_DEFAULTS:
            message = f'the document type gives values to attributes ("{name[:100]}"), too many or too long ones'
            hint = "each element would repeat them; ask for attributes that are written out"
            raise BadSourceError(f"{self._name}:{self.line}", message, hint=hint)

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        message = f'the document uses an entity of its own, "{name}"'
        hint = "entities are refused, since they can unpack without end; ask for plain text in their place"
        raise BadSourceError(f"{self._name}:{self.line}", message, hint=hint)


_DECLARED = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_WIDE = ("utf-16-le", "utf-16-be")
_SURROGATE = re.compile("[\udc80-\udcff]")
_STAND_IN = re.compile("[\U0010fe80-\U0010feff]")
_OFFSET = 0x10FE80 - 0xDC80
_MOST_NAMES_SHOWN = 40
_PIECE = 32 * 1024


@dataclass(frozen=True, slots=True)
class XmlRecords:
    """Cuts an XML document into the elements that `records` names."""

    spec: XmlSource

    def __call__(self, file: OpenedFile) -> Generator[Record]:
        """Give the records, in their order, numbered from 1.

        Raises:
            BadSourceError: this is no XML, or it has no such elements.
        """
        pieces = TextPieces(file, self.spec.encoding or (_declared(file),))
        try:
            yield from self._records(pieces, file.name)
        finally:
            pieces.release()

    def _records(self, pieces: TextPieces, name: str) -> Iterator[Record]:
        listener = _Elements(self.spec, name)
        xml = XmlPieces(name, listener, "utf-8")
        listener.line_of = lambda: xml.line
        number = 0
        for _ in xml.told(map(_encodable, iter(lambda: pieces.read(_PIECE), ""))):
            for number, (line, value) in enumerate(listener.ready, start=number + 1):  # noqa: B020  # goes on counting
                yield Record(RowLocation(f"{name}:{line} (record {number})", number), value)
            listener.ready.clear()
        if not number and not listener.is_plausible:
            hint = f"correct `source.records`; the elements there are {', '.join(listener.names)}"
            raise BadSourceError(name, f"there is no element {self.spec.records}", hint=hint)


def _declared(file: OpenedFile) -> str:
    """Return the encoding of a document without a byte order mark (XML 1.0, appendix F): its bytes go before what it declares."""
    head = file.stream.read(300)
    file.stream.seek(0)
    for encoding in _WIDE:
        if head.startswith("<?".encode(encoding)):
            return encoding
    found = _DECLARED.match(head)
    name = found[1].decode("ascii") if found else "utf-8"
    if not is_text_encoding(name):
        raise BadSourceError(file.name, f'it says to be in "{name}", which is no encoding of text', hint="set `source.encoding`")
    # A declaration of UTF-16 that can be read as ASCII is wrong: .NET writes it at the head of UTF-8.
    return name if "<?xml".encode(name).endswith(b"<?xml") else "utf-8"


def _encodable(piece: str) -> str:
    """Undecodable bytes pass the parser in the shape of characters that nobody uses."""
    return piece if piece.isascii() else _SURROGATE.sub(lambda byte: chr(ord(byte[0]) + _OFFSET), piece)


def _as_read(text: str) -> str:
    return text if text.isascii() else _STAND_IN.sub(lambda char: chr(ord(char[0]) - _OFFSET), text)


@dataclass(slots=True)
class _Element:
    """An element being read: `inside` its attributes and children, `parts` all text within it in its order."""

    inside: dict[str, Any] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    size: int = 0
    has_children: bool = False
    has_text: bool = False

    def put(self, name: str, child: _Element) -> None:
        self.add(name, child.value())
        self.parts.extend(child.parts)
        self.size += child.size
        self.has_children = True

    def add(self, name: str, value: Any) -> None:
        """Put a value beside those of the same name: elements repeat, and attributes may once their prefixes are dropped."""
        if name not in self.inside:
            self.inside[name] = value
        elif isinstance(self.inside[name], list):
            self.inside[name].append(value)
        else:
            self.inside[name] = [self.inside[name], value]

    def value(self, *, is_record: bool = False) -> Any:
        text = _as_read("".join(self.parts))
        if not self.inside:
            return text
        # Text between the children is layout, unless there is any: then the whole reads like a sentence with marks in it.
        is_leaf = not self.has_children
        return {OWN_TEXT: text, **self.inside} if self.has_text or (is_leaf and not is_record) else self.inside


class _Elements:
    """Hears a document and collects its records."""

    def __init__(self, spec: XmlSource, file: str) -> None:
        self._file = file
        self._way = spec.records.strip("/").split("/")
        self._drops = spec.namespaces == "drop"
        self._open: list[str] = []
        self._record: list[_Element] = []
        self._line = 0
        self.line_of: Callable[[], int] = int
        self.ready: list[tuple[int, Any]] = []
        self.names: dict[str, None] = {}
        self._characters = self._values = 0
        self.is_plausible = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(self._called(name))
        if self._record or self._is_record():
            if not self._record:
                self._line, self._characters, self._values = self.line_of(), 0, 0
            element = _Element()
            for key, value in attributes.items():
                element.add(f"@{self._called(key)}", _as_read(value))
                self._characters += len(key) + len(value)
            self._values += len(attributes) + 1
            self._record.append(element)
        elif len(self.names) < _MOST_NAMES_SHOWN:
            self.names.setdefault("/".join(self._open))
        # A list with nothing in it is no mistake: the way leads to it, or there is nothing but the root.
        if len(self._way) > 1:
            self.is_plausible = self.is_plausible or self._open == self._way[:-1]
        else:
            self.is_plausible = len(self.names) <= 1

    def end(self, name: str) -> None:  # noqa: ARG002  # the protocol's
        called = self._open.pop()
        if not self._record:
            return
        element = self._record.pop()
        if self._record:
            if element.has_children and element.has_text:
                # Such an element keeps the whole sentence, and so does each around it.
                self._characters += element.size
            if self._characters > LARGEST_RECORD or self._values > MOST_VALUES:
                raise self._too_large()
            self._record[-1].put(called, element)
        else:
            value = element.value(is_record=True)
            self.ready.append((self._line, value if isinstance(value, dict) else {OWN_TEXT: value} if value.strip() else {}))

    def text(self, text: str) -> None:
        if self._record:
            self._characters += len(text)
            if self._characters > LARGEST_RECORD:
                raise self._too_large()
            self._record[-1].size += len(text)
            self._record[-1].parts.append(text)
            self._record[-1].has_text = self._record[-1].has_text or not text.isspace()

    def _too_large(self) -> BadSourceError:
        message = (
            f"the record that begins here holds more than {MOST_VALUES} elements and attributes"
            if self._values > MOST_VALUES
            else f"the record that begins here is longer than {LARGEST_RECORD // 2**20} million characters"
        )
        hint = "correct `source.records`: it should lead to the single events"
        return BadSourceError(f"{self._file}:{self._line}", message, hint=hint)

    def _called(self, name: str) -> str:
        return name.rpartition(":")[2] if self._drops else name

    def _is_record(self) -> bool:
        return self._open == self._way if len(self._way) > 1 else self._open[-1] == self._way[0]
