"""Files under the wrong name: what they are is said before anything else fails, by each command that reads them."""

from __future__ import annotations

import io
import zipfile

import pytest
from unit.cli.conftest import MAPPING, Desk

TABLE = b"<table border='1'><tr><th>ID</th></tr><tr><td>1</td></tr></table>"
EXCEL_PAGE = b'<html xmlns:x="urn:schemas-microsoft-com:office:excel"><meta charset="utf-8"><body>' + TABLE
XML_WORKBOOK = b'<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>\n<Workbook><Worksheet/></Workbook>'


def packed(*members: str) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for member in members:
            archive.writestr(member, "x")
    return file.getvalue()


OTHER = {
    "an old workbook": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an old .xls workbook, or one with a password"),
    "an older workbook": (b"\x09\x08\x10\x00\x00\x06\x05\x00" + bytes(600), "an old .xls workbook"),
    "a table in HTML": (TABLE, "this is HTML: a web page, or a table"),
    "a page of Excel": (EXCEL_PAGE, "this is HTML: a web page, or a table"),
    "a page in UTF-16": (b"\xff\xfe" + EXCEL_PAGE.decode().encode("utf-16-le"), "this is HTML"),
    "an XML workbook": (XML_WORKBOOK, "an XML workbook of Excel 2003"),
    "an .ods": (packed("mimetype", "content.xml", "styles.xml"), "an OpenDocument file, such as an .ods table"),
    "a .numbers": (packed("Index/Document.iwa", "preview.jpg"), "a document of Apple Numbers"),
    "an .xlsb": (packed("[Content_Types].xml", "xl/workbook.bin"), "a binary workbook (.xlsb)"),
}


@pytest.mark.parametrize("other", OTHER)
def test_a_file_of_another_program_is_named_by_each_command_that_reads_it(desk: Desk, other: str) -> None:
    content, said = OTHER[other]
    for kind in ("csv", "xlsx"):
        (desk.folder / f"events.{kind}").write_bytes(content)
        advice = "kind: xlsx" if other == "an .xlsb" and kind == "csv" else "save it as .xlsx or CSV"
        desk.run("init", f"events.{kind}", "--feed", "drafted").assert_told(2, said, "save it as .xlsx or CSV")
        desk.mapping(MAPPING.replace("kind: csv\n  path: ../events.csv", f"kind: {kind}\n  path: ../events.{kind}"))
        for command in ("preview", "check"):
            told = desk.run(command, "town-hall")
            assert ("workbook" if advice == "kind: xlsx" else said) in told.words, command
            assert advice in told.words, command


def test_text_under_the_name_of_a_workbook_is_drafted_as_what_it_is(desk: Desk) -> None:
    rows = "ID\tTITLE\tDAY\n1\tJazz\t2030-05-01\n2\tFado\t2030-05-23\n"
    for name, content, kind in (
        ("plan.xls", rows.encode(), "tsv"),
        ("plan.xls", b"\xff\xfe" + rows.encode("utf-16-le"), "tsv"),
        ("plan.xlsx", rows.replace("\t", ",").encode(), "csv"),
    ):
        (desk.folder / name).write_bytes(content)
        desk.run("init", name, "--feed", "drafted", "--force", "--zone", "Europe/Lisbon", code=0)
        assert f"kind: {kind}" in (desk.folder / "feeds" / "drafted.yaml").read_text("utf-8")
        assert desk.told("preview", "drafted")["account"]["events"] == 2
    desk.mapping(MAPPING.replace("kind: csv\n  path: ../events.csv", "kind: xlsx\n  path: ../plan.xlsx"))
    desk.run("preview", "town-hall").assert_told(2, "this is text, not an .xlsx workbook", "kind: csv")
