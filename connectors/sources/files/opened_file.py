"""An opened file: unpacks with limits, detects changes while it is read, and recognises files of other kinds.

Packed content goes through `UnpackedStream`, which counts the packed bytes itself: declared sizes are not trusted. Python's own
readers do not suffice: none limits its output by the size of its input, and `lzma.LZMAFile` has no memory limit. The memory of
deflate and bzip2 is bounded by their formats.

Files of other kinds (workbooks of other programs, pages, PDFs) are known by their first bytes, or by the members of their
archive. They are refused rather than read: the readers of such workbooks lose the displayed text of cells, and each program can
save them as .xlsx or CSV.
"""

from __future__ import annotations

import bz2
import copy
import errno
import fnmatch
import hashlib
import io
import lzma
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, TypeVar
from xml.parsers import expat

from connectors.sources.contract import BadSourceError, ColumnsError, CutOffError, SourceUnavailableError
from mappings.errors import DISK_IS_FULL

T = TypeVar("T")
HARMLESS_BYTES = 32 * 1024 * 1024
"""The size up to which any file may unpack, in bytes, whatever its packed size."""
MOST_RATIO = 250
"""Above that, the largest ratio of unpacked to packed bytes; tables of text reach 10 to 100."""
MOST_DIRECTORY = 4 * 1024 * 1024
"""The largest directory of a zip archive, in bytes: some 40,000 members."""
MOST_WINDOW = 128 * 1024 * 1024
"""The largest dictionary of xz, in bytes; `xz -9` takes 64 MB."""
_WINDOW_AND_STATE = MOST_WINDOW + 1024 * 1024
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard"}
"""Names of methods that are not unpacked (APPNOTE.TXT, section 4.4.5)."""
_BUFFER_BYTES = 64 * 1024
_CHUNK_BYTES = 1024 * 1024
_MOST_SHOWN = 20
_LONGEST_SHOWN = 200
_DAMAGED = "the packed file is damaged or cut off"
_DAMAGE = (
    *(EOFError, ValueError, LookupError, ArithmeticError, RuntimeError, MemoryError, OSError),
    *(struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile, expat.ExpatError),
)
"""All exceptions that Python's readers of archives, packed files, texts and XML raise for damaged content."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An open, seekable file as it is stored, or an unnamed copy of a remote one.

    `name`: for people. `stamp`: evidence of its content, or "". `version`: the server's version, for later conditional
    requests. `has_known_end`: the disk or its length proves that it is complete.
    """

    stream: BinaryIO
    name: str
    stamp: str
    has_known_end: bool = True
    version: str = ""

    @contextmanager
    def reopened(self) -> Iterator[StoredFile]:
        """Open the same bytes from the start. All such streams share one position: read one at a time."""
        self.stream.seek(0)
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as own:
            yield replace(self, stream=own)


OpenStored = Callable[[], AbstractContextManager[StoredFile]]
"""Opens a file for one pass from its first byte."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An open, seekable file. `name`: for people (`events.csv`); `stamp`: evidence of its version, or "".

    `has_known_end`: its length or its packing format proves that it is complete. `stored_bytes`: its stored size, packed or
    not.
    """

    stream: BinaryIO
    name: str
    stamp: str
    has_known_end: bool
    stored_bytes: int
    _stored: BinaryIO
    _changed_ns: int

    @contextmanager
    def detect_change(self) -> Iterator[None]:
        """Detect writes to the file during the block, since a file that is being written looks broken.

        Replacing the whole file does not count.

        Raises:
            SourceUnavailableError: the file was written to.
        """
        try:
            yield
        except (BadSourceError, ColumnsError):
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        now = os.fstat(self._stored.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.stored_bytes, self._changed_ns):
            hint = "run again; if it happens often, ask for the file to be written elsewhere and moved here"
            raise SourceUnavailableError(f"{self.name} changed while we read it", hint=hint)

    def whole(self, rows: Iterator[T]) -> Iterator[T]:
        """Yield the rows; raises as `detect_change`."""
        with self.detect_change():
            yield from rows


