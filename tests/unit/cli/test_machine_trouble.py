"""What the machine lacks, room on a disk or a file of certificates, is named as such, and replaces no outcome of work."""

from __future__ import annotations

import io
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.desk import FEED
from lookalikes.web_files import web_server
from unit.cli.conftest import GOOD, HEADER, MAPPING, Desk, called

SENTENCES = {
    "SSL_CERT_FILE": "there is no",
    "SSL_CERT_DIR": "there is no",
    "REQUESTS_CA_BUNDLE": "there is no",
    "ALL_PROXY": "is no kind of proxy",
    "https_proxy": "is no kind of proxy",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_certificates_that_are_gone_and_proxies_of_another_kind_are_named_at_the_start(name: str, desk: Desk) -> None:
    desk.monkeypatch.setenv(name, "socks://user:pass-w0rd@proxy.example:1080" if "roxy" in name.lower() else "/nowhere/ca.pem")
    said = desk.run("run", FEED, "--no-dagster")
    said.assert_told(2, f"{name}: ", SENTENCES[name])
    assert "w0rd" not in said.words


def test_a_file_of_certificates_that_holds_none_is_named(desk: Desk) -> None:
    (desk.folder / "ca.pem").write_text("no certificate\n", "utf-8")
    desk.monkeypatch.setenv("SSL_CERT_FILE", str(desk.folder / "ca.pem"))
    desk.run("status").assert_told(2, "SSL_CERT_FILE: it holds no certificates")


def test_a_full_stdout_changes_no_outcome_of_a_run_and_fails_what_only_shows(desk: Desk) -> None:
    desk.source(GOOD)
    with desk.service() as service:
        for words, code in ((("run", FEED, "--no-dagster"), 0), (("status",), 2), (("status", "--json"), 2), (("check",), 0)):
            err = io.StringIO()
            with Path("/dev/full").open("w", encoding="utf-8") as full:
                assert (called(words, full, err), words) == (code, words)
            assert "the output could not be written: No space left on device" in err.getvalue()
        assert len(service.bodies()) == len(GOOD)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let this process write no file beyond a size, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_temporary_folder_is_trouble_of_this_machine_and_not_of_the_source(desk: Desk) -> None:
    lines = [HEADER, *(f"{number},Jazz,2030-05-01,19:30,,concert" for number in range(5_000))]
    with web_server() as web:
        web.put("/events.csv", "\n".join(lines) + "\n")
        desk.mapping(MAPPING.replace("../events.csv", web.address("/events.csv")))
        with largest_file(64 * 1024):
            desk.run("preview", FEED, "--rows", "1").assert_told(2, "no room is left on a disk", "TMPDIR")
        desk.run("preview", FEED, "--rows", "1").assert_told(0, "Jazz")


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a small disk for the length of the block, where this user may."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may mount nothing")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, left: int) -> None:
    """Fill a disk but for a number of bytes."""
    ballast = disk / "ballast"
    ballast.write_bytes(b"")
    status = os.statvfs(disk)
    ballast.write_bytes(bytes(max(status.f_bavail * status.f_frsize - left, 0)))


def test_a_full_disk_under_dagsters_history_replaces_no_outcome_of_a_run(desk: Desk) -> None:
    home, rows, told = desk.folder / "dagster", list[str](), list[str]()
    with desk.service() as service, small_disk(home, 16):
        for day, left in enumerate((10_000_000, 0, 250_000, 275_000, 300_000, 325_000, 350_000), start=1):
            fill(home, left)
            before = len(service.bodies())
            rows += [f"{day}-{number},Evening {day * 20 + number},2030-05-{day:02},19:30,,concert" for number in range(20)]
            desk.source(rows)
            said = desk.run("run", FEED)
            is_done = len(service.bodies()) == len(rows)
            assert (said.code, is_done or len(service.bodies()) == before) == (0 if is_done else 2, True), said.words
            assert is_done or "no room is left on a disk" in said.words
            assert "a bug in eventsync" not in said.words
            told.append(said.words)
        assert any("Dagster's history lacks a part of this run" in words and "= delivered " in words for words in told)
