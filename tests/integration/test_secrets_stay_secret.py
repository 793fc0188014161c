"""A session of good and bad runs with a key of odd characters and a database with a password; afterwards, everything that was
printed, logged, kept, recorded or left lying about is searched for the secrets, whole, in part, and in other spellings.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from integration.desk import FEED, Desk, WarmStart, lines, made_desk
from integration.service import serving
from integration.waiting import until
from lookalikes.demo import Places, running_places
from lookalikes.sheets import Fault
from lookalikes.threaded import Answer, answering_by
from postgres import Postgres
from sqlalchemy import make_url

pytestmark = pytest.mark.slow

KEY = 'sk-live/"Xw7v"\\Jk%2BPm+Tr=&<Hd>-Zq9wLB'
PASSWORD = "pg/Fy6%Gn+Vb@Ud:2Kx"
SHOWN = 4  # a key may be named by so many of its last characters
SPLIT = 8  # no piece of a secret as long as that is anywhere
ORG_PASSWORD, ORG_TOKEN = "sf/Yu7%Hn+Qb&Xd:3Kz", "tok-9Wx%2BvLm=Zq8Rt"


@pytest.fixture
def desk(tmp_path: Path, warm: WarmStart) -> Iterator[Desk]:
    with made_desk(tmp_path, warm) as made:
        (tmp_path / "tmp").mkdir()
        made.env |= {"TMPDIR": str(tmp_path / "tmp"), "EVENT_API_KEY": KEY, "EVENTSYNC_LOG": "pretty debug"}
        made.source(lines(6))
        yield made


def spellings(secret: str) -> set[bytes]:
    """The secret, every piece of it as long as `SPLIT`, and each whole in other spellings."""
    whole = secret.encode()
    assert len(whole) >= 16, "the base64 of a shorter one, without both of its ends, is empty and would be found everywhere"
    pieces = {secret[at : at + SPLIT] for at in range(len(secret) - SPLIT - SHOWN + 1)} | {secret[-SHOWN - 1 :]}
    encoded = {quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1], html.escape(secret), whole.hex(), repr(secret)}
    based = {b64encode(before + whole)[8:-8].decode() for before in (b"", b"x", b"xx")}
    return {one.encode() for one in pieces | encoded | based}


def everything(desk: Desk) -> Iterator[tuple[str, bytes]]:
    for path in sorted(desk.folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(desk.folder)), path.read_bytes()


def leaks(desk: Desk, *secrets: str) -> list[str]:
    """Where something of a secret is to be found, and what."""
    sought = re.compile(b"|".join(map(re.escape, sorted(set().union(*map(spellings, secrets)), key=len, reverse=True))))
    return [f"{where}: {found[0]!r}" for where, content in everything(desk) if (found := sought.search(content))]


def echoing(status: int, *, is_envelope: bool = True) -> AbstractContextManager[str]:
    """A hostile service: whatever is asked, it answers `status` and repeats the Authorization header wherever it can."""

    def echo(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        said = request.headers.get("Authorization", "Bearer nothing")
        key = said.removeprefix("Bearer ")
        error = {"code": said, "message": f"{said} {quote(key, safe='')}", "requestId": key}
        error |= {"details": {"field": key, "issue": f"{b64encode(said.encode()).decode()} {key.encode().hex()}"}}
        page = f"<html><title>{html.escape(said)}</title>{said} {quote(key)}</html>"
        headers = {
            "content-type": "application/json" if is_envelope else f"text/html; {key}",
            "location": f"https://x.example/{quote(key, safe='')}/{key}?k={key}",
            "x-request-id": key,
            "retry-after": said,
        }
        return Answer((json.dumps({"error": error}) if is_envelope else page).encode(), status, headers, said)

    return answering_by(echo)


def look_around(desk: Desk) -> None:
    for words in (("status",), ("runs",), ("rows", FEED), ("feeds",), ("preview", FEED), ("check",)):
        desk.command(*words)
        desk.command(*words, "--json", EVENTSYNC_LOG="json debug")


def test_runs_that_the_service_refuses_leave_no_secret_behind(desk: Desk) -> None:
    wrong, file = f"{KEY[:-6]}Gk8Rv3-Yt5s", desk.folder.parent / "key-file"
    file.write_text(KEY + "\n", "utf-8")
    with serving(key=KEY) as service:
        desk.env["EVENT_API_BASE_URL"] = service.base_url
        desk.run(EVENT_API_KEY=wrong, code=3)
        desk.run(EVENT_API_KEY="", EVENT_API_KEY_FILE=str(file), code=0)
        service.change("/keys/default/state", state="revoked")
        desk.source(lines(9))
        desk.run(EVENTSYNC_LOG="json debug", code=3)
        service.change("/keys/default/state", state="active")
        service.change("/channels/access", channel="city-agenda", allowed=False, owner="demo")
        desk.run()
    file.unlink()
    look_around(desk)
    assert leaks(desk, KEY, wrong) == []


@pytest.mark.parametrize("is_envelope", [True, False], ids=["in an envelope", "on a page"])
def test_a_service_that_repeats_the_key_wherever_it_can_gets_it_into_nothing_of_ours(desk: Desk, is_envelope: bool) -> None:
    desk.mapping(channel='"101"')
    for status in (302, 400, 401, 403):
        with echoing(status, is_envelope=is_envelope) as url:
            desk.env["EVENT_API_BASE_URL"] = url
            assert desk.run(EVENTSYNC_LOG="json debug").code != 0
    look_around(desk)
    assert leaks(desk, KEY) == []


WORD = "sk-live-Xw7vJkPmTrHdZq9wLB"
ADDRESSES = {
    "in the address's userinfo": ("EVENT_API_BASE_URL", f"https://user:{quote(KEY, safe='')}@events.example.org"),
    "in an address as it is": ("EVENT_API_BASE_URL", f"https://user:{WORD}@events.example.org"),
    "in an address that nobody can read": ("EVENT_API_BASE_URL", f"https://user:{WORD}@[::1"),
    "with a space": ("EVENT_API_KEY", "sk-live-Xw7vJkPmTr HdZq9wLB"),
    "with a line end": ("EVENT_API_KEY", "sk-live-Xw7vJkPmTr\\nHdZq9wLB\u00e9"),
    "for the state DB, in a URL that nobody can read": ("EVENTSYNC_STATE_URL", f"postgresql://ana:{WORD}@h:x/db"),
    "for the state DB, not there": ("EVENTSYNC_STATE_URL", f"postgresql://ana:{WORD}@127.0.0.1:1/db"),
    "for the state DB, with an unescaped @": ("EVENTSYNC_STATE_URL", f"postgresql://ana:{WORD[:12]}@{WORD[12:]}@127.0.0.1:1/db"),
    "for no database at all": ("EVENTSYNC_STATE_URL", f"mysql://ana:{WORD}@127.0.0.1:1/db"),
}


@pytest.mark.parametrize(("name", "value"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_a_secret_in_a_place_that_is_wrong_is_not_repeated(desk: Desk, name: str, value: str) -> None:
    env = {"EVENT_API_BASE_URL": "http://127.0.0.1:1", name: value}
    assert desk.run(**env).code != 0
    for words in (("status", "--json"), ("check", "--live", "--json"), ("run", "--all", "--no-dagster")):
        desk.command(*words, **env)
    assert not [piece for piece in ("Xw7vJkPm", "TrHdZq9w", "JkPmTrHd") for _, kept in everything(desk) if piece.encode() in kept]
    assert leaks(desk, KEY) == []


def test_the_password_of_the_state_db_is_nowhere_whether_it_is_right_or_wrong(desk: Desk, postgres: Postgres) -> None:
    url = make_url(postgres.fresh_url()).set(password=PASSWORD)
    with serving(key=KEY) as service:
        desk.env |= {"EVENT_API_BASE_URL": service.base_url}
        right = url.render_as_string(hide_password=False)
        desk.run(EVENTSYNC_STATE_URL=right, code=0)
        desk.env["EVENTSYNC_STATE_URL"] = right
        look_around(desk)
        elsewhere = url.set(database="no_such_database").render_as_string(hide_password=False)
        nobody = url.set(username="nobody_known").render_as_string(hide_password=False)
        for wrong in (elsewhere, nobody):
            assert desk.run(EVENTSYNC_STATE_URL=wrong).code in {2, 6}
            desk.command("status", "--json", EVENTSYNC_STATE_URL=wrong)
    assert leaks(desk, KEY, PASSWORD, quote(PASSWORD, safe="")) == []


def test_what_dagster_keeps_and_shows_of_a_run_has_no_secret_in_it(desk: Desk) -> None:
    desk.env |= {"EVENTSYNC_STATE_URL": "sqlite:///state/state.db"}
    with serving(key=KEY) as service:
        desk.env["EVENT_API_BASE_URL"] = service.base_url
        desk.command("run", FEED, "--json", code=0)
    with echoing(401) as url:
        desk.command("run", FEED, EVENTSYNC_LOG="json debug", EVENT_API_BASE_URL=url, code=3)
    assert (desk.folder / "dagster" / "history").is_dir()
    assert leaks(desk, KEY) == []


def test_no_process_shows_a_secret_in_its_title(desk: Desk) -> None:
    with serving(key=KEY) as service:
        desk.env["EVENT_API_BASE_URL"] = service.base_url
        service.switch(latency_ms=300)
        run = desk.start_run()
        until(lambda: bool(service.requests()))
        processes = [started := psutil.Process(run.pid), *started.children(recursive=True)]
        titles = [" ".join(one.cmdline()).encode() for one in processes]
        run.ended(0)
    assert all(titles)
    assert not [title for title in titles if any(piece in title for piece in spellings(KEY))]


@pytest.fixture
def places(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """A sheet and an org with their feeds; the credentials lie outside of the folder that is searched."""
    with running_places(tmp_path_factory.mktemp("access")) as places:
        places.org.password, places.org.token = ORG_PASSWORD, ORG_TOKEN
        (desk.folder / "feeds" / "town.yaml").unlink()
        for file in places.feeds.glob("*.yaml"):
            (desk.folder / "feeds" / file.name).write_text(file.read_text("utf-8"), "utf-8")
        desk.env |= {**places.environ, "SALESFORCE_PASSWORD": ORG_PASSWORD, "SALESFORCE_SECURITY_TOKEN": ORG_TOKEN}
        yield places


def secrets_of(desk: Desk, places: Places) -> list[str]:
    """All that the sources' side of the session must keep: what was configured, and every token that was given for a while."""
    account = json.loads(Path(desk.env["GOOGLE_APPLICATION_CREDENTIALS"]).read_text("utf-8"))
    lines_of_key = account["private_key"].splitlines()[1:-2]  # the last one has as few as 12 characters
    return [ORG_PASSWORD, ORG_TOKEN, *lines_of_key, *places.google.tokens, *places.org.sessions]


