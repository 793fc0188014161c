"""Recognises files of other kinds by their first bytes, or by the members of their archive: workbooks of other programs, pages,
PDFs.

They are refused rather than read: the readers of such workbooks lose the displayed text of cells, and each program can save them
as .xlsx or CSV.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from connectors.sources.contract import BadSourceError

HEAD_BYTES = 4096
"""How many bytes of a file show its kind."""
_SAVE = "open it in a spreadsheet program and save it as .xlsx or CSV"
_OPENING = rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*"
_XML_WORKBOOK = (
    re.compile(_OPENING + rb"(?:<\?mso-application progid=\"Excel|<(?:\w+:)?Workbook\b)", re.DOTALL),
    ("an XML workbook of Excel 2003", _SAVE),
)
_KINDS = (
    (
        re.compile(rb"\xd0\xcf\x11\xe0|\x09[\x00\x02\x04\x08][\x04-\x10]\x00"),
        ("an old .xls workbook, or one with a password", f"{_SAVE}, without a password"),
    ),
    (
        re.compile(rb"PK\x03\x04"),
        ("a workbook or a zip archive", "read a workbook with `kind: xlsx`, or save it as CSV; unpack an archive"),
    ),
    (re.compile(rb"\x1f\x8b?"), ("compressed with gzip", "ask for it unpacked")),
    (re.compile(rb"\x28\xb5\x2f\xfd"), ("packed with Zstandard", "ask for it packed with gzip, or unpacked")),
    (re.compile(rb"%PDF"), ("a PDF", "ask for the table as .xlsx or CSV")),
    (
        re.compile(
            _OPENING + rb"<(?:!doctype html|(?:html|head|meta|style|body)\b|table\b[^>]*>\s*<(?:tr|thead|tbody|caption|col)\b)",
            re.IGNORECASE | re.DOTALL,
        ),
        (
            "HTML: a web page, or a table that a program exported as one",
            f"if it is a table, {_SAVE}; else download the file itself: its address may ask for a login",
        ),
    ),
)
_TEXT = re.compile(rb"(?:\xff\xfe|\xfe\xff)|[^\x00-\x08\x0e-\x1f]+\Z")
_ARCHIVES = {
    "content.xml": "an OpenDocument file, such as an .ods table",
    "Index/Document.iwa": "a document of Apple Numbers",
    "Index.zip": "a document of Apple Numbers",
    "xl/workbook.bin": "a binary workbook (.xlsb)",
    "word/document.xml": "a Word document",
}


def refuse_other_kinds(head: bytes, name: str, wanted: str = "rows of text", *, is_xml_wanted: bool = False) -> None:
    """Raise BadSourceError if a file that begins with these bytes is of a kind other than the `wanted` one."""
    plain = head[:HEAD_BYTES].removeprefix(b"\xef\xbb\xbf")
    if plain[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        plain = plain[2:].replace(b"\0", b"")
    for pattern, (what, hint) in _KINDS if is_xml_wanted else (*_KINDS, _XML_WORKBOOK):
        if pattern.match(plain):
            raise BadSourceError(name, f"this is {what}, not {wanted}", hint=hint)


def is_text(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is text."""
    return _TEXT.match(head[:HEAD_BYTES]) is not None


def refuse_other_archives(members: Collection[str], name: str) -> None:
    """Raise BadSourceError if an archive with these members is a document of another program."""
    for member, what in _ARCHIVES.items():
        if member in members:
            raise BadSourceError(name, f"this is {what}, not a table that eventsync reads", hint=_SAVE)
