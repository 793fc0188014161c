"""Attacks by addresses: redirects, names and spellings that lead where no file, image or service of ours is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from contract.raw_server import run, says, server, unanswered
from contract.test_event_api_media import PNG, Site, fetched, ok
from contract.test_event_api_tls_and_proxies import server_tls
from cryptography import x509
from lookalikes.web_files import Web, answering, web_server
from pydantic import SecretStr
from unit.connectors_sources.reading import SPEC

from connectors.addresses import is_metadata
from connectors.errors import BaseUrlError
from connectors.event_api.answers import AnswerKind
from connectors.event_api.media import ImageProblem
from connectors.event_api.transport import open_http
from connectors.sources.catalogue import open_source
from connectors.sources.contract import SourceRefusedError
from connectors.sources.files.web import FetchLimits, WebFiles
from mappings.errors import ConfigError
from pipelines.settings import read_settings

_ROWS = b"id,text\n1,x\n"
Handler = Callable[[Any], bool]


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as served:
        served.put("/agenda.csv", _ROWS)
        yield served


@pytest.fixture
def inside() -> Iterator[Web]:
    """A server that the author of the mapping did not name."""
    with web_server() as served:
        served.put("/agenda.csv", _ROWS)
        yield served


class Names:
    """A resolver with answers of its own; each name answers in turn, and for ever with its last answer."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(script) for name, script in answers.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        script = self.answers.get(host)
        if script is None:
            raise OSError(0, "no such name")
        return script.pop(0) if len(script) > 1 else script[0]


def content_of(address: str, resolve: Callable[[str, int], Sequence[str]] | None = None) -> bytes:
    bounds = FetchLimits(resolve=resolve, connect_s=5.0) if resolve else FetchLimits()
    with WebFiles(bounds).open(address) as kept:
        return kept.stream.read()


INSIDE = "which leads into a private network"


@pytest.mark.parametrize(
    ("location", "addresses", "told"),
    [
        *((f"http://{host}.example:{{inside}}/agenda.csv", ["127.0.0.1"], INSIDE) for host in ("feeds", "other")),
        ("http://127.0.0.1:{inside}/agenda.csv", [], INSIDE),
        *(("http://other.example/agenda.csv", [address], INSIDE) for address in ("10.1.2.3", "fd12::1", "::ffff:10.1.2.3")),
        ("http://other.example/agenda.csv", ["93.184.216.34", "10.1.2.3"], INSIDE),
        *((f"http://other.example:{port}/agenda.csv", ["93.184.216.34"], f"port {port}") for port in (22, 25, 445)),
    ],
)
def test_a_redirect_to_another_port_of_a_private_host_into_its_network_or_to_a_port_without_files_is_refused(
    location: str, addresses: list[str], told: str, web: Web, inside: Web
) -> None:
    names = Names(feeds_example=[["127.0.0.1"]], other_example=[addresses], **{"127.0.0.1": [["127.0.0.1"]]})
    web.instead = answering(302, {"Location": location.format(inside=inside.port)})
    with pytest.raises(SourceRefusedError, match=told) as caught:
        content_of(f"http://{'127.0.0.1' if '127' in location else 'feeds.example'}:{web.port}/agenda.csv", names)
    assert "write the file's own address" in caught.value.hint
    assert not inside.asked


def send_on(web: Web, start: str, location: str, then: Handler | None = None) -> None:
    """Redirect requests for `start`; answer the others with what is put there, or by `then`."""

    def handle(request: Any) -> bool:
        if request.path == start:
            return answering(302, {"Location": location})(request)
        return then is not None and then(request)

    web.instead = handle


def test_a_private_server_may_send_us_on_within_its_own_origin(web: Web) -> None:
    web.put("/files/8f2a", _ROWS)
    own = f"http://feeds.example:{web.port}"
    send_on(web, "/agenda.csv", f"{own}/files/8f2a")
    assert content_of(f"{own}/agenda.csv", Names(feeds_example=[["127.0.0.1"]])) == _ROWS


def test_a_name_that_answers_differently_the_second_time_gains_nothing(web: Web) -> None:
    """Names are looked up once for a file: what was checked is what is connected to, also after a redirect."""
    web.put("/files/8f2a", _ROWS)
    send_on(web, "/agenda.csv", "/files/8f2a")
    names = Names(feeds_example=[["127.0.0.1"], ["127.0.0.9"]])
    assert content_of(f"http://feeds.example:{web.port}/agenda.csv", names) == _ROWS
    assert names.asked == ["feeds.example"]
    assert [asked.headers["host"] for asked in web.asked] == [f"feeds.example:{web.port}"] * 2


def test_the_next_address_of_a_name_is_tried_where_one_does_not_answer(web: Web) -> None:
    names = Names(feeds_example=[["::1", "127.0.0.9", "127.0.0.1"]])
    assert content_of(f"http://feeds.example:{web.port}/agenda.csv", names) == _ROWS


