"""XML in pieces, for whoever listens: elements, texts and nothing else. Entities are refused, and nothing is fetched.

What the elements mean is the listener's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol
from xml.parsers import expat  # every declaration and use of an entity of the file's own is refused below

from connectors.sources.errors import BadSourceError, as_bad_source
from connectors.sources.row_limits import LONGEST_MARKUP, LONGEST_NAME

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
