"""An Excel workbook as a package of parts: which sheets there are, and the parts of one as streams.

What a sheet's cells mean is `xlsx_cells`'s. The parts are named by ECMA-376, part 1, sections 12.3 and 18.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from rapidfuzz import process

from connectors.sources.errors import BadSourceError, CutOffError, EmptySourceError
from connectors.sources.files.unpacking import opened_archive, opened_member
from connectors.sources.formats.xml import XmlParser
from connectors.sources.header import folded
from connectors.sources.row_checks import MOST_VALUES

_CHUNK_BYTES = 64 * 1024
_CUT = "no workbook, or one that was cut off"
_KINDS = {
    b"\xd0\xcf\x11\xe0": ("an old .xls workbook, or one with a password", "save it as .xlsx, without a password"),
    b"<": ("a web page or XML", "the address may ask for a login"),
    b"%PDF": ("a PDF", "ask for the table as .xlsx"),
}


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a small part, with its attributes under their names without prefix."""

    name: str
    attributes: dict[str, str]


class XlsxPackage:
    """An open workbook. `name` is what people call the file."""

    def __init__(self, stream: BinaryIO, name: str, stored_bytes: int) -> None:
        """Open the package. `stored_bytes`: the size of the file that we were sent, which may be an archive around it.

        Raises:
            BadSourceError: it is no workbook.
        """
        self.name = name
        self._stored_bytes = stored_bytes
        head = stream.read(4)
        stream.seek(0)
        if not head:
            raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")
        try:
            self._zip = opened_archive(stream, name)
        except BadSourceError as error:
            what, hint = next(
                (kind for magic, kind in _KINDS.items() if head.startswith(magic)),
                (_CUT, "ask the partner for the whole file as .xlsx"),
            )
            kind = CutOffError if what is _CUT else BadSourceError
            raise kind(name, f"this is {what}, not an .xlsx workbook", hint=hint) from error
        self.workbook_part = self._workbook_part()
        self._targets = dict(self._relations(self.workbook_part))

    def chunks(self, part: str) -> Iterator[bytes]:
        """Give a part's bytes.

        Raises:
            BadSourceError: it is damaged, or unpacks without end.
        """
        info = self._zip.NameToInfo.get(part)
        if info is None:
            message = f"the workbook is damaged: its part {part or 'for the sheet'} is missing"
            raise BadSourceError(self.name, message, hint="open it in a spreadsheet program and save it again")
        with opened_member(self._zip, info, f"{self.name} ({part})", self._stored_bytes) as stream:
            yield from iter(partial(stream.read, _CHUNK_BYTES), b"")

    def has(self, part: str) -> bool:
        """Whether there is such a part."""
        return part in self._zip.NameToInfo

    def elements(self, part: str, *names: str) -> Iterator[Element]:
        """Give the elements of these names in a part, in their order.

        Raises:
            BadSourceError: they are more than any workbook has.
        """
        found: list[Element] = []
        count = 0
        for _ in XmlParser(f"{self.name} ({part})", _Collecting(names, found)).feed(self.chunks(part)):
            count += len(found)
            if count > MOST_VALUES:
                message = f"more than {MOST_VALUES} elements {' or '.join(names)}"
                raise BadSourceError(f"{self.name} ({part})", message, hint="save the sheet as CSV, which is read row by row")
            yield from found
            found.clear()

    def part_of(self, sheet: str) -> tuple[str, str]:
        """Return a sheet's own name and its part; `sheet` is a name, or a position like `#2`.

        Raises:
            BadSourceError: there is no such sheet.
        """
        sheets = {
            element.attributes.get("name", ""): self._targets.get(element.attributes.get("id", ""), "")
            for element in self.elements(self.workbook_part, "sheet")
        }
        names = list(sheets)
        position = int(sheet[1:]) if sheet[:1] == "#" and sheet[1:].isascii() and sheet[1:].isdecimal() else 0
        alike = [name for name in names if folded(name) == folded(sheet)]
        if sheet in sheets or len(alike) == 1:
            return (name := sheet if sheet in sheets else alike[0]), sheets[name]
        if 0 < position <= len(names):
            return names[position - 1], sheets[names[position - 1]]
        near = process.extractOne(sheet, names, score_cutoff=60)
        closest = f'; is "{near[0]}" meant?' if near else ""
        there = ", ".join(f'"{name}"' for name in names)
        raise BadSourceError(self.name, f'there is no sheet "{sheet}"', hint=f"its sheets are {there}{closest}")

    def part_of_kind(self, kind: str) -> str:
        """Return the part that the workbook calls its `sharedStrings` or `styles`, "" if it has none."""
        folder = posixpath.dirname(self.workbook_part)
        named = f"{folder}/{kind}.xml".lstrip("/")
        found = next(
            (part for part in self._targets.values() if posixpath.basename(part).lower() == f"{kind.lower()}.xml"), named
        )
        return found if self.has(found) else ""

    def _workbook_part(self) -> str:
        found = next((part for _, part in self._relations("") if "workbook" in posixpath.basename(part)), "xl/workbook.xml")
        if not self.has(found):
            hint = "ask for the table as .xlsx (an .ods or .numbers file, or an archive with files in it, is not one)"
            raise BadSourceError(self.name, "this is a zip archive, but no Excel workbook", hint=hint)
        return found

    def _relations(self, part: str) -> Iterator[tuple[str, str]]:
        folder, base = posixpath.split(part)
        relations = posixpath.join(folder, "_rels", f"{base}.rels")
        for element in self.elements(relations, "Relationship") if self.has(relations) else ():
            target = posixpath.normpath(posixpath.join("/", folder, element.attributes.get("Target", "")))
            yield element.attributes.get("Id", ""), target.lstrip("/")


@dataclass(frozen=True, slots=True)
class _Collecting:
    names: tuple[str, ...]
    found: list[Element]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name in self.names:
            self.found.append(Element(name, {key.rpartition(":")[2]: value for key, value in attributes.items()}))

    def end(self, name: str) -> None:
        """Nothing is said at an element's end."""

    def text(self, text: str) -> None:
        """The small parts hold no text that matters."""