METADATA = (
    *("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "fe80::a9fe:a9fe%eth0"),
)
SPELLINGS = (
    *(f"[{address}]" if ":" in address else address for address in METADATA if "%" not in address),
    *("2852039166", "0xa9fea9fe", "169.254.43518", "169.254.169.254."),
)
STORES = ("sftp://169.254.169.254/a.csv", "simplecache::http://169.254.169.254/a.csv")
SAID = "the metadata service of a cloud"
NO_IMAGE = ImageProblem(f"The image's address leads to {SAID}.")
OTHERS = ("127.0.0.1", "10.0.0.1", "93.184.216.34", "fd12::1", "::1", "feeds.example")


@pytest.mark.parametrize(("addresses", "is_known"), [(METADATA, True), (OTHERS, False)], ids=["metadata services", "others"])
def test_the_address_of_a_metadata_service_is_known_in_every_wrapping(addresses: Sequence[str], *, is_known: bool) -> None:
    assert [address for address in addresses if is_metadata(address) is not is_known] == []


@pytest.mark.parametrize("address", METADATA[:6])
def test_a_name_that_leads_to_a_metadata_service_is_refused_where_the_mapping_file_names_it(address: str) -> None:
    with pytest.raises(SourceRefusedError, match=SAID):
        content_of("http://feeds.example/agenda.csv", Names(feeds_example=[["127.0.0.1", address]]))


@pytest.mark.parametrize("host", [*SPELLINGS, "meta.example"])
def test_no_redirect_leads_to_a_metadata_service(host: str, web: Web) -> None:
    names = Names(feeds_example=[["127.0.0.1"]], meta_example=[["169.254.169.254"]])
    web.instead = answering(302, {"Location": f"http://{host}/latest/meta-data"})
    with pytest.raises(SourceRefusedError, match=SAID):
        content_of(f"http://feeds.example:{web.port}/agenda.csv", names)
    assert len(web.asked) == 1


@pytest.fixture
def proxied(web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    """The server stands in for every host, as the proxy of this machine."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{web.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return web


@pytest.mark.parametrize("way", ["web", "proxied"])
@pytest.mark.parametrize("path", [*(f"http://{host}/latest/meta-data" for host in SPELLINGS), *STORES])
def test_a_mapping_file_that_names_a_metadata_service_reads_nothing_from_there(
    path: str, way: str, request: pytest.FixtureRequest
) -> None:
    web = request.getfixturevalue(way)
    spec = SPEC.validate_python({"kind": "csv", "path": path})
    with (
        pytest.raises(SourceRefusedError, match=SAID),
        open_source(spec, Path("/nowhere"), frozenset({"id"})).read(),
    ):
        pytest.fail("it was read")
    assert not web.asked


@pytest.mark.parametrize("host", ["10.1.2.3", "127.1", "0x7f000001", "127.0.0.1.", "[::1]"])
def test_through_a_proxy_no_redirect_leads_to_an_address_that_is_private_as_it_is_written(host: str, proxied: Web) -> None:
    proxied.instead = answering(302, {"Location": f"http://{host}/admin"})
    with pytest.raises(SourceRefusedError, match="leads into a private network"):
        content_of("http://feeds.example/agenda.csv", Names(feeds_example=[["93.184.216.34"]]))
    assert len(proxied.asked) == 1


def test_through_a_proxy_the_first_name_is_the_proxy_s_to_look_up(proxied: Web) -> None:
    proxied.instead = answering(200, {"Content-Length": str(len(_ROWS))}, _ROWS)
    names = Names()
    assert content_of("http://feeds.example/agenda.csv", names) == _ROWS
    assert not names.asked


def test_another_origin_is_not_told_the_password_and_is_asked_by_its_name(proxied: Web) -> None:
    send_on(proxied, "http://feeds.example/agenda.csv", "http://cdn.example/agenda.csv", answering(200, {}, _ROWS))
    names = Names(cdn_example=[["93.184.216.34"]])
    assert content_of("http://anna:word@feeds.example/agenda.csv", names) == _ROWS
    assert [asked.headers["host"] for asked in proxied.asked] == ["feeds.example", "cdn.example"]
    assert ["authorization" in asked.headers for asked in proxied.asked] == [True, False]


def test_a_certificate_is_checked_against_the_name_though_the_address_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, greeted = server_tls(tmp_path, x509.DNSName("feeds.example")), list[str]()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    tls.sni_callback = lambda _socket, name, _context: greeted.append(name)
    names = Names(feeds_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    gives = says(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(_ROWS), _ROWS), goes_on=False)

    async def main() -> bytes:
        async with server(gives, tls=tls) as (url, _):
            port = url.rpartition(":")[2]
            content = await asyncio.to_thread(content_of, f"https://feeds.example:{port}/agenda.csv", names)
            with pytest.raises(SourceRefusedError, match=r"certificate .* is not valid"):
                await asyncio.to_thread(content_of, f"https://other.example:{port}/agenda.csv", names)
            return content

    assert run(main) == _ROWS
    assert greeted == ["feeds.example", "other.example"]


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16", "fd00:ec2::254"])
def test_no_image_comes_by_a_name_from_a_metadata_service(address: str) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1", address]

    site = Site({"/a": ok(PNG)})
    assert fetched(site, "http://images.example.org:PORT/a", timeout_s=1, resolve=resolve) == NO_IMAGE
    assert not site.asked


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_metadata_service_gives_no_image_even_where_private_ones_are_allowed_and_is_not_the_service(host: str) -> None:
    assert fetched(Site({}), f"http://{host}/a.png", timeout_s=1) == NO_IMAGE
    with pytest.raises(BaseUrlError, match=SAID):
        open_http(f"https://{host}/", SecretStr("key"))


def test_a_service_whose_name_leads_to_a_metadata_service_is_not_connected_to() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["169.254.169.254"]

    async def main() -> object:
        async with open_http("https://events.example", SecretStr("a-key-of-a-test"), resolve=resolve) as http:
            return await http.exchange(http.request("GET", http.url("/channels")))

    told = run(main)
    assert unanswered(told).kind is AnswerKind.NOT_REACHED
    assert SAID in unanswered(told).answer.message


@pytest.mark.parametrize("name", ["EVENTSYNC_SHEETS_URL", "SALESFORCE_INSTANCE_URL"])
def test_no_setting_names_a_metadata_service(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name}: leads to the metadata service of a cloud"):
        read_settings({name: "https://169.254.169.254"}, tmp_path)
