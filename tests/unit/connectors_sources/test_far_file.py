"""Files on other machines, asked of a real HTTP server on the loopback interface."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from connectors.sources.catalogue import open_source
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from mappings.file_names import without_secrets
from mappings.source_specs import CsvSource

_SECRET = "http://user:s3cret@127.0.0.1:{port}/agenda.csv?token=hush"


def assert_untold(error: Exception) -> None:
    told = "".join(line for line in traceback.format_exception(error) if not line.startswith("  File"))
    assert "agenda.csv" in told
    assert "s3cret" not in told
    assert "hush" not in told


@dataclass
class Partner:
    """A partner's web server: what it answers next, and where it is."""

    port: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"id,text\n1,x\n"
    promised: int | None = None
    is_head_allowed: bool = True

    def address(self, path: str = "/agenda.csv") -> str:
        return f"http://user:secret@127.0.0.1:{self.port}{path}"


@pytest.fixture
def partner() -> Iterator[Partner]:
    says = Partner()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(says.status if says.is_head_allowed else 405)

        def do_GET(self) -> None:
            self._answer(says.status)
            self.wfile.write(says.body)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(says.promised or len(says.body)))
            for name, value in says.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        says.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield says
        server.shutdown()
        thread.join()


def read(address: str, **spec: object) -> tuple[list[dict[str, str]], str, list[str]]:
    source = open_source(CsvSource.model_validate({"kind": "csv", "path": address, **spec}), Path("/nowhere"), frozenset())
    with source.read() as reading:
        rows = list(reading.rows)
        return [dict(row.cells) for row in rows], reading.stamp, [str(row.origin) for row in rows]


def test_a_file_is_fetched_and_its_rows_named_after_it(partner: Partner) -> None:
    cells, stamp, places = read(partner.address("/export/agenda.csv?token=hush"))
    assert (cells, places) == ([{"id": "1", "text": "x"}], ["agenda.csv:2"])
    assert stamp == f"blake2b={hashlib.blake2b(partner.body, digest_size=16).hexdigest()}"


def test_rows_of_an_address_without_a_file_name_are_named_after_the_host(partner: Partner) -> None:
    assert read(partner.address("/?id=7"))[2] == ["127.0.0.1:2"]


@pytest.mark.parametrize("header", ["ETag", "Last-Modified"])
def test_the_stamp_is_what_the_server_says_of_the_version(partner: Partner, header: str) -> None:
    partner.headers = {header: '"v1"'}
    assert read(partner.address())[1] == f'{header}="v1"'


def test_a_server_that_refuses_head_still_gives_the_file(partner: Partner) -> None:
    partner.is_head_allowed = False
    assert read(partner.address())[0] == [{"id": "1", "text": "x"}]


def test_several_encodings_are_tried_on_one_download(partner: Partner) -> None:
    partner.body = "id,text\n1,café\n".encode("windows-1252")
    assert read(partner.address(), encoding=["utf-8", "windows-1252"])[0] == [{"id": "1", "text": "café"}]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_definite_no_is_a_refusal_that_tells_no_secrets(partner: Partner, status: int) -> None:
    partner.status = status
    with pytest.raises(SourceRefusedError) as caught:
        read(_SECRET.format(port=partner.port))
    assert_untold(caught.value)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_a_server_in_trouble_is_worth_another_try_when_it_says(partner: Partner, status: int) -> None:
    partner.status, partner.headers = status, {"Retry-After": "30"}
    with pytest.raises(SourceUnavailableError, match=str(status)) as caught:
        read(partner.address())
    assert caught.value.retry_after_s == 30


def test_a_download_that_breaks_off_gives_no_rows_at_all(partner: Partner) -> None:
    partner.promised = 1_000
    with pytest.raises(SourceUnavailableError):
        read(partner.address())


def test_a_server_that_is_down_is_unavailable_and_its_secrets_stay_untold() -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        read(_SECRET.format(port=9))
    assert_untold(caught.value)


@pytest.mark.parametrize("address", ["gopher://host/a.csv", "file:///nowhere/a.csv", "memory://nowhere.csv"])
def test_an_address_that_nothing_can_open_is_refused(address: str) -> None:
    with pytest.raises(SourceRefusedError):
        read(address)


def test_any_address_that_fsspec_knows_will_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    assert read((tmp_path / "a.csv").as_uri())[0] == [{"id": "1", "text": "x"}]


def test_addresses_are_shown_without_their_secrets() -> None:
    assert without_secrets("https://u:p@host:8/a/b.csv?key=k#f") == "https://host:8/a/b.csv?…"
