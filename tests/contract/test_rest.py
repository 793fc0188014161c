"""What a paginated API must survive: no short read is ever called whole, and secrets stay with their host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from contract.source_kinds import in_no_time
from lookalikes.rest_api import PAGERS, Api, Fault, Request, cutting, cutting_without_length, dropping, rest_api, saying
from pydantic import SecretStr, TypeAdapter, ValidationError

from connectors.masking import Mask
from connectors.sources.catalogue import open_source, probe_source
from connectors.sources.contract import Access, BadSourceError, Ending, SourceRefusedError, SourceUnavailableError
from mappings.errors import SyncError
from mappings.outcome import SourceRow
from mappings.spec.source import RestSource, SourceSpec

SPEC: TypeAdapter[Any] = TypeAdapter(SourceSpec)
RECORDS = [{"ref": str(number), "price": 2.5} for number in range(1, 6)]
SECRETS = {"REST_EXAMPLE": SecretStr("token-of-ours-1"), "REST_USER": SecretStr("anna:pass-of-ours-2")}
HTML = "<!DOCTYPE html><html><body>Please log in</body></html>"
every_pager = pytest.mark.parametrize("pager", PAGERS)


def spec_of(api: Api, pages: Mapping[str, Any] | None = None, **words: Any) -> RestSource:
    words = {"kind": "rest", "url": api.url, "records": "data.events", "pages": pages or PAGERS[api.pager]} | words
    return RestSource.model_validate(words)


def read(
    spec: RestSource, columns: Sequence[str] = ("ref",), since: str = "", access: Access | None = None
) -> tuple[list[SourceRow], bool, Ending]:
    access = access or Access(secrets=SECRETS)
    with open_source(spec, Path(), frozenset(columns), access=access, since=since, clock=in_no_time()).read() as reading:
        return list(reading.rows), reading.is_whole, reading.ending()


def refs(spec: RestSource, **how: Any) -> list[str]:
    return [row.cells["ref"] for row in read(spec, **how)[0]]


@pytest.fixture(params=PAGERS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with rest_api(request.param, records=RECORDS) as found:
        yield found


LASTING: Mapping[str, Fault] = {
    "an error in a good answer": saying(200, {"error": {"message": "try later"}}),
    "a page to log in": saying(200, HTML, Content_Type="text/html"),
    "500": saying(500, {}),
    "403": saying(403, {}),
    "429 with seconds": saying(429, {}, Retry_After="7"),
    "429 with a fraction": saying(429, {}, Retry_After="1.5"),
    "429 with a date": saying(429, {}, Retry_After="Sun, 03 May 2026 10:00:05 GMT", Date="Sun, 03 May 2026 10:00:00 GMT"),
    "429 with nonsense": saying(429, {}, Retry_After="soon"),
    "429 for longer than we wait": saying(429, {}, Retry_After="7200"),
    "429 without a word": saying(429, {}),
    "a cut body": cutting,
    "a cut body of no said length": cutting_without_length,
    "a dropped connection": dropping,
    "an error in words beside no records": saying(200, {"data": {"events": []}, "error": "quota", "paging": {"last": 3}}),
    "an error beside no records": saying(200, {"data": {"events": []}, "error": {"message": "quota"}, "paging": {"last": 3}}),
    "no records": saying(200, {"data": {"events": None}, "paging": {"last": 3}}),
    "no content": saying(204, ""),
}
PASSING = [name for name in LASTING if name not in {"403", "429 for longer than we wait", "no content"}]


@pytest.mark.parametrize("page", [0, 1, 2])
@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_lasts_at_any_page_is_an_error_and_never_fewer_rows(api: Api, fault: str, page: int) -> None:
    api.lasting[page] = LASTING[fault]
    with pytest.raises(SyncError) as caught:
        read(spec_of(api))
    assert caught.value.hint
    if page and fault in PASSING:
        assert isinstance(caught.value, SourceUnavailableError)


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_after_two_attempts_costs_no_row(api: Api, fault: str) -> None:
    api.faults[1] = [LASTING[fault]] * 2
    assert refs(spec_of(api)) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("totals", [[5, 4, 4], [5, 6, 6], [6, 6, 6], [4, 4, 4], [5, None, 5], [None, 5, 5]])
def test_a_total_that_changes_or_is_not_met_is_an_error(api: Api, totals: list[int | None]) -> None:
    def edit(page: int, document: dict[str, Any]) -> None:
        document["paging"]["total"] = totals[min(page, 2)]

    api.edit = edit
    with pytest.raises(SyncError):
        read(spec_of(api, {**PAGERS[api.pager], "total": "paging.total"}))


def test_a_page_that_leads_back_is_an_error(api: Api) -> None:
    def edit(page: int, document: dict[str, Any]) -> None:
        if page == 1:
            document["paging"] |= {"cursor": "0", "next": f"{api.url}?after=0"}
            document["data"]["events"] = RECORDS[:2] if api.pager in {"offset", "page"} else RECORDS[2:4]

    api.edit = edit
    if api.pager == "link":
        api.lasting[1] = saying(200, {"data": {"events": RECORDS[2:4]}}, Link=f'<{api.url}?after=0>; rel="next"')
        api.lasting[0] = saying(200, {"data": {"events": RECORDS[:2]}}, Link=f'<{api.url}?after=1>; rel="next"')
    with pytest.raises(BadSourceError, match="repeats one"):
        read(spec_of(api))


def test_a_page_that_comes_again_behind_ever_new_cursors_is_an_error() -> None:
    with rest_api() as api:
        api.answer = lambda _: (200, {"data": {"events": RECORDS[:2]}, "paging": {"cursor": str(len(api.asked))}})
        with pytest.raises(BadSourceError, match="page 2 repeats one"):
            read(spec_of(api))


def test_empty_pages_that_promise_more_for_ever_are_an_error() -> None:
    with rest_api("page", records=RECORDS) as api:
        api.edit = lambda _, document: document["paging"].update(more=True)
        with pytest.raises(BadSourceError, match="page 5 repeats one"):
            read(spec_of(api, {"page": "page", "more": "paging.more"}))
        assert len(api.asked) == 5


def test_a_link_may_have_several_relations_in_any_case() -> None:
    with rest_api("link", records=RECORDS) as api:
        api.lasting[0] = saying(200, {"data": {"events": RECORDS[:2]}}, Link=f'<{api.url}?after=1>; rel="Next last"')
        assert refs(spec_of(api)) == ["1", "2", "3", "4", "5"]


def test_a_refusal_beyond_the_last_page_says_how_to_name_it() -> None:
    with rest_api("page", records=RECORDS) as api:
        api.lasting[3] = saying(404, {"detail": "Invalid page."})
        with pytest.raises(SourceRefusedError, match="Invalid page") as caught:
            read(spec_of(api, {"page": "page"}))
        assert "`last`" in caught.value.hint
        api.lasting[0] = saying(404, {"detail": "Invalid page."})
        with pytest.raises(SourceRefusedError) as caught:
            read(spec_of(api, {"page": "page"}))
        assert "`source.url`" in caught.value.hint


def test_a_short_page_is_no_end_and_an_empty_one_is(api: Api) -> None:
    def edit(page: int, document: dict[str, Any]) -> None:
        if page == 1 and api.pager != "offset":
            del document["data"]["events"][1:]

    api.edit = edit
    assert refs(spec_of(api))[-1] == "5"
    api.records, api.edit = [], lambda _page, _document: None
    assert read(spec_of(api))[:2] == ([], True)


def test_a_total_ends_what_is_counted_and_more_decides_beside_a_cursor() -> None:
    for pages in ({"offset": "skip", "total": "paging.total"}, {"page": "page", "more": "paging.more"}, {"page": "page"}):
        with rest_api(next(iter(pages)), records=RECORDS) as api:
            assert len(refs(spec_of(api, pages))) == 5
    with rest_api(records=RECORDS) as api:
        pages = {**PAGERS["cursor"], "more": "paging.more"}
        assert len(refs(spec_of(api, pages))) == 5
        api.edit = lambda _, document: document["paging"].pop("cursor", None)
        with pytest.raises(SyncError, match="names none"):
            read(spec_of(api, pages))
        with pytest.raises(BadSourceError, match="neither true nor false"):
            read(spec_of(api, {**pages, "more": "paging.has_more"}))


@pytest.mark.parametrize("way", ["link", "next_url", "cursor"])
def test_a_full_first_page_that_names_no_next_one_is_a_short_read(way: str) -> None:
    misspelt = {"link": {"link": "onward"}, "next_url": {"next_url": "paging.nxt"}, "cursor": {"cursor": "nxt", "param": "after"}}
    with rest_api(way, records=RECORDS) as api:
        rows, _, ending = read(spec_of(api, misspelt[way], params={"limit": "2"}))
        assert (len(rows), ending.is_short) == (2, True)
        assert "names no next one" in ending.notices[0]
        assert not read(spec_of(api, misspelt[way], params={"limit": "50"}))[2].is_short
        with pytest.raises(SourceUnavailableError, match="changed while it was read, run again"):
            read(spec_of(api, {**misspelt[way], "total": "paging.total"}))


def test_a_joined_table_that_is_short_says_why(tmp_path: Path) -> None:
    (tmp_path / "agenda.csv").write_text("ref\n1\n", "utf-8")
    with rest_api("cursor", records=RECORDS) as api:
        words = {"kind": "rest", "url": api.url, "records": "data.events", "params": {"limit": "2"}}
        table = words | {"pages": {"cursor": "nxt", "param": "after"}}
        join = {"source": table, "by": {"ref": "ref"}, "prefix": "venue."}
        spec = SPEC.validate_python({"kind": "csv", "path": "agenda.csv", "join": join})
        source = open_source(spec, tmp_path, frozenset({"venue.price"}), clock=in_no_time())
        with pytest.raises(SourceUnavailableError, match="must be whole") as caught, source.read():
            pytest.fail("the block was entered")
        assert "names no next one" in caught.value.hint


def test_cells_have_the_digits_and_repeated_names_of_the_answer() -> None:
    with rest_api(pager="link") as api:
        one = (
            '{"ref": 1, "price": 2.50, "big": 12345678901234567890, "deep": [{"n": 1.0}], "no": null, "venue": {"city": "上海"}}'
        )
        api.lasting[0] = saying(200, f'{{"data": {{"events": [{one}, {{"ref": 2, "price": 1, "price": 2}}]}}}}')
        columns = ("ref", "price", "big", "deep", "no", "venue.city")
        first, second = read(spec_of(api), columns)[0]
        assert list(map(first.cells.__getitem__, columns)) == ["1", "2.50", "12345678901234567890", '[{"n": 1.0}]', "", "上海"]
        assert first.location.place == f"{api.url} (record 1)"
        assert second.problems
        api.lasting[0] = saying(200, '{"data": {"events": [{"ref": "half \\ud83c"}]}}')
        assert [one.found for one in read(spec_of(api))[0][0].problems] == [r"half \ud83c"]


def test_records_are_found_as_in_a_json_file() -> None:
    rooms = {"Hall 1": [{"ref": "1"}, {"ref": "2"}], "Hall 2": [{"ref": "3"}]}
    with rest_api("page", records=RECORDS) as api:
        api.edit = lambda page, document: document.update(rooms=rooms if page == 0 else {})
        rows = read(spec_of(api, records="rooms.*"), ("ref", "#key"))[0]
        assert [(row.cells["ref"], row.cells["#key"]) for row in rows] == [("1", "Hall 1"), ("2", "Hall 1"), ("3", "Hall 2")]
        with pytest.raises(BadSourceError, match="lists under Hall 1, Hall 2"):
            read(spec_of(api, records="rooms"))


def test_all_pages_of_a_host_come_over_one_connection() -> None:
    with rest_api(records=RECORDS) as api:
        read(spec_of(api))
        assert len(api.asked) == 3
        assert len({request.port for request in api.asked}) == 1


def test_secrets_go_to_their_own_host_only_and_appear_in_no_error() -> None:
    with ExitStack() as servers:
        own, other = (servers.enter_context(rest_api("next_url", records=RECORDS)) for _ in range(2))
        auth = {"bearer": "EXAMPLE", "header": {"X-Key": "EXAMPLE"}, "param": {"key": "EXAMPLE"}}
        spec = spec_of(own, auth=auth, headers={"X-Plain": "plain"})
        assert len(refs(spec)) == 5
        assert {request.headers["authorization"] for request in own.asked} == {"Bearer token-of-ours-1"}
        assert {request.headers["x-key"] for request in own.asked} == {"token-of-ours-1"}
        assert {request.params["key"][0] for request in own.asked} == {"token-of-ours-1"}
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        own.edit = lambda _, document: document["paging"].update(next=f"{elsewhere}?after=1")
        own.lasting[2] = saying(302, "", Location=elsewhere)
        for start in (own.url, f"{own.url}?after=2"):
            with pytest.raises(SourceRefusedError, match="private network"):
                read(spec.model_copy(update={"url": start}))
        assert not other.asked
        own.lasting[0] = saying(403, {"message": "token-of-ours-1 may not"})
        with pytest.raises(SourceRefusedError, match="may not") as caught:
            read(spec)
        assert "token-of-ours-1" not in f"{caught.value!r} {caught.value.hint}"


def test_pages_and_redirects_of_another_host_are_asked_for_without_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is the proxy to both hosts."""
    with rest_api("next_url", records=RECORDS) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/events"))
        monkeypatch.setenv("no_proxy", "")
        own, other = "http://93.184.215.14", "http://93.184.215.15"
        proxy.edit = lambda page, document: document["paging"].update(
            next=f"{other}/events?after={page + 1}" if page < 2 else None
        )
        auth = {"bearer": "EXAMPLE", "header": {"X-Key": "EXAMPLE"}, "param": {"key": "EXAMPLE"}}
        spec = spec_of(proxy, auth=auth, headers={"X-Plain": "plain"}).model_copy(update={"url": f"{own}/events"})
        assert len(refs(spec)) == 5
        proxy.lasting[0] = saying(302, "", Location=f"{other}/events?after=1")
        assert refs(spec) == ["3", "4", "5"]
        hosts = [request.headers["host"] for request in proxy.asked]
        assert hosts == ["93.184.215.14", "93.184.215.15", "93.184.215.15"] * 2
        for request in proxy.asked:
            is_own = request.headers["host"] == "93.184.215.14"
            has_secret = ["token-of-ours-1" in f"{request.headers} {request.params}", "x-plain" in request.headers]
            assert has_secret == [is_own, is_own]