@contextmanager
def opened(open_stored: OpenStored, member: str = "", *, unpacks: bool = True) -> Iterator[OpenedFile]:
    """Open a file and unpack it: gzip, bzip2, xz or a zip archive.

    `member`: the file of an archive, as a pattern such as `*/events.csv`; "" for its only one. Without `unpacks` only the
    member is extracted from its archive, into a temporary file.

    Raises:
        SourceRefusedError: it does not exist, is not a file, or may not be read.
        SourceUnavailableError: the server or the disk did not answer.
        BadSourceError: it is damaged, or an archive in which `member` does not match exactly one file.
    """
    with ExitStack() as stack:
        stored = stack.enter_context(open_stored())
        stack.enter_context(cut_off_is_passing(stored.name, has_known_end=stored.has_known_end))
        before = os.fstat(stored.stream.fileno())
        raw = _unpacked(stored.stream, stored.name, member, stack) if unpacks or member else None
        has_known_end = stored.has_known_end or not unpacks or raw is not None
        raw = raw or _CheckedStream(stored.stream, stored.name)
        stream: BinaryIO = stack.enter_context(io.BufferedReader(raw, _BUFFER_BYTES))
        if member and not unpacks:
            stream = stack.enter_context(_copied(stream))
        yield OpenedFile(stream, raw.name, stored.stamp, has_known_end, before.st_size, stored.stream, before.st_mtime_ns)


def _unpacked(stored: BinaryIO, name: str, member: str, stack: ExitStack) -> _CheckedStream | None:
    """Return the unpacked stream of a stored file, None if it is not packed or is a workbook."""
    with as_bad_source(lambda: name, "the file cannot be read"):
        head = stored.read(6)
        stored.seek(0)
    size = os.fstat(stored.fileno()).st_size
    if head.startswith(b"PK\x03\x04"):
        stream = _one_member(stack.enter_context(opened_archive(stored, name)), name, member, size)
        stored.seek(0)
        return stream
    begin = next((begin for magic, begin in _BY_HEAD.items() if head.startswith(magic)), None)
    return UnpackedStream(stored, begin, name, size) if begin else None


@contextmanager
def sent_unpacked(stream: BinaryIO, name: str, encoding: str) -> Iterator[tuple[BinaryIO, bool]]:
    """Yield a stream with the server's `Content-Encoding` undone, in a temporary file if there was one; and whether there was.

    Raises:
        BadSourceError: it has an encoding that was not requested, is damaged, or unpacks to too much.
    """
    stream.seek(0)
    coding = encoding.strip().lower()
    if coding not in {"", "identity", "gzip", "x-gzip"}:
        message = f'the server sends it packed as "{coding}", which it was not asked for'
        raise BadSourceError(name, message, hint="ask the partner to send the file as it is, or packed with gzip")
    is_packed = coding.endswith("gzip") and stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if not is_packed:
        yield stream, False
        return
    packed = UnpackedStream(stream, _inflate, name, os.fstat(stream.fileno()).st_size)
    with io.BufferedReader(packed, _BUFFER_BYTES) as unpacking, _copied(unpacking) as plain:
        yield plain, True


@contextmanager
def _copied(stream: BinaryIO) -> Iterator[BinaryIO]:
    with TemporaryFile(prefix="eventsync-") as plain:
        shutil.copyfileobj(stream, plain)
        plain.seek(0)
        yield plain


class _Archive:
    """A stored zip archive for `zipfile`, which reads the whole directory at once; a directory that is too large is refused."""

    def __init__(self, stored: BinaryIO, name: str) -> None:
        self._stored = stored
        self._name = name
        self.seek, self.tell, self.seekable = stored.seek, stored.tell, stored.seekable

    def read(self, size: int = -1) -> bytes:
        if size > MOST_DIRECTORY:
            message = f"the archive's directory is larger than {MOST_DIRECTORY // 2**20} million bytes"
            raise BadSourceError(self._name, message, hint="ask for an archive with the needed files only")
        return self._stored.read(size)


def opened_archive(stored: BinaryIO, name: str) -> zipfile.ZipFile:
    """Open a file as a zip archive.

    Raises:
        BadSourceError: it is not one, or is damaged.
    """
    with as_bad_source(lambda: name, "the zip archive is damaged or cut off", is_end=True):
        return zipfile.ZipFile(_Archive(stored, name))


def opened_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, stored_bytes: int) -> _CheckedStream:
    """Return the unpacked bytes of an archive's member; `name` is for people, `stored_bytes` as for `UnpackedStream`.

    Raises:
        BadSourceError: its entry is damaged, or it is packed or encrypted in an unsupported way.
    """
    if member.flag_bits & 1:
        raise BadSourceError(name, "the archive is locked with a password", hint="ask for it without one")
    if member.compress_type == zipfile.ZIP_STORED:
        with as_bad_source(lambda: name, _DAMAGED):
            return _CheckedStream(archive.open(member), name)
    if member.compress_type != zipfile.ZIP_DEFLATED:
        method = _METHODS.get(member.compress_type, f"method {member.compress_type}")
        hint = "ask for an archive packed with deflate, as every program can write it"
        raise BadSourceError(name, f"its archive packs it with {method}, which eventsync does not unpack", hint=hint)
    packed = copy.copy(member)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, member.compress_size
    packed.CRC = None  # type: ignore[assignment] # `zipfile` then checks no sum: it is that of the unpacked bytes
    with as_bad_source(lambda: name, _DAMAGED):
        return UnpackedStream(archive.open(packed), partial(_inflate, -zlib.MAX_WBITS), name, stored_bytes, member)


