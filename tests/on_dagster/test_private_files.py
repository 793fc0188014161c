"""What we keep is for its owner alone, whichever process makes it; what a person asked for follows the umask."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from documents import surprises
from integration.desk import WarmStart, shell_environ
from on_dagster.desk import FEED, Desk, ended, line

from pipelines.clock import now

PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmStart]:
    """One whose commands have the umask of a person."""
    before = os.umask(0o022)
    try:
        started = WarmStart()
    finally:
        os.umask(before)
    with closing(started):
        yield started


def environ_of(desk: Desk, **env: str) -> Mapping[str, str]:
    """Where all is kept as it is by default."""
    given = {name: value for name, value in desk.environ.items() if name not in {"EVENTSYNC_STATE_URL", "DAGSTER_HOME"}}
    return {**given, "EVENTSYNC_LOG": "json debug", **env}


def run(desk: Desk, *words: str, **env: str) -> tuple[str, str]:
    """Run a command of `eventsync`; return what it printed, and what it complained of."""
    code, out, err = ended(desk.start(*words, environ=environ_of(desk, **env)))
    assert code == 0, err
    return out, err


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.lstat().st_mode))


def open_to_others(folder: Path) -> Mapping[str, str]:
    """What others than the owner may read or write, of a folder and all that is in it."""
    return {str(path): mode(path) for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & 0o077}


def test_what_a_backfill_keeps_is_for_its_owner_alone(desk: Desk) -> None:
    day = str(now().date() + timedelta(days=9))
    desk.source([line(1, day=day)])
    run(desk, "backfill", FEED, "--from", day, "--to", day)
    assert list((desk.folder / ".eventsync" / "dagster").glob("history/*"))
    assert open_to_others(desk.folder / ".eventsync") == {}


@pytest.mark.slow(about_s=30)
def test_the_demo_tells_both_rounds_in_one_document_and_what_it_keeps_is_for_its_owner_alone(desk: Desk) -> None:
    out, err = run(desk, "demo", "--json", PATH=os.defpath)
    document = json.loads(out)
    assert (surprises(("demo",), document), document["sent_twice"]) == ([], 0)
    assert {report["feed"] for report in document["first"]} == {"krakow-culture", "lisbon-agenda", "osaka-fireworks"}
    assert f"source {PROGRAMS / 'activate'}" in err, "eventsync is not on the PATH"
    kept = desk.folder / ".eventsync"
    assert open_to_others(kept) == {}
    assert {path.name for path in (kept / "demo").iterdir()} >= {"dagster", "state.db"}


def test_what_an_earlier_version_or_dagster_itself_has_left_open_is_narrowed(desk: Desk) -> None:
    home = desk.folder / ".eventsync" / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    words = [PROGRAMS / "dagster", "job", "execute", "-m", "pipelines.definitions", "-j", "sync"]
    environ = shell_environ(environ_of(desk, DAGSTER_HOME=str(home)))
    subprocess.run(words, cwd=desk.folder, env=environ, umask=0o022, capture_output=True, check=True)
    assert len(desk.titles()) == 10
    kept = desk.folder / ".eventsync"
    assert (mode(kept), {mode(path) for path in kept.glob("state.db*")}) == ("0o700", {"0o600"})
    for path in (kept, home, kept / "state.db"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    run(desk, "run", FEED)
    assert [mode(kept), mode(home), mode(kept / "state.db")] == ["0o700", "0o700", "0o600"]


def test_a_folder_that_a_person_has_made_stays_as_it_is_and_what_is_made_in_it_for_the_state_db_is_private(desk: Desk) -> None:
    shared = desk.folder / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    for place in ("state.db", "deep/state.db"):
        run(desk, "run", FEED, "--no-dagster", EVENTSYNC_STATE_URL=f"sqlite:///shared/{place}")
    assert mode(shared) == "0o755"
    assert {mode(path) for path in shared.iterdir() if path.is_file()} == {"0o600"}
    assert open_to_others(shared / "deep") == {}


def test_what_a_run_keeps_and_an_export_are_private_and_what_a_person_asked_for_follows_the_umask(desk: Desk) -> None:
    for words in (
        ("run", FEED),
        ("state", "export", "books.gz"),
        ("rows", FEED, "--state", "rejected", "--csv", "rows.csv"),
        ("report", FEED, "--html", "page.html"),
        ("metrics", "--out", "numbers.prom"),
    ):
        run(desk, *words)
    kept = desk.folder / ".eventsync"
    assert open_to_others(kept) == {}
    assert {path.name for path in kept.iterdir()} >= {"dagster", "state.db"}
    modes = {name: mode(desk.folder / name) for name in ("books.gz", "rows.csv", "page.html", "numbers.prom")}
    assert modes == {"books.gz": "0o600", "rows.csv": "0o644", "page.html": "0o644", "numbers.prom": "0o644"}


def test_what_the_sandbox_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandbox", "--state", str(tmp_path / "service")]
    with subprocess.Popen(command, umask=0o022, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["base_url"]
        process.terminate()
    assert open_to_others(tmp_path / "service") == {}
