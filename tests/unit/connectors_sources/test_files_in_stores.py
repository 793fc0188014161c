"""Files on an SFTP server and in a bucket, read by the real drivers from real servers on the loopback interface."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.config import conf
from lookalikes.bucket_files import Bucket, bucket_server
from lookalikes.sftp_files import Sftp, sftp_server
from unit.connectors_sources.reading import assert_untold, far_source, read_far

from connectors.sources.contract import SourceRefusedError, SourceUnavailableError
from mappings.errors import SyncError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sftp]:
    with sftp_server(tmp_path_factory.mktemp("sftp")) as served:
        yield served


@pytest.fixture
def sftp(server: Sftp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sftp]:
    monkeypatch.setitem(conf, "sftp", {"known_hosts": str(server.known_hosts)})
    (server.root / "in").mkdir()
    yield server
    shutil.rmtree(server.root / "in")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with bucket_server() as served:
        monkeypatch.setitem(conf, "s3", {"endpoint_url": served.url, "key": "AKIAPARTNER", "secret": "s3cret-word-of-ours"})
        yield served


def test_a_folder_that_is_not_there_is_refused_and_an_empty_one_as_well(sftp: Sftp) -> None:
    with pytest.raises(SourceRefusedError, match="there is no folder /out"):
        read_far(sftp.address("/out/*.csv"))
    with pytest.raises(SourceRefusedError, match="no file matches"):
        read_far(sftp.address("/in/*.csv"))


@pytest.mark.parametrize("user", ["partner:wr0ng-word", "stranger:wr0ng-word"])
def test_a_wrong_password_is_a_refusal_that_does_not_tell_it(sftp: Sftp, user: str) -> None:
    with pytest.raises(SourceRefusedError, match="we may not read") as caught:
        read_far(sftp.address("/in/agenda.csv", user=user))
    assert_untold(caught.value, "wr0ng-word")


def test_a_server_that_this_machine_does_not_know_is_not_told_our_password(
    sftp: Sftp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts that are known are those that we were told of, or those of the user's own list."""
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    (sftp.root / "in" / "agenda.csv").write_text("id\n1\n")
    (tmp_path / "known_hosts").touch()
    for how in ({"known_hosts": str(tmp_path / "known_hosts")}, {}):
        monkeypatch.setitem(conf, "sftp", how)
        with pytest.raises(SourceRefusedError, match="a server that this machine does not know") as caught:
            read_far(sftp.address("/in/agenda.csv"))
        assert "known_hosts" in caught.value.hint
    (tmp_path / ".ssh" / "known_hosts").write_bytes(sftp.known_hosts.read_bytes())
    assert len(read_far(sftp.address("/in/agenda.csv"))[0]) == 1


@pytest.mark.parametrize("path", ["in/agenda.csv", "in/*.csv"])
def test_a_closed_bucket_and_one_that_is_not_there_are_refused(bucket: Bucket, path: str) -> None:
    with pytest.raises(SourceRefusedError, match="s3://elsewhere/in"):
        read_far(bucket.address(path).replace("partner", "elsewhere"))
    bucket.is_closed = True
    with pytest.raises(SourceRefusedError) as caught:
        read_far(bucket.address(path))
    assert_untold(caught.value, "s3cret-word")


def test_a_server_that_is_down_is_unavailable(sftp: Sftp) -> None:
    with pytest.raises(SourceUnavailableError, match="could not be fetched"):
        read_far(sftp.address("/in/agenda.csv").replace(str(sftp.port), "9"))


@pytest.mark.parametrize("address", ["gopher://host/a.csv", "file:///nowhere/a.csv", "memory://nowhere.csv"])
def test_an_address_that_nothing_can_open_is_refused(address: str) -> None:
    with pytest.raises(SourceRefusedError):
        read_far(address)


def test_an_object_that_has_not_changed_is_not_fetched(bucket: Bucket) -> None:
    bucket.objects["in/agenda.csv"] = b"id\n1\n"
    cursor = read_far(bucket.address("in/agenda.csv"))[2].cursor
    bucket.asked.clear()
    assert read_far(bucket.address("in/agenda.csv"), since=cursor)[:2] == ([], False)
    assert not [asked for asked in bucket.asked if asked.startswith("GET") and "list-type" not in asked]


def test_a_pattern_means_the_objects_of_a_bucket(bucket: Bucket) -> None:
    bucket.objects = {"in/b.csv": b"id\n2\n", "in/a.csv": b"id\n1\n", "in/old/c.csv": b"id\n3\n", "in/d.txt": b""}
    rows, _, ending = read_far(bucket.address("in/*.csv"), files="new")
    assert rows == [["a.csv:2", "1"], ["b.csv:2", "2"]]
    bucket.objects["in/b.csv"] = b"id\n4\n"
    assert read_far(bucket.address("in/*.csv"), since=ending.cursor, files="new")[0] == [["b.csv:2", "4"]]


def test_an_object_of_many_pieces_comes_whole(bucket: Bucket) -> None:
    lines = [f"{number},{'x' * 200}" for number in range(60_000)]
    bucket.objects["in/agenda.csv"] = "\n".join(["id,text", *lines]).encode()
    with far_source(bucket.address("in/agenda.csv")).read() as reading:
        assert sum(1 for _ in reading.rows) == 60_000


def test_a_store_without_its_driver_names_what_to_install() -> None:
    with pytest.raises(SyncError) as caught:
        read_far("gs://partner/agenda.csv")
    assert caught.value.hint == "run `pip install 'eventsync[gcs]'`"


def test_any_address_that_fsspec_knows_will_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    assert read_far((tmp_path / "a.csv").as_uri(), base=tmp_path)[0] == [["a.csv:2", "1", "x"]]


def test_what_fails_while_rows_are_made_use_of_is_not_the_store_s_fault(bucket: Bucket) -> None:
    bucket.objects["in/agenda.csv"] = b"id\n1\n"
    with pytest.raises(KeyError), far_source(bucket.address("in/agenda.csv")).read() as reading:
        next(reading.rows).cells["absent"]