def _one_member(archive: zipfile.ZipFile, name: str, pattern: str, stored_bytes: int) -> _CheckedStream | None:
    """Return the member of the archive that `pattern` selects, None if the archive is a workbook."""
    if "[Content_Types].xml" in archive.NameToInfo:
        return None
    if not pattern:
        refuse_other_archives(archive.NameToInfo, name)
    # Not `is_dir`, which fails on a member without a name before Python 3.12.
    files = (member for member in archive.infolist() if not member.filename.endswith("/"))
    members = [member for member in files if not member.filename.startswith("__MACOSX/")]
    meant = [member for member in members if not pattern or fnmatch.fnmatchcase(member.filename, pattern)]
    if len(meant) == 1:
        return opened_member(archive, meant[0], f"{name}/{meant[0].filename[:_LONGEST_SHOWN]}", stored_bytes)
    shown = ", ".join(member.filename[:_LONGEST_SHOWN] for member in (meant or members)[:_MOST_SHOWN])
    message, hint = f"the archive holds {len(members)} files: {shown}", 'name the one that is meant: `member: "*/events.csv"`'
    if pattern and meant:
        message, hint = f'{len(meant)} files of the archive match "{pattern}": {shown}', "make `member` match one of them only"
    elif pattern:
        message, hint = f'no file of the archive matches "{pattern}"; it holds {shown or "none"}', "check `member`"
    raise BadSourceError(name, message, hint=hint)


