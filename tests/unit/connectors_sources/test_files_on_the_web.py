"""Files on the web, asked of a real HTTP server on the loopback interface: as servers are, and as they should not be."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from lookalikes.web_files import Web, answering, breaking_after, chunked, untold, web_server
from unit.connectors_sources.reading import Waits, assert_untold, far_source, read_far, rows_of

from connectors.sources.contract import BadSourceError, Ending, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.web import FetchLimits, RedirectHop, WebFiles
from mappings.errors import SyncError

_ROWS = "id,text\n1,x\n"
_LONG = "id,text\n" + "1,x\n" * 3_000
NO_VERSION: dict[str, Any] = {"etag": "", "changed_at": None}
_SECRET = "http://user:s3cret-word@127.0.0.1:{port}/agenda.csv?token=hush-hush"


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as served:
        served.put("/agenda.csv", _ROWS)
        yield served


@pytest.mark.parametrize(("path", "place"), [("/export/agenda.csv?token=hush-hush", "agenda.csv:2"), ("/?id=7", "127.0.0.1:2")])
def test_rows_are_named_after_the_file_or_after_the_host(web: Web, path: str, place: str) -> None:
    web.put(path.partition("?")[0], _ROWS)
    assert read_far(web.address(path))[0] == [[place, "1", "x"]]


def test_the_stamp_is_what_the_server_says_of_the_version_or_made_of_the_bytes(web: Web) -> None:
    digest = hashlib.blake2b(_ROWS.encode(), digest_size=16).hexdigest()
    for how, stamp in (({"etag": '"v1"'}, 'ETag="v1"'), ({"etag": ""}, "Last-Modified=.+"), (NO_VERSION, f"blake2b={digest}")):
        web.put("/agenda.csv", _ROWS, **how)
        with far_source(web.address("/agenda.csv")).read() as reading:
            assert re.fullmatch(stamp, reading.stamp)


def test_a_server_that_refuses_head_still_gives_the_file(web: Web) -> None:
    web.is_head_allowed = False
    for files in ("all", "new"):
        assert len(read_far(web.address("/agenda.csv"), files=files)[0]) == 1


def test_redirects_are_followed_with_the_password_and_rows_keep_the_name_of_the_feed_s_own_address(web: Web) -> None:
    web.put("/cdn/8f2a", _ROWS)
    moved = answering(302, {"Location": "/cdn/8f2a"})
    web.instead = lambda request: request.path == "/agenda.csv" and moved(request)
    assert read_far(web.address("/agenda.csv", user="anna:p%40ss"))[0][0][0] == "agenda.csv:2"
    assert [asked.headers["authorization"] for asked in web.asked] == ["Basic YW5uYTpwQHNz"] * 2


@pytest.mark.parametrize("how", [{}, {"etag": ""}])
def test_an_unchanged_file_costs_one_request_without_a_body(web: Web, how: dict[str, Any]) -> None:
    web.put("/agenda.csv", _ROWS, **how)
    _, _, first = read_far(web.address("/agenda.csv"))
    web.asked.clear()
    unchanged = Ending(first.cursor, ("agenda.csv has not changed since it was last read",))
    assert read_far(web.address("/agenda.csv"), since=first.cursor) == ([], False, unchanged)
    (asked,) = web.asked
    assert {"if-none-match", "if-modified-since"}.intersection(asked.headers)
    web.put("/agenda.csv", "id,text\n2,y\n", changed_at=1_700_000_100.0, **how)
    rows, is_whole, third = read_far(web.address("/agenda.csv"), since=first.cursor)
    assert ([row[1] for row in rows], is_whole) == (["2"], True)
    assert third.cursor != first.cursor


def test_a_server_that_does_not_hear_conditions_is_believed_by_its_version(web: Web) -> None:
    _, _, first = read_far(web.address("/agenda.csv"))
    web.instead = answering(200, {"ETag": first.cursor.removeprefix("ETag=")}, b"never read")
    assert read_far(web.address("/agenda.csv"), since=first.cursor)[1] is False


def test_a_file_that_changed_a_moment_ago_has_no_cursor_as_another_change_may_bear_the_same_second(web: Web) -> None:
    web.put("/agenda.csv", _ROWS, etag="", changed_at=4_000_000_000.0)
    assert read_far(web.address("/agenda.csv"))[2].cursor == ""


def test_a_file_is_asked_for_packed_and_unpacked_whatever_its_format(web: Web) -> None:
    for content in (gzip.compress(_ROWS.encode()), _ROWS):  # the second is not packed although its server says so
        web.put("/agenda.csv", content, headers=PACKED)
        assert read_far(web.address("/agenda.csv"))[0] == [["agenda.csv:2", "1", "x"]]
    assert web.asked[0].headers["accept-encoding"] == "gzip"


def test_a_broken_download_begins_anew(web: Web) -> None:
    web.put("/agenda.csv", _LONG)
    web.instead, waits = breaking_after(4_000, 10), Waits()
    assert len(read_far(web.address("/agenda.csv"), waits)[0]) == 3_000
    assert (len(web.asked), waits.slept) == (3, [0.5, 1.0])


_MANY = "id,text\n" + "".join(f'{number},"row ""{number}"" of the list"\n' for number in range(2_000))
_NO_END = _MANY.rstrip("\n").encode()
PACKED = {"Content-Encoding": "gzip"}
_LINES = "".join(f'{{"id": "{number}"}}\n' for number in range(2_000))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("csv", _MANY[: len(_MANY) // 3]),
        ("csv", _MANY[: _MANY.index('""900') + 1]),
        ("csv", _MANY.rstrip("\n")),
        ("csv", 'id,text\n1,"two\nlines\n'),
        ("csv", "id,te"),
        ("tsv", "id\ttext\n1\tx\n2"),
        ("ndjson", _LINES[: len(_LINES) // 3]),
        ("ndjson", _LINES.rstrip("\n")),
        ("json", '[{"id": "1"}, {"id": "2"}'),
        ("json", '[{"id": "1"}, {"id": "2'),
        ("xml", "<a><event><id>1</id></event><event>"),
        ("ics", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:1\nEND:VEVENT\n"),
        ("csv", gzip.compress(_MANY.encode())[:-500]),
    ],
)
def test_an_answer_of_unknown_length_that_ends_within_a_record_may_be_cut_off(web: Web, kind: str, body: str | bytes) -> None:
    web.instead = untold(body.encode() if isinstance(body, str) else body)
    spec = {"xml": {"records": "event"}}.get(kind, {})
    with pytest.raises(SourceUnavailableError, match=r"agenda.*cut off"):
        rows_of(Path(), kind=kind, path=web.address("/agenda.file"), **spec)


def test_a_file_packed_for_the_way_that_breaks_off_may_be_cut_off(web: Web) -> None:
    whole = gzip.compress(_MANY.encode())
    for end in (-1, -500, 2):
        web.instead = untold(whole[:end], PACKED)
        with pytest.raises(SourceUnavailableError, match="cut off"):
            read_far(web.address("/agenda.csv"))
    web.instead = answering(200, PACKED, whole[:-500])
    with pytest.raises(BadSourceError, match="damaged or cut off"):
        read_far(web.address("/agenda.csv"))


@pytest.mark.parametrize(
    "answer",
    [
        *(untold(_MANY.encode()), chunked(_NO_END), answering(200, {}, _NO_END)),
        *(untold(gzip.compress(content), headers) for content in (_MANY.encode(), _NO_END) for headers in ({}, PACKED)),
    ],
)
def test_a_file_is_whole_that_ends_with_a_line_or_whose_length_is_known(web: Web, answer: Any) -> None:
    web.instead = answer
    assert len(read_far(web.address("/agenda.csv"))[0]) == 2_000


LATER, NO = SourceUnavailableError, SourceRefusedError
NO_FILE: dict[str, tuple[Callable[[BaseHTTPRequestHandler], bool] | None, type[SyncError], str, int]] = {
    "no server": (None, LATER, "", 0),
    **{f"{status}": (answering(status), NO, f"{status}", 1) for status in (400, 401, 403, 404, 410)},
    "another packing": (answering(200, {"Content-Encoding": "br"}, _ROWS.encode()), BadSourceError, 'packed as "br"', 1),
    "it always breaks off": (breaking_after(3, *[0] * 50), LATER, "could not be fetched.*run again later", 4),
    "a circle": (answering(302, {"Location": "/agenda.csv"}), NO, "in a circle", 6),
    "nowhere": (answering(302), NO, "without an address", 1),
    "by FTP": (answering(302, {"Location": "ftp://127.0.0.1/a.csv"}), NO, "not a web address", 1),
    "a file of ours": (answering(302, {"Location": "file:///etc/passwd"}), NO, "not a web address", 1),
}


@pytest.mark.parametrize("what", NO_FILE)
def test_what_is_no_file_gives_no_rows_and_its_error_no_secrets(web: Web, what: str, caplog: pytest.LogCaptureFixture) -> None:
    instead, error, said, requests = NO_FILE[what]
    web.instead = instead or web.instead
    address = _SECRET.format(port=web.port if instead else 9)
    with caplog.at_level(logging.DEBUG), pytest.raises(error) as caught:
        read_far(address)
    assert re.search(said, f"{caught.value} {caught.value.hint}")
    assert "agenda.csv" in str(caught.value)
    assert_untold(caught.value, "s3cret-word", "hush-hush", also=caplog.text + repr(far_source(address)))
    assert len(web.asked) == requests


@pytest.mark.parametrize("status", [202, 408, 425, 429, 500, 502, 503])
def test_a_server_in_trouble_is_asked_again_and_then_worth_another_run_when_it_says(web: Web, status: int) -> None:
    for pause_s, slept in ((20, [20, 20, 20]), (3600, [])):  # a longer pause than a run can wait is the next run's
        web.instead = answering(status, {"Retry-After": str(pause_s)})
        waits = Waits()
        with pytest.raises(SourceUnavailableError, match=str(status)) as caught:
            read_far(web.address("/agenda.csv"), waits)
        assert (caught.value.retry_after_s, waits.slept) == (pause_s, slept)


def test_a_redirect_from_https_to_http_is_refused() -> None:
    own = httpx.URL("https://feed.example/agenda.csv")
    with pytest.raises(SourceRefusedError, match="which is not encrypted"):
        RedirectHop(own, own).after(httpx.Response(302, headers={"location": "http://feed.example/agenda.csv"}))


def _endless(head: bytes, piece: bytes) -> Callable[[BaseHTTPRequestHandler], bool]:
    """Return what says the head, and then the piece for ever."""

    def answer(request: BaseHTTPRequestHandler) -> bool:
        request.close_connection = True
        with suppress(OSError):
            request.wfile.write(head)
            while True:
                request.wfile.write(piece)
        return True

    return answer


HEAD = b"HTTP/1.1 200 OK\r\n"
FAST = b"1,x\n" * 16_384


@pytest.mark.parametrize(
    ("piece", "header", "tick_s", "said"),
    [
        (FAST, b"", 0.0, ""),
        *((FAST, b"Content-Length: %b\r\n" % announced, 0.0, "") for announced in (b"10737418240", b"garbage", b"-1")),
        (b"x", b"", 45.0, "was not there after 3600 s"),
    ],
)
def test_a_file_that_never_ends_or_drips_is_given_up(web: Web, piece: bytes, header: bytes, tick_s: float, said: str) -> None:
    web.instead = _endless(HEAD + header + b"Connection: close\r\n\r\n", piece)
    files = WebFiles(FetchLimits(largest=4 * 2**20, clock=Waits(tick_s=tick_s).clockwork))
    refusal = pytest.raises(LATER if said else (NO, LATER), match=said or "larger than 4 million bytes|could not be fetched")
    with refusal, files.open(web.address("/agenda.csv")):
        pytest.fail("it came")


def test_a_server_that_says_nothing_is_not_waited_for_without_end(web: Web) -> None:
    web.instead = lambda request: not request.connection.recv(1)
    files = WebFiles(FetchLimits(silence_s=0.05, clock=Waits().clockwork))
    with pytest.raises(SourceUnavailableError, match="it fell silent"), files.open(web.address("/agenda.csv")):
        pytest.fail("it came")


def test_a_young_file_is_looked_at_again_and_none_is_read_while_it_changes(web: Web) -> None:
    waits, young = Waits(), {"changed_at": 1_799_999_990.0}
    web.put("/agenda.csv", _ROWS, **young)
    assert len(read_far(web.address("/agenda.csv"), waits, settle="30s")[0]) == 1
    web.put("/agenda.csv", _ROWS)
    assert len(read_far(web.address("/agenda.csv"), waits, settle="30s")[0]) == 1
    assert waits.slept == [30.0]
    grown = itertools.count()

    def grow(_: BaseHTTPRequestHandler) -> bool:
        web.put("/agenda.csv", _ROWS + "2,y\n" * next(grown), **young)
        return False

    web.instead = grow
    with pytest.raises(SourceUnavailableError, match=r"agenda\.csv is still being written: it changed less than 30 s ago"):
        read_far(web.address("/agenda.csv"), settle="30s")


def test_files_of_several_days_are_fetched_once_each_and_the_newest_may_be_meant(web: Web) -> None:
    days = ["20270113", "20270114"]
    for day in days:
        web.put(f"/agenda_{day}.csv", f"id\n{day}\n")
    assert [row[1] for row in read_far(web.address("/agenda_{date}.csv"))[0]] == days
    fetched = Counter(asked.path for asked in web.asked if asked.method == "GET")
    assert [fetched[f"/agenda_{day}.csv"] for day in days] == [1, 1]
    assert [row[1] for row in read_far(web.address("/agenda_{date}.csv"), files="newest")[0]] == days[1:]
    with pytest.raises(SourceRefusedError, match="no file matches"):
        read_far(web.address("/agenda_{date:%d%m%y}.csv"))
