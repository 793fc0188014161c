from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from unit.state.world import DESTINATION, START, World

from state.notes import KnownAddress, MediaMemory
from state.tables import UtcTime


def test_an_image_is_known_by_content_and_by_address(world: World) -> None:
    memory = MediaMemory(world.engine, DESTINATION)
    assert (memory.known_content(b"digest"), memory.known_address("https://img.example/a")) == (None, None)
    memory.remember("https://img.example/a", b"digest", 17, etag='"v1"', seen_at=START)
    memory.remember("https://img.example/b", b"digest", 17, etag="", seen_at=START)
    assert memory.known_content(b"digest") == 17
    assert memory.known_address("https://img.example/a") == KnownAddress(b"digest", '"v1"', START)


def test_an_address_remembers_what_lay_there_last(world: World) -> None:
    memory = MediaMemory(world.engine, DESTINATION)
    memory.remember("https://img.example/a", b"old", 17, etag="", seen_at=START)
    memory.remember("https://img.example/a", b"new", 18, etag="", seen_at=START)
    address = memory.known_address("https://img.example/a")
    assert address is not None
    assert memory.known_content(address.content_digest) == 18


def test_images_of_another_destination_are_unknown(world: World) -> None:
    MediaMemory(world.engine, DESTINATION).remember("https://img.example/a", b"digest", 17, etag="", seen_at=START)
    assert MediaMemory(world.engine, "elsewhere").known_content(b"digest") is None


def test_a_time_without_a_zone_is_never_stored(world: World) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        UtcTime().process_bind_param(datetime(2026, 3, 1), world.engine.dialect)  # noqa: DTZ001 # the mistake under test


def test_stored_times_sort_as_text(world: World) -> None:
    whole, later = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC)
    stored = [str(UtcTime().process_bind_param(each, world.engine.dialect)) for each in (whole, later)]
    assert stored == sorted(stored)
    assert [UtcTime().process_result_value(each, world.engine.dialect) for each in stored] == [whole, later]


def test_runs_that_remember_one_image_in_the_same_moment_do_not_trip_over_each_other(world: World) -> None:
    def remember(media_id: int) -> None:
        for _ in range(20):
            MediaMemory(world.engine, DESTINATION).remember("https://img.example/a", b"digest", media_id, etag="", seen_at=START)

    with ThreadPoolExecutor(4) as runs:
        list(runs.map(remember, range(1, 5)))
    assert MediaMemory(world.engine, DESTINATION).known_content(b"digest") in {1, 2, 3, 4}