class Decompressor:
    """The interface of Python's decompressors. Most report what they need; zlib's keeps the rest of its input in
    `unconsumed_tail`.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def needs_input(self) -> bool:
        return not self.inner.unconsumed_tail if hasattr(self.inner, "unconsumed_tail") else bool(self.inner.needs_input)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return bytes(self.inner.decompress(getattr(self.inner, "unconsumed_tail", b"") + data, max_length))


def _inflate(wbits: int = zlib.MAX_WBITS + 16) -> Decompressor:
    return Decompressor(zlib.decompressobj(wbits))


def _bzip2() -> Decompressor:
    return Decompressor(bz2.BZ2Decompressor())


def _xz() -> Decompressor:
    return Decompressor(lzma.LZMADecompressor(lzma.FORMAT_XZ, _WINDOW_AND_STATE))


_BY_HEAD = {b"\x1f\x8b": _inflate, b"BZh": _bzip2, b"\xfd7zXZ\x00": _xz}


class _CheckedStream(io.RawIOBase):
    """A stream whose read errors are those of `connectors.sources.contract`, including failures of the disk."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        super().__init__()
        self._stream = stream
        self.name = name

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether the stream can seek."""
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset."""
        with as_bad_source(lambda: self.name, _DAMAGED):
            return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the current offset."""
        return self._stream.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # the only buffer that io hands in
        """Fill the buffer.

        Raises:
            BadSourceError: the file is damaged, or unpacks to too much.
        """
        with as_bad_source(lambda: self.name, _DAMAGED):
            chunk = self._chunk(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def _chunk(self, size: int) -> bytes:
        return self._stream.read(size)

    def close(self) -> None:
        """Close this stream and the packed one."""
        self._stream.close()
        super().close()


class UnpackedStream(_CheckedStream):
    """The unpacked bytes of a packed stream; `begin` creates the decompressor of each of its parts.

    `stored_bytes`: the size of the received file, which also limits archives inside archives. `member`: the entry of a zip
    archive with the expected size and checksum.
    """

    def __init__(
        self,
        packed: IO[bytes],
        begin: Callable[[], Decompressor],
        name: str,
        stored_bytes: int,
        member: zipfile.ZipInfo | None = None,
    ) -> None:
        super().__init__(packed, name)
        self._begin = begin
        self._stored_bytes = stored_bytes
        self._member = member
        self._restart()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset from the start: forward by unpacking, back by unpacking from the start again."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("packed bytes are read from their start")
        if offset < self._given:
            super().seek(0)
            self._restart()
        while self._given < offset and self.read(min(offset - self._given, _BUFFER_BYTES)):
            pass
        return self._given

    def tell(self) -> int:
        """Return the number of bytes unpacked so far."""
        return self._given

    def _restart(self) -> None:
        self._decompressor: Decompressor | None = self._begin()
        self._rest = b""
        self._given = self._taken = self._checksum = 0

    def _chunk(self, size: int) -> bytes:
        chunk = b""
        while not chunk and (decompressor := self._decompressor) is not None:
            if decompressor.inner.eof:
                self._next_part(decompressor.inner.unused_data)
                continue
            data = (self._rest or self._read()) if decompressor.needs_input else b""
            self._rest = b""
            is_end = decompressor.needs_input and not data
            chunk = self._decompressed(decompressor, data, size)
            if is_end and not chunk and not decompressor.inner.eof:
                raise EOFError
        self._given += len(chunk)
        if self._member is not None:
            self._checksum = zlib.crc32(chunk, self._checksum)
        most = max(HARMLESS_BYTES, min(self._taken, self._stored_bytes) * MOST_RATIO)
        if self._given > most:
            message = f"unpacks to more than {most // 2**20} million bytes, {MOST_RATIO} times its size"
            raise BadSourceError(self.name, message, hint="no table of text does: is this the right file?")
        return chunk

    def _read(self) -> bytes:
        data = self._stream.read(_BUFFER_BYTES)
        self._taken += len(data)
        return data

    def _decompressed(self, decompressor: Decompressor, data: bytes, size: int) -> bytes:
        try:
            return decompressor.decompress(data, size)
        except lzma.LZMAError as error:
            if "memory" not in str(error).casefold():
                raise
            message = f"it takes more than {MOST_WINDOW // 2**20} MB of memory to unpack"
            hint = "ask for it packed with a smaller dictionary, or with gzip"
            raise BadSourceError(self.name, message, hint=hint) from error

    def _next_part(self, unused: bytes) -> None:
        """Start the next part; zeros between two parts are padding (RFC 1952, the .xz format)."""
        if self._member is not None:
            self._decompressor = None
            if (self._given, self._checksum) != (self._member.file_size, self._member.CRC):
                raise zipfile.BadZipFile("size or checksum differ")
            return
        self._rest = unused.lstrip(b"\0")
        while not self._rest and (data := self._read()):
            self._rest = data.lstrip(b"\0")
        self._decompressor = self._begin() if self._rest else None


def digest_of(stream: BinaryIO) -> str:
    """Return the digest of a stream's bytes as a stamp; the stream is rewound."""
    stream.seek(0)
    digest = hashlib.blake2b(digest_size=16)
    for chunk in iter(partial(stream.read, _CHUNK_BYTES), b""):
        digest.update(chunk)
    stream.seek(0)
    return f"blake2b={digest.hexdigest()}"


@contextmanager
def as_bad_source(
    place: Callable[[], str], what: str, *, hint: str = "ask the partner for the whole file", is_end: bool = False
) -> Iterator[None]:
    """Convert exceptions of readers in the block to errors of the source with a place; `what` says what cannot be read.

    `is_end`: all bytes have been read, so that any error means that the content is cut off.

    Raises:
        BadSourceError: the bytes are damaged, `CutOffError` if they end too early.
        SourceUnavailableError: the disk failed.
    """
    try:
        yield
    except _DAMAGE as error:
        # The disk's own errors have a number, those of Python's readers have none; a seek to a damaged offset is invalid.
        if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
            raise  # of the temporary folder: the source is not to blame
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise SourceUnavailableError(f"{place()} broke off: {error.strerror}", hint="run again later") from error
        kind = CutOffError if is_end or isinstance(error, EOFError) else BadSourceError
        raise kind(place(), f"{what}{_reason(error)}", hint=hint) from error


@contextmanager
def cut_off_is_passing(name: str, *, has_known_end: bool) -> Iterator[None]:
    """Convert `CutOffError` to a transient error if it is not proved that the content is complete.

    Raises:
        SourceUnavailableError: instead of `CutOffError`.
    """
    try:
        yield
    except CutOffError as error:
        if has_known_end:
            raise
        message = f"{error}; the server of {name} does not say how long it is, so the answer may have been cut off"
        raise SourceUnavailableError(message, hint="run again later, or ask that the server send its length") from error


def _reason(error: BaseException) -> str:
    match error:
        case expat.ExpatError():
            return f": {expat.errors.messages.get(error.code, str(error.code))}"
        case UnicodeDecodeError():
            return f" ({error.reason})"
        case UnicodeError():
            return f" ({error})"
        case _:
            return ""


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
