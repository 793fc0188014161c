"""Bodies are held by the thousand while they are staged: each in as much room as it takes."""

from __future__ import annotations

import tracemalloc

from mappings.event import dump

HEAD_OF_BYTES = 64
"""Bytes that Python keeps beside those of an object, at most."""


def test_a_body_is_held_in_as_much_room_as_it_takes() -> None:
    payloads = [{"title": "An evening of songs", "description": "x" * length} for length in range(100, 8_000, 100)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    bodies = [dump(payload) for payload in payloads]
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < sum(map(len, bodies)) + HEAD_OF_BYTES * len(bodies)
