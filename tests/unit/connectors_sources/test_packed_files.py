"""Files that come packed: which file of an archive is meant, and what a damaged or swollen one leads to."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import pytest
from unit.connectors_sources.reading import read

from connectors.sources.contract import BadSourceError


def archive(members: dict[str, bytes | str], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ("", "the archive holds 2 files: a/events.csv, b/events.csv"),
        ("*.csv", '2 files of the archive match "*.csv": a/events.csv, b/events.csv'),
        ("*.json", 'no file of the archive matches "*.json"; it holds a/events.csv, b/events.csv'),
    ],
)
def test_a_pattern_that_does_not_mean_one_file_is_told_with_what_there_is(tmp_path: Path, member: str, said: str) -> None:
    with pytest.raises(BadSourceError) as caught:
        read(tmp_path, archive({"a/events.csv": "id\n", "b/events.csv": "id\n"}), member=member)
    assert said in str(caught.value)
    assert "member" in caught.value.hint


def test_a_packed_file_that_is_cut_off_or_damaged_is_bad(tmp_path: Path) -> None:
    packed = lzma.compress(b"id\n" + b"1\n" * 100_000)
    for broken in (packed[:-4], packed[:12] + b"\xff" * 8 + packed[20:], gzip.compress(b"id\n" + b"1\n" * 100)[:-9]):
        with pytest.raises(BadSourceError, match="damaged or cut off"):
            read(tmp_path, broken)


LONG = b"id\n" + b"".join(b"%d\n" % number for number in range(20_000))
PADDING = bytes(4)


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(LONG[:999]) + gzip.compress(b"") + PADDING + gzip.compress(LONG[999:]) + PADDING,
        bz2.compress(LONG[:999]) + bz2.compress(LONG[999:]),
        lzma.compress(LONG[:999]) + PADDING + lzma.compress(LONG[999:], preset=9),
    ],
    ids=["gzip", "bzip2", "xz"],
)
def test_a_file_packed_in_several_parts_is_read_whole(tmp_path: Path, content: bytes) -> None:
    assert len(read(tmp_path, content, "id")) == 20_000
    assert len(read(tmp_path, content, "id", encoding=["ascii", "utf-8"])) == 20_000
    with pytest.raises(BadSourceError, match="damaged or cut off"):
        read(tmp_path, content + b"something else", "id")


def test_a_file_of_an_archive_is_read_though_it_has_no_name(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file, file.open(zipfile.ZipInfo(""), "w") as member:
        member.write(b"id\n1\n")
    assert len(read(tmp_path, packed.getvalue(), "id")) == 1


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_file_of_an_archive_is_read_however_it_is_packed_and_its_checksum_is_minded(tmp_path: Path, how: int) -> None:
    content = archive({"events.csv": LONG}, how)
    assert len(read(tmp_path, content, "id", encoding=["ascii", "utf-8"])) == 20_000
    at = content.index(b"PK\1\2") + 16
    with pytest.raises(BadSourceError, match=r"events\.csv: the packed file is damaged or cut off"):
        read(tmp_path, content[:at] + b"\0\0\0\0" + content[at + 4 :], "id")


ZSTANDARD = bytes.fromhex("28b52ffd2006310000") + b"id\n1\n"


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (archive({"events.csv": LONG}, zipfile.ZIP_BZIP2), "csv", "events.csv: its archive packs it with bzip2"),
        (archive({"events.csv": LONG}, zipfile.ZIP_LZMA), "csv", "events.csv: its archive packs it with LZMA"),
        (ZSTANDARD, "csv", "this is packed with Zstandard, not rows of text"),
        (ZSTANDARD, "json", "this is packed with Zstandard, not rows of text"),
        (ZSTANDARD, "xlsx", "this is packed with Zstandard, not an .xlsx workbook"),
    ],
)
def test_a_packing_that_is_not_unpacked_is_named_with_one_that_is(tmp_path: Path, content: bytes, kind: str, said: str) -> None:
    with pytest.raises(BadSourceError) as caught:
        read(tmp_path, content, kind=kind)
    assert said in str(caught.value)
    assert "deflate" in caught.value.hint or "gzip" in caught.value.hint