@contextmanager
def token_server(*, is_in_body: bool = False) -> Iterator[Api]:
    with rest_api() as server:
        given: list[str] = []

        def answer(request: Request) -> tuple[int, Any]:
            is_named = "client_secret" in request.body if is_in_body else "authorization" in request.headers
            if not is_named:
                return 401, {"error": "invalid_client"}
            given.append(f"given-token-{len(given) + 1}")
            return 200, {"access_token": given[-1], "token_type": "Bearer"}

        server.answer = answer
        yield server


@pytest.mark.parametrize("is_in_body", [False, True])
def test_a_token_is_asked_for_once_and_again_when_it_has_run_out(*, is_in_body: bool) -> None:
    with rest_api(records=RECORDS) as api, token_server(is_in_body=is_in_body) as tokens:
        login = {"token_url": tokens.url, "client": "us", "secret": "EXAMPLE", "scope": "read"}
        api.faults[1] = [saying(401, {})]
        access = Access(secrets=SECRETS, mask=Mask())
        assert len(refs(spec_of(api, auth={"oauth2": login}), access=access)) == 5
        assert [request.headers["authorization"] for request in api.asked] == [
            f"Bearer given-token-{number}" for number in (1, 1, 2, 2)
        ]
        assert access.mask.hide("given-token-2 is no word") == "[key] is no word"
        api.lasting[0] = saying(401, {"message": "no"})
        with pytest.raises(SyncError):
            read(spec_of(api, auth={"oauth2": login}))


