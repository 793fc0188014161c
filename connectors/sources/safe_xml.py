"""XML in pieces, for whoever listens: elements, texts and nothing else. Entities are refused, and nothing is fetched.

What the elements mean is the listener's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol
from xml.parsers import expat  # every declaration and use of an entity of the file's own is refused below

from connectors.sources.errors import BadSourceError, as_bad_source

DEEPEST = 200
"""Elements inside one another. No table is deeper."""


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
        self._parser = expat.ParserCreate(encoding)
        self._parser.buffer_text = True
        self._parser.buffer_size = 64 * 1024
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = listener.text
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity

    @property
    def line(self) -> int:
        """The line on which the present piece begins, from 1."""
        return int(self._parser.CurrentLineNumber)

    def told(self, chunks: Iterable[bytes | str]) -> Iterator[None]:
        """Tell the listener of one chunk after the other, and stop after each.

        Raises:
            BadSourceError: this is no XML, ends early, declares entities or nests too deeply.
        """
        for chunk in chunks:
            self._parse(chunk, is_end=False)
            yield
        self._parse(b"", is_end=True)
        yield

    def _parse(self, chunk: bytes | str, *, is_end: bool) -> None:
        what, hint = "this is not XML here", "the file may be cut off, or not be XML at all"
        with as_bad_source(lambda: f"{self._name}:{self._parser.ErrorLineNumber}", what, hint=hint, is_end=is_end):
            self._parser.Parse(chunk, is_end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            message = f"more than {DEEPEST} elements stand inside one another"
            raise BadSourceError(f"{self._name}:{self.line}", message, hint="no list of events does: is this the right file?")
        self._listener.start(name, attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._listener.end(name)

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        message = f'the document uses an entity of its own, "{name}"'
        hint = "entities are refused, since they can unpack without end; ask for plain text in their place"
        raise BadSourceError(f"{self._name}:{self.line}", message, hint=hint)
