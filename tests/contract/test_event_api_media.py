"""Cover images: fetched from a real server on loopback, refused wherever a partner's link may not lead, uploaded once."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest
from pictures import png
from unit.connectors_api.wired import SECRET, HandlerWire, Scripted, Service, ask, page, told

from connectors.addresses import is_public
from connectors.errors import KeyRefusedError
from connectors.event_api.delivery import EventApi
from connectors.event_api.media import Image, ImageFetcher, ImageProblem, ImageUnchanged
from mappings.errors import SyncError

PNG = png(640, 480)


class Site:
    """Answers each path from a table, and remembers what was asked."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.left_waiting: list[asyncio.StreamWriter] = []

    @property
    def asked(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if answer := self.answers.get(self.asked[-1]):
            writer.write(answer)
            await writer.drain()
            writer.close()
        else:
            self.left_waiting.append(writer)


def ok(content: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(content)}\r\n{lines}\r\n".encode() + content


def problem_of(outcome: object) -> ImageProblem:
    assert isinstance(outcome, ImageProblem), outcome
    return outcome


async def no_wait(_: float) -> None:
    await asyncio.sleep(0)


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock a test turns on."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Fetched = Image | ImageUnchanged | ImageProblem


def fetched(
    site: Site, url: str, *, etag: str = "", timeout_s: float = 60, allows_private: bool = True, resolve: Resolve | None = None
) -> Fetched:
    """Fetch `url`, in which PORT stands for the site's."""

    async def main() -> Fetched:
        server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
        port = str(server.sockets[0].getsockname()[1])
        site.answers = {path: answer.replace(b"PORT", port.encode()) for path, answer in site.answers.items()}
        options: dict[str, Any] = {"resolve": resolve} if resolve else {}
        options |= {"timeout_s": timeout_s, "allows_private": allows_private, "sleep": no_wait, "random": lambda: 0.0}
        try:
            async with ImageFetcher(**options) as fetcher:
                return await fetcher.fetch_image(url.replace("PORT", port), etag=etag)
        finally:
            server.close()
            for writer in site.left_waiting:
                writer.close()
            await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        return runner.run(main())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        *((PNG, "image/png"), (b"\xff\xd8\xff\xe0...", "image/jpeg"), (b"RIFF\x10\x00\x00\x00WEBPVP8X", "image/webp")),
        *((b"GIF87a...", "image/gif"), (b"GIF89a...", "image/gif")),
    ],
)
def test_an_image_is_what_its_bytes_say_and_is_fetched_without_a_secret(content: bytes, kind: str) -> None:
    site = Site({"/x.html": ok(content, "content-type: text/html", 'etag: "v1"')})
    image = Image(content, kind, hashlib.blake2b(content, digest_size=16).digest(), '"v1"')
    assert fetched(site, "http://127.0.0.1:PORT/x.html") == image
    assert [name in site.heads[0].lower() for name in ("authorization", "cookie")] == [False, False]


def test_an_unchanged_image_is_not_fetched_again() -> None:
    site = Site({"/a": b'HTTP/1.1 304 Not Modified\r\netag: "v1"\r\n\r\n'})
    assert fetched(site, "http://127.0.0.1:PORT/a", etag='"v1"') == ImageUnchanged()
    assert 'if-none-match: "v1"' in site.heads[0].lower()


