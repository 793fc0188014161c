"""Files on other machines as kinds of source: on the web, on an SFTP server, in a bucket; all of them on this one."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiobotocore.session import AioSession
from contract.source_kinds import Grid, Kind, Stand
from fsspec.config import conf
from lookalikes.bucket_files import bucket_server
from lookalikes.sftp_files import PASSWORD, sftp_server
from lookalikes.web_files import web_server

from connectors.sources.contract import NO_ACCESS, Access
from mappings.spec.source import CsvSource, SourceSpec
from mappings.spec.source_words import without_secrets

_TOKEN = "hush-hush-token"
_OLD_S = 1_700_000_000


def _csv(grid: Grid) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(grid)
    return text.getvalue().encode()


@dataclass
class FarStand:
    """The stand of one file elsewhere; `address` is what the mapping file says, `edits` counts what was put there."""

    base: Path
    address: str
    port: int
    secrets: Sequence[str]
    store: Callable[[bytes, int], object]
    stored: Callable[[], bytes]
    take_away: Callable[[], object]
    environment: Mapping[str, str] = field(default_factory=dict)
    access: Access = NO_ACCESS
    edits: int = 0
    written: bytes | None = None

    @property
    def place(self) -> str:
        return without_secrets(self.address).partition("?")[0]

    def put(self, grid: Grid) -> SourceSpec:
        content = _csv(grid)
        self.edits += content != self.written
        self.written = content
        self.store(content, self.edits)
        return CsvSource(kind="csv", path=self.address)

    def break_off(self) -> None:
        content = self.stored()
        self.store(content[: len(content) // 2], self.edits)


@contextmanager
def _let_in(scheme: str, how: Mapping[str, object]) -> Iterator[None]:
    """Tell the driver of a scheme how to be let in, as the environment does (`FSSPEC_SFTP_KNOWN_HOSTS`)."""
    before = conf.get(scheme)
    conf[scheme] = dict(how)
    try:
        yield
    finally:
        conf.pop(scheme)
        if before is not None:
            conf[scheme] = before


def _on_the_web(*, packed: bool) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        with web_server() as web:

            def store(content: bytes, _edits: int) -> None:
                sent = gzip.compress(content, mtime=0) if packed else content
                web.put("/events.csv", sent, headers={"Content-Encoding": "gzip"} if packed else {})

            def stored() -> bytes:
                content = web.files["/events.csv"].content
                return gzip.decompress(content) if packed else content

            address = web.address(f"/events.csv?token={_TOKEN}", user=f"anna:{PASSWORD}")
            yield FarStand(base, address, web.port, (_TOKEN, PASSWORD), store, stored, web.files.clear)

    return stand


def _on_sftp(name: str) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        (base / "far").mkdir()
        with sftp_server(base / "far") as sftp, _let_in("sftp", {"known_hosts": str(sftp.known_hosts)}):
            (sftp.root / "in").mkdir()
            path = sftp.root / "in" / "events.csv"

            def store(content: bytes, edits: int) -> None:
                path.write_bytes(content)
                os.utime(path, (_OLD_S + edits, _OLD_S + edits))

            environment = {"FSSPEC_SFTP_KNOWN_HOSTS": str(sftp.known_hosts)}
            address = sftp.address(f"/in/{name}")
            yield FarStand(base, address, sftp.port, (PASSWORD,), store, path.read_bytes, path.unlink, environment)

    return stand


_SESSION: list[AioSession] = []


@contextmanager
def _in_a_bucket(base: Path) -> Iterator[Stand]:
    # The driver reads the descriptions of all of Amazon's services for each session: a second that one may share.
    _SESSION.extend([AioSession()] if not _SESSION else [])
    secret = "s3cret-word-of-ours"
    with bucket_server() as bucket:
        how = {"endpoint_url": bucket.url, "key": "AKIAPARTNER", "secret": secret}
        environment = {f"FSSPEC_S3_{name.upper()}": text for name, text in how.items()}

        def store(content: bytes, _edits: int) -> None:
            bucket.objects["in/events.csv"] = content

        with _let_in("s3", {**how, "session": _SESSION[0]}):
            address, stored = bucket.address("in/events.csv"), lambda: bucket.objects["in/events.csv"]
            yield FarStand(base, address, bucket.port, (secret,), store, stored, bucket.objects.clear, environment)


FAR_FILE_KINDS = [
    Kind("csv on the web", _on_the_web(packed=False), is_measured=False, knows_versions=True),
    Kind("csv on the web, packed for the way", _on_the_web(packed=True), is_measured=False, knows_versions=True),
    Kind("csv on an SFTP server", _on_sftp("events.csv"), is_measured=False, knows_versions=True, is_dear=True),
    Kind("csv files on an SFTP server", _on_sftp("ev*.csv"), is_measured=False, knows_versions=True, is_dear=True),
    Kind("csv in a bucket", _in_a_bucket, is_measured=False, knows_versions=True, is_dear=True),
]