def test_a_password_is_sent_and_a_missing_secret_is_named() -> None:
    with rest_api(records=RECORDS) as api:
        assert len(refs(spec_of(api, auth={"basic": "USER"}))) == 5
        assert api.asked[0].headers["authorization"].startswith("Basic ")
        with pytest.raises(SyncError, match="REST_OTHER is not set"):
            read(spec_of(api, auth={"bearer": "OTHER"}))


def test_an_address_that_is_never_asked_is_named_by_no_word_of_another_kind() -> None:
    with pytest.raises(SourceRefusedError) as caught:
        read(spec_of(Api(), url="http://169.254.169.254/events"))
    assert "check the address" in caught.value.hint


def test_a_body_is_sent_with_the_types_of_json_and_not_along_a_redirect() -> None:
    with rest_api("page", records=RECORDS) as api:
        body = {"page_size": "2", "exact": '"2"', "is_new": "true", "sorts": [{"by": "name"}]}
        spec = spec_of(api, method="POST", body=body)
        assert len(refs(spec)) == 5
        expected = {"page_size": 2, "exact": "2", "is_new": True, "sorts": [{"by": "name"}]}
        assert [request.body for request in api.asked] == [{**expected, "page": number} for number in (1, 2, 3)]
        api.lasting[0] = saying(307, "", Location=f"{api.url}/new")
        with pytest.raises(SourceRefusedError, match="redirects"):
            read(spec)