def test_sources_that_let_us_in_get_no_secret_into_anything_of_ours(desk: Desk, places: Places) -> None:
    with serving(key=KEY) as service:
        desk.env["EVENT_API_BASE_URL"] = service.base_url
        desk.command("run", "--all", "--no-dagster", "--json", EVENTSYNC_LOG="json debug", code=0)
        for words in (("check", "--live"), ("preview", "demo-sheet"), ("runs", "--json"), ("feeds", "--json")):
            desk.command(*words)
    assert len(places.google.tokens) > 3
    assert leaks(desk, KEY, *secrets_of(desk, places)) == []


def test_sources_that_refuse_us_and_repeat_what_we_said_get_no_secret_into_anything_of_ours(desk: Desk, places: Places) -> None:
    google, org = places.google, places.org

    def echo(_number: int = 0) -> None:
        org.troubles.answers[:] = [(400, "MALFORMED_QUERY", f"Bearer {' '.join(org.sessions)} {ORG_PASSWORD}{ORG_TOKEN}")]
        told = {"message": f"Bearer {' '.join(list(google.tokens)[-1:])}", "status": "PERMISSION_DENIED"}
        google.faults[:] = [Fault(where="/v4/", status=403, body={"error": told}, times=9)]

    class Asked(list[str]):
        def append(self, asked: str) -> None:
            super().append(asked)
            echo()

    google.asked, org.troubles.before_page = Asked(), echo
    with serving(key=KEY) as service:
        desk.env["EVENT_API_BASE_URL"] = service.base_url
        for words in (("run", "--all", "--no-dagster", "--json"), ("check", "--live"), ("preview", "demo-salesforce")):
            assert desk.command(*words, EVENTSYNC_LOG="json debug").code != 0
        org.password = "changed-since-0815"
        assert desk.command("run", "demo-salesforce", "--no-dagster").code != 0
        desk.command("runs", "--json")
    assert leaks(desk, KEY, *secrets_of(desk, places)) == []
