"""XML: streams a document as elements and text, and splits one into records with nested values.

Entities are refused and nothing is fetched. lxml and defusedxml do not limit a tag, a name or a record, do not keep undecodable
bytes visible, and are little faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat  # every declaration and use of an entity of the file's own is refused below

from connectors.sources.contract import BadSourceError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored, as_bad_source
from connectors.sources.files.text import decoded
from connectors.sources.formats.records import OWN_TEXT, Record, read_record_file
from connectors.sources.rows import LARGEST_RECORD, LONGEST_MARKUP, LONGEST_NAME, MOST_VALUES
from mappings.columns import ColumnRequest
from mappings.outcome import RowLocation
from mappings.spec.source import XmlSource
from mappings.spec.source_words import is_text_encoding

_DEEPEST = 200
"""The most nested elements; no table is deeper."""

_MOST_NAMES = 100_000
"""The most different names of elements and attributes; the parser keeps each of them."""

_MOST_DEFAULTS = 1_000
"""The most characters of default attribute values in a document type, at least 50 for each: every element repeats them."""

_WRONG_FILE = "no list of events does: is this the right file?"

_DECLARED = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_SURROGATE = re.compile("[\udc80-\udcff]")
_STAND_IN = re.compile("[\U0010fe80-\U0010feff]")
_OFFSET = 0x10FE80 - 0xDC80
_MOST_NAMES_SHOWN = 40
_PIECE = 32 * 1024


def _ignore(_text: str) -> None:
    """Ignore a text."""


class XmlParser:
    """Parses one document once, and calls functions for its parts in order. `line`: where the current part begins."""

    def __init__(
        self,
        name: str,
        start: Callable[[str, dict[str, str]], None],
        end: Callable[[str], None] = _ignore,
        text: Callable[[str], None] = _ignore,
        *,
        encoding: str | None = None,
    ) -> None:
        """Create the parser; `encoding` overrides the document's own declaration."""
        self._name = name
        self._listen_to_start, self._listen_to_end = start, end
        self._names: dict[str, str] = {}
        self._depth = self._fed = self._defaults = self._known_names = 0
        self._doctype: int | None = None
        self._parser = parser = expat.ParserCreate(encoding, intern=self._names)
        parser.buffer_text, parser.buffer_size = True, 64 * 1024
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = text
        parser.StartDoctypeDeclHandler = self._begin_doctype
        parser.EndDoctypeDeclHandler = partial(setattr, self, "_doctype", None)
        parser.AttlistDeclHandler = self._count_default
        parser.EntityDeclHandler = parser.SkippedEntityHandler = self._refuse_entity

    @property
    def line(self) -> int:
        """The line on which the current part begins, from 1."""
        return int(self._parser.CurrentLineNumber)

    def feed(self, chunks: Iterable[bytes]) -> Iterator[None]:
        """Parse one chunk after the other, and yield after each.

        Raises:
            BadSourceError: this is not XML, ends early, declares entities, nests too deeply, or has too long tags or names.
        """
        for chunk in chunks:
            self._parse(chunk, is_end=False)
            self._fed += len(chunk)
            self._check_markup()
            yield
        self._parse(b"", is_end=True)
        yield

    def _parse(self, chunk: bytes, *, is_end: bool) -> None:
        what, hint = "this is not XML here", "the file may be cut off, or not be XML at all"
        with as_bad_source(lambda: f"{self._name}:{self._parser.ErrorLineNumber}", what, hint=hint, is_end=is_end):
            self._parser.Parse(chunk, is_end)

    def _bad(self, message: str, hint: str = _WRONG_FILE) -> BadSourceError:
        return BadSourceError(f"{self._name}:{self.line}", message, hint=hint)

    def _check_markup(self) -> None:
        """Refuse unfinished markup that is too long, which the parser scans again with each chunk, and too many names."""
        begun = self._parser.CurrentByteIndex if self._doctype is None else self._doctype
        if self._fed - begun > LONGEST_MARKUP:
            raise self._bad(f"a tag, comment or document type is longer than {LONGEST_MARKUP // 2**20} million bytes")
        if len(self._names) == self._known_names:
            return
        self._known_names = len(self._names)
        if any(name and len(name) > LONGEST_NAME for name in self._names):
            raise self._bad(f"the name of an element or attribute is longer than {LONGEST_NAME} characters")
        if self._known_names > _MOST_NAMES:
            raise self._bad(f"there are more than {_MOST_NAMES} different names of elements and attributes")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._bad(f"more than {_DEEPEST} elements are nested")
        self._listen_to_start(name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._listen_to_end(name)

    def _begin_doctype(self, *_: object) -> None:
        self._doctype = self._parser.CurrentByteIndex

    def _count_default(self, element: str, name: str, kind: str, default: str | None, is_required: bool) -> None:  # noqa: ARG002
        if default is None:
            return
        self._defaults += max(50, len(default))
        if self._defaults > _MOST_DEFAULTS:
            message = f'the document type gives values to attributes ("{name[:100]}"), too many or too long ones'
            raise self._bad(message, hint="each element would repeat them; ask for attributes that are written out")

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        hint = "entities are refused, since they can unpack without end; ask for plain text in their place"
        raise self._bad(f'the document uses an entity of its own, "{name}"', hint)


def read_xml(spec: XmlSource, open_stored: OpenStored, asked: ColumnRequest) -> AbstractContextManager[Reading]:
    """Read the elements that `records` names under the contract of `Source.read`."""
    return read_record_file(spec, open_stored, asked, partial(_records, spec))


def _records(spec: XmlSource, file: OpenedFile) -> Generator[Record]:
    """Yield the elements that `records` names in order, numbered from 1.

    Raises:
        BadSourceError: this is not XML, or it has no such elements.
    """
    with decoded(file, spec.encoding or (_declared(file),)) as read:
        elements, number = _RecordElements(spec, file.name), 0

        def encoded(piece: str) -> bytes:
            with as_bad_source(lambda: f"{file.name}:{elements.parser.line}", "this is not XML here"):
                # Undecodable bytes pass the parser as private-use characters that no file uses.
                return _SURROGATE.sub(lambda byte: chr(ord(byte[0]) + _OFFSET), piece).encode()

        for _ in elements.parser.feed(map(encoded, iter(partial(read, _PIECE), ""))):
            for number, (line, value) in enumerate(elements.ready, start=number + 1):  # noqa: B020  # goes on counting
                yield Record(RowLocation(f"{file.name}:{line} (record {number})", number), value)
            elements.ready.clear()
    if not number and not elements.is_plausible:
        hint = f"correct `source.records`; the elements there are {', '.join(elements.names)}"
        raise BadSourceError(file.name, f"there is no element {spec.records}", hint=hint)


def _declared(file: OpenedFile) -> str:
    """Return the encoding of a document without a byte order mark (XML 1.0, appendix F); its first bytes take precedence over
    its declaration.
    """
    head = file.stream.read(300)
    file.stream.seek(0)
    for encoding in ("utf-16-le", "utf-16-be"):
        if head.startswith("<?".encode(encoding)):
            return encoding
    found = _DECLARED.match(head)
    name = found[1].decode("ascii") if found else "utf-8"
    if not is_text_encoding(name):
        raise BadSourceError(file.name, f'it declares the encoding "{name}", which is not known', hint="set `source.encoding`")
    # A declaration of UTF-16 that can be read as ASCII is wrong: .NET writes it at the head of UTF-8.
    return name if "<?xml".encode(name).endswith(b"<?xml") else "utf-8"


def _as_read(text: str) -> str:
    return text if text.isascii() else _STAND_IN.sub(lambda char: chr(ord(char[0]) - _OFFSET), text)


class _RecordElements:
    """Collects the records of a document. `is_plausible`: having no records is fine, since an empty list is not a mistake."""

    def __init__(self, spec: XmlSource, file: str) -> None:
        self.ready: list[tuple[int, Any]] = []
        self.names: dict[str, None] = {}
        self.is_plausible = False
        self.parser = XmlParser(file, self._start, self._end, self._text, encoding="utf-8")
        self._file = file
        self._way = spec.records.strip("/").split("/")
        self._open: list[str] = []
        self._record: TreeBuilder | None = None
        self._depth = self._line = self._characters = self._values = 0

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(name)
        is_record = self._open == self._way if len(self._way) > 1 else self._open[-1] == self._way[0]
        if is_record and self._record is None:
            self._record, self._depth = TreeBuilder(), len(self._open)
            self._line, self._characters, self._values = self.parser.line, 0, 0
        if self._record is not None:
            self._count(sum(len(key) + len(value) for key, value in attributes.items()) if attributes else 0, len(attributes) + 1)
            self._record.start(name, attributes)
        elif len(self.names) < _MOST_NAMES_SHOWN:
            self.names.setdefault("/".join(self._open))
        if len(self._way) > 1:
            self.is_plausible = self.is_plausible or self._open == self._way[:-1]
        else:
            self.is_plausible = len(self.names) <= 1

    def _end(self, name: str) -> None:
        self._open.pop()
        if self._record is None:
            return
        self._record.end(name)
        if len(self._open) < self._depth:
            value = self._value(self._record.close(), is_record=True)
            self._record = None
            found = value if isinstance(value, dict) else {OWN_TEXT: value} if value.strip() else {}
            self.ready.append((self._line, found))

    def _text(self, text: str) -> None:
        if self._record is not None:
            self._count(len(text), 0)
            self._record.data(text)

    def _value(self, element: Element, *, is_record: bool = False) -> Any:
        """Return the text of an element, or its attributes and children with all text inside it as its own text."""
        if not len(element) and not element.attrib:
            return _as_read(element.text or "")
        inside: dict[str, Any] = {f"@{key}": _as_read(value) for key, value in element.attrib.items()}
        for child in element:
            known, value = inside.get(child.tag), self._value(child)
            if known is None:
                inside[child.tag] = value
            elif isinstance(known, list):  # those of a repeated element
                known.append(value)
            else:
                inside[child.tag] = [known, value]
        own = (element.text, *(child.tail for child in element))
        # Text between the children is layout, unless there is any: then the whole reads like a sentence with marks in it.
        has_text = any(text and not text.isspace() for text in own)
        if inside and not has_text and (len(element) or is_record):
            return inside
        text = _as_read("".join(element.itertext()))
        # Such an element keeps the whole sentence, and so does each around it.
        self._count(len(text) if len(element) else 0, 0)
        return {OWN_TEXT: text, **inside} if inside else text

    def _count(self, characters: int, values: int) -> None:
        self._characters += characters
        self._values += values
        record = "the record that begins here"
        if self._values > MOST_VALUES:
            message = f"{record} holds more than {MOST_VALUES} elements and attributes"
        elif self._characters > LARGEST_RECORD:
            message = f"{record} is longer than {LARGEST_RECORD // 2**20} million characters"
        else:
            return
        hint = "correct `source.records`: it should lead to the single events"
        raise BadSourceError(f"{self._file}:{self._line}", message, hint=hint)