CHANGING = [
    {"ref": "1", "at": "2026-05-03T10:00:00Z", "gone": False},
    {"ref": "2", "at": "2026-05-03T13:00:00+02:00", "gone": True},
    {"ref": "3", "at": None, "gone": False},
]


def test_changes_are_read_from_the_latest_one_minus_the_overlap_and_ties_again() -> None:
    with rest_api("link", records=CHANGING) as api:
        words = {"by": "at", "overlap": "10m", "deleted": "gone"}
        spec = spec_of(api, params={"since": "{since}", "limit": "50"}, incremental=words)
        rows, is_whole, ending = read(spec)
        assert ([row.cells["ref"] for row in rows], is_whole) == (["1", "3"], True)
        assert "since" not in api.asked[0].params
        api.asked.clear()
        rows, is_whole, later = read(spec, since=ending.cursor)
        assert ([(row.cells["ref"], row.is_gone) for row in rows], is_whole) == ([("1", False), ("2", True), ("3", False)], False)
        assert api.asked[0].params["since"] == ["2026-05-03T10:50:00Z"]
        assert later.cursor == ending.cursor
        other = spec_of(api, params={"from": "{since}"}, incremental=words)
        assert read(other, since=ending.cursor)[1]
        assert probe_source(spec, Path(), access=Access()).blind