PROBLEMS = {
    "a page": (ok(b"<html>no image</html>", "content-type: image/png"), "is not a GIF"),
    "a drawing that may hold scripts": (ok(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "is not a GIF"),
    "not found": (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "answers 404"),
    "a bitmap": (ok(b"BM" + bytes(60)), "is not a GIF"),
    "declared too large": (b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n", "larger than 10 MB"),
    "too large all the same": (b"HTTP/1.1 200 OK\r\n\r\n" + b"\x89PNG" * (3 << 20), "larger than 10 MB"),
    "cut off": (b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + PNG, "could not be fetched"),
    "no HTTP": (b"220 ftp.example.org\r\n\r\n", "could not be fetched"),
}


@pytest.mark.parametrize(("answer", "reason"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_each_problem_is_a_value_with_a_reason(answer: bytes, reason: str) -> None:
    assert reason in problem_of(fetched(Site({"/a": answer}), "http://127.0.0.1:PORT/a")).reason


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "mailto:a@example.org", "ftp://example.org/a.png", "file:///etc/passwd", "http://", "https://[::1"),
        *("http://u:p@example.org/", "//example.org/a", "http://exa mple.org:99999999/"),
    ],
)
def test_what_is_no_plain_web_address_is_refused_without_a_request(url: str) -> None:
    site = Site({})
    assert not problem_of(fetched(site, url)).is_passing
    assert not site.asked


def test_redirects_are_followed_up_to_three_times() -> None:
    hops = [httpx.Response(302, headers={"location": f"/{hop}"}) for hop in range(12)]
    assert isinstance(walked(*hops[:3], shown())[0], Image)
    assert "redirects more than 3 times" in problem_of(walked(*hops[3:])[0]).reason


PRIVATE = {
    "private IPv4": ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"],
    "reserved IPv4": ["0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.88.99.1", "192.0.0.8", "198.18.0.1"],
    "documentation": ["203.0.113.9", "2001:db8::1", "3fff::1"],
    "private IPv6": ["::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "fec0::1"],
    "mapped IPv4": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "::ffff:0:7f00:1"],
    "NAT64 and 6to4": ["64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:c0a8:101::1"],
    "Teredo and ISATAP": ["2001:0:5db8:d822::80ff:fffe", "2a00::5efe:7f00:1", "2a00::200:5efe:a00:1"],
    "no address": ["not an address"],
}
PUBLIC = [
    *("93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"),
    *("2a00::5efe:5db8:d822", "2002:5db8:d822::1"),
]


@pytest.mark.parametrize(
    ("addresses", "public"), [*((some, False) for some in PRIVATE.values()), (PUBLIC, True)], ids=[*PRIVATE, "public"]
)
def test_an_address_is_known_to_be_private_or_public_in_each_of_its_forms(addresses: list[str], *, public: bool) -> None:
    assert [one for one in addresses if is_public(one) is not public] == []


SNEAKY = [
    *("localhost", "localhost.", "LOCALHOST", "127.0.0.1", "127.1", "2130706433", "0", "0.0.0.0", "127.0.0.1."),
    *("0x7f.0.0.1", "0177.0.0.1", "0x7f000001", "0x7F.1", "017700000001", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1"),
    *("[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[::ffff:7f00:1]", "[::1%25lo]"),
    *("127.0.0.1%2F@images.example.org", "images.example.org@127.0.0.1"),
    *("127.0.0.1%00.example.org", r"127.0.0.1\@images.example.org"),
]


@pytest.mark.parametrize("host", SNEAKY)
def test_no_spelling_leads_into_our_own_network(host: str) -> None:
    site = Site({"/a": ok(PNG)})
    assert problem_of(fetched(site, f"http://{host}:PORT/a", allows_private=False))
    assert not site.asked


def resolver(*answers: list[str]) -> Resolve:
    script = list(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return script.pop(0) if len(script) > 1 else script[0]

    return resolve


@pytest.mark.parametrize(
    "answers",
    [
        *([addresses] for addresses in (["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"])),
        [["2a0f:ffff:ffff:ffff::1"], ["127.0.0.1"]],
    ],
)
def test_a_name_that_leads_into_our_own_network_is_refused_though_it_answers_so_the_second_time_only(
    answers: list[list[str]],
) -> None:
    site, resolve = Site({"/a": ok(PNG)}), resolver(*answers)
    outcome = fetched(site, "http://images.example.org:PORT/a", allows_private=False, timeout_s=0.2, resolve=resolve)
    assert outcome == ImageProblem("The image's address leads into a private network.")
    assert not site.asked


def fetched_from(web: Callable[[httpx.Request], httpx.Response], *urls: str) -> tuple[list[Fetched], list[str]]:
    """Fetch images from a web that answers so; return them and which addresses were asked."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return web(request)

    async def main() -> list[Fetched]:
        wire = HandlerWire(answer)
        async with ImageFetcher(sleep=no_wait, random=lambda: 0.0, wire=wire) as fetcher:
            return [await fetcher.fetch_image(url) for url in urls]

    return asyncio.run(main()), asked


def walked(*answers: httpx.Response, url: str = "https://images.example.org/a") -> tuple[Fetched, list[str]]:
    """Fetch `url` from a web that gives these answers one after the other."""
    script = list(answers)
    (outcome,), asked = fetched_from(lambda _: script.pop(0) if len(script) > 1 else script[0], url)
    return outcome, asked


HOPS = {
    "http://127.0.0.1/": ("http", "private network"),
    "http://2130706433/": ("http", "private network"),
    "http://[::ffff:169.254.169.254]/latest/meta-data": ("http", "metadata service"),
    "//10.0.0.1/a": ("http", "private network"),
    "https://u:p@images.example.org/a": ("https", "user name"),
    "https://images.example.org:25/a": ("https", "port 25"),
    **dict.fromkeys(["ftp://images.example.org/a", "file:///etc/passwd"], ("http", "does not begin with http")),
    "http://images.example.org/a": ("https", "redirects from https to plain http."),
    **dict.fromkeys(["https://[::1", "http://exa mple.org:99999999/", "\x7f"], ("https", "")),
}


@pytest.mark.parametrize(("location", "scheme", "reason"), [(location, *way) for location, way in HOPS.items()])
@pytest.mark.parametrize("hops", [1, 3])
def test_each_hop_of_a_redirect_is_checked(location: str, scheme: str, reason: str, hops: int) -> None:
    answers = [httpx.Response(302, headers={"location": where}) for where in [*["/onward"] * (hops - 1), location]]
    outcome, asked = walked(*answers, url=f"{scheme}://images.example.org/a")
    assert reason in problem_of(outcome).reason
    assert len(asked) == hops or not reason


def shown(content: bytes = PNG) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(content))


@pytest.mark.parametrize("port", [22, 25, 445, 1023, 80, 443, 8080, 9000])
def test_only_a_port_where_images_may_be_served_is_asked(port: int) -> None:
    outcome, asked = walked(shown(), url=f"http://images.example.org:{port}/a.png")
    assert (type(outcome), len(asked)) == ((Image, 1) if port in {80, 443, 8080, 9000} else (ImageProblem, 0))


@pytest.mark.parametrize("packing", ["gzip", "br", "deflate, gzip", "zstd"])
def test_a_packed_image_is_not_unpacked(packing: str) -> None:
    bomb = gzip.compress(PNG + bytes(64 << 20))
    site = Site({"/a": ok(bomb, f"content-encoding: {packing}")})
    assert "compresses the image" in problem_of(fetched(site, "http://127.0.0.1:PORT/a")).reason
    assert "accept-encoding: identity" in site.heads[0].lower()


def test_a_passing_trouble_is_tried_again() -> None:
    outcome, asked = walked(httpx.Response(503), shown())
    assert (type(outcome), len(asked)) == (Image, 2)


def test_a_server_that_keeps_failing_is_not_asked_for_ever() -> None:
    hosts = ["down"] * 9 + ["up"]
    outcomes, asked = fetched_from(
        lambda request: httpx.Response(503) if request.url.host == "down.example.org" else shown(),
        *(f"https://{host}.example.org/{number}" for number, host in enumerate(hosts)),
    )
    assert len([url for url in asked if "down" in url]) == 9  # three images, three times each
    assert "failed for 3 images in a row" in str(outcomes[8])
    assert isinstance(outcomes[9], Image)


def test_a_slow_drip_is_cut_off_in_time() -> None:
    class Dripping(Site):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await super().serve(reader, writer)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n\x89PNG")
            loop = asyncio.get_running_loop()
            assert isinstance(loop, TurnedLoop)
            with contextlib.suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(b".")
                    await writer.drain()
                    loop.ahead_s += 6
                    await asyncio.sleep(0.01)

    outcome = problem_of(fetched(Dripping({}), "http://127.0.0.1:PORT/a"))
    assert ("did not deliver it within" in outcome.reason, outcome.is_passing) == (True, True)


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert isinstance(fetched(Site({"/a": ok(PNG)}), "http://127.0.0.1:PORT/a"), Image)


def test_the_address_that_was_checked_is_the_one_that_is_connected_to() -> None:
    lookups: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        lookups.append(host)
        return ["127.0.0.1"]

    site = Site({"/a": ok(PNG)})
    assert isinstance(fetched(site, "http://images.example.org:PORT/a", resolve=resolve), Image)
    assert lookups == ["images.example.org"]
    assert "host: images.example.org:" in site.heads[0].lower()


def image_of(content: bytes) -> Image:
    return Image(content, "image/png", hashlib.blake2b(content, digest_size=16).digest())


IMAGE = image_of(PNG)
UPLOADED = httpx.Response(201, json={"doc": {"id": 9}})


def uploaded(service: Service, times: int = 1) -> list[int | ImageProblem]:
    async def upload(api: EventApi) -> list[int | ImageProblem]:
        return [await api.uploader.upload(IMAGE, f"es1-image-{number}") for number in range(times)]

    return ask(service, upload)


@pytest.mark.parametrize("body", [{"doc": {"id": 9, "url": "x"}}, {"id": 9}, {"data": {"id": 9}}])
def test_an_image_goes_as_a_form_with_one_file_and_the_documents_id_is_found_where_it_stands(body: dict[str, object]) -> None:
    service = Service([httpx.Response(201, json=body)])
    assert uploaded(service) == [9]
    (request,) = service.requests
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert [part in request.content for part in (b'name="file"', PNG)] == [True, True]
    assert (request.headers["idempotency-key"], request.headers["authorization"]) == ("es1-image-0", f"Bearer {SECRET}")


@pytest.mark.parametrize("refusal", [told(400, "invalid_request"), told(415, "invalid_request"), page(415)])
def test_an_image_goes_raw_where_forms_are_refused_and_that_is_remembered(refusal: httpx.Response) -> None:
    acquainted = [told(404, "not_found")] if refusal.headers["content-type"] == "text/html" else []
    service = Service([*acquainted, refusal, UPLOADED])
    assert uploaded(service, times=3)[-1] == 9
    assert [request.headers["content-type"] for request in service.requests[-2:]] == ["image/png", "image/png"]
    assert service.requests[-1].content == PNG


def test_a_repeated_upload_is_the_same_request() -> None:
    service = Service([httpx.ReadTimeout("x"), page(502), UPLOADED])
    assert uploaded(service) == [9]
    sent = {(one.content, one.headers["idempotency-key"], one.headers["content-type"]) for one in service.requests}
    assert len(sent) == 1


UPLOAD_PROBLEMS: dict[str, tuple[Scripted, str, type[object]]] = {
    "refused in all encodings": (told(400, "invalid_request", field="file", issue="too small"), "too small", type(None)),
    "a rejected key": (told(401, "invalid_api_key"), "refused the API key", KeyRefusedError),
    "a used key": (told(409, "conflict"), "uploaded before", type(None)),
    "a key in progress": (told(409, "in_progress"), "still processing an earlier upload", type(None)),
    "a dead service": (page(503), "could not be uploaded", SyncError),
    "nobody there": (httpx.ConnectError("refused"), "could not be uploaded", SyncError),
}


@pytest.mark.parametrize(("says", "reason", "cause"), UPLOAD_PROBLEMS.values(), ids=UPLOAD_PROBLEMS.keys())
def test_an_image_that_cannot_be_uploaded_is_a_value(says: Scripted, reason: str, cause: type[object]) -> None:
    problem = problem_of(*uploaded(Service([says])))
    assert reason in problem.reason
    assert isinstance(problem.cause, cause)


Takes = Callable[[httpx.Request], bool]


def _uploads(takes: Takes, images: int, shown_field: str = "") -> tuple[list[int | ImageProblem], list[httpx.Request]]:
    """Upload so many images at once to a service that takes one encoding, and answers the first image long before the rest.

    `shown_field`: where the service's page wants an image.
    """
    requests: list[httpx.Request] = []

    async def service(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        await asyncio.sleep(0.1 if request.headers["idempotency-key"].startswith("key-0") else 3.0)
        if takes(request):
            return UPLOADED
        return told(400, "invalid_request", field="file", issue="missing")

    async def upload(api: EventApi) -> list[int | ImageProblem]:
        api.uploader.expect(shown_field)
        return await asyncio.gather(
            *(api.uploader.upload(image_of(b"\x89PNG %d" % number), f"key-{number}") for number in range(images))
        )

    return ask(service, upload), requests


TAKES: dict[str, Takes] = {
    "a form with a file": lambda request: b'name="file"' in request.content,
    "the image itself": lambda request: request.headers["content-type"] == "image/png",
    "a form with an image": lambda request: b'name="image"' in request.content,
}


@pytest.mark.parametrize("takes", TAKES.values(), ids=TAKES.keys())
@pytest.mark.parametrize("shown_field", ["", "picture"], ids=["no page", "a page that shows a wrong field"])
def test_uploads_side_by_side_all_find_the_encoding_that_the_service_takes(takes: Takes, shown_field: str) -> None:
    ids, requests = _uploads(takes, 5, shown_field)
    assert ids == [9] * 5
    sent = {(request.headers["idempotency-key"], request.content) for request in requests}
    assert len(sent) == len({key for key, _ in sent}), "one key never carries two bodies"


@pytest.mark.parametrize(
    ("shown_field", "takes", "key"),
    [
        *(("media", "media", "key-0-field"), ("files.image", "files.image", "key-0-field")),
        *(("file", "file", "key-0"), ("image", "image", "key-0-image")),
        *((no_name, "file", "key-0") for no_name in ('a"; filename="b', "a\r\nx: y", "", "x" * 65)),
    ],
)
def test_the_field_that_the_page_shows_is_tried_first_where_it_is_the_name_of_one(shown_field: str, takes: str, key: str) -> None:
    ids, requests = _uploads(lambda request: f'name="{takes}"'.encode() in request.content, 1, shown_field)
    assert (ids, [request.headers["idempotency-key"] for request in requests]) == ([9], [key])