def test_a_mapping_may_spell_the_columns_of_changes_otherwise() -> None:
    with rest_api("link", records=CHANGING) as api:
        spec = spec_of(api, params={"since": "{since}"}, incremental={"by": "at", "deleted": "gone"})
        rows, _, ending = read(spec, ("ref", "AT", "Gone"))
        assert [row.cells["AT"] for row in rows] == ["2026-05-03T10:00:00Z", ""]
        assert [row.is_gone for row in read(spec, ("ref", "AT", "Gone"), since=ending.cursor)[0]] == [False, True, False]


def test_a_span_of_changes_is_asked_for_from_its_begin_and_cut_off_at_its_end() -> None:
    with rest_api("link", records=CHANGING) as api:
        spec = spec_of(api, params={"since": "{since}"}, incremental={"by": "at"})
        begin, end = (datetime(2026, 5, 3, hour, tzinfo=UTC) for hour in (10, 11))
        narrowed = spec.changed_between(begin, end)
        assert refs(narrowed) == ["1"]
        assert api.asked[0].params["since"] == ["2026-05-03T10:00:00Z"]
        api.records = [*CHANGING, {"ref": "4", "at": "yesterday"}]
        with pytest.raises(BadSourceError, match='"yesterday" in at is not a day or moment'):
            read(narrowed)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"pages": {}}, "one way"),
        ({"pages": {"link": "next", "page": "page"}}, "one way"),
        ({"pages": {"cursor": "next"}}, "belong together"),
        ({"pages": {"offset": "skip", "last": "last"}}, "belongs to page"),
        ({"url": "ftp://example.org"}, "not a web address"),
        ({"body": {"a": "1"}}, "belongs to POST"),
        ({"params": {"a": "{since}"}}, "belong together"),
        ({"incremental": {"by": "at"}}, "belong together"),
        ({"auth": {"bearer": "A", "basic": "B"}}, "one value"),
        ({"auth": {"bearer": "secret-1"}}, "not the name of a secret"),
    ],
)
def test_a_block_that_cannot_work_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SPEC.validate_python({"kind": "rest", "url": "https://example.org", "pages": {"link": "next"}, **words})
