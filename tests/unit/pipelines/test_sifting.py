"""What a source's records are sifted into comes to the same however many of them are in one part of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import pytest

from pipelines.run.sifting import Sieve, each_part
from pipelines.run.spilling import PARTS, Parts
from state.ledger.recall import PAIR

MANY = 1_000_000


def digest(number: int) -> bytes:
    """One of a part's digests: they all begin with the same byte."""
    return b"\7" + blake2b(str(number).encode(), digest_size=15).digest()


def memory_of(entries: Mapping[bytes, int]) -> dict[int, bytes]:
    return {7: b"".join(PAIR.pack(record, entry_id) for record, entry_id in entries.items())}


@pytest.mark.parametrize("count", [100, 8_000, 20_000])
def test_records_are_known_lost_new_and_repeated_whether_their_part_is_small_or_large(count: int) -> None:
    memory = memory_of({digest(number): number for number in range(count)})
    sieve = Sieve(lambda few: {part: memory[part] for part in few if part in memory}, frozenset({7}), MANY)
    with Parts() as found:
        found.put([digest(number) for number in range(10, count + 10)])
        found.put([digest(50), digest(count + 3)])
        assert sieve.sift(found)
    new = {digest(number) for number in range(count, count + 10)}
    assert sieve.differing == {*new, digest(50)}
    assert sieve.forgotten == {*range(10), 50}
    assert sieve.touched == {7}


def test_an_entry_of_which_the_memory_tells_nothing_for_certain_is_read_in_a_large_part_too() -> None:
    memory = memory_of({digest(number): number for number in range(20_000)})
    sieve = Sieve(lambda few: {part: memory[part] for part in few if part in memory}, frozenset({12_345}), MANY)
    with Parts() as found:
        found.put([digest(number) for number in range(20_000)])
        assert sieve.sift(found)
    assert (sieve.differing, sieve.forgotten) == ({digest(12_345)}, {12_345})


@pytest.mark.parametrize("length", [0, 24, 24 * 4_000, 24 * 100_000])
def test_each_part_is_asked_for_once_and_large_ones_one_at_a_time(length: int) -> None:
    asked: list[range] = []

    def remembered(few: range) -> dict[int, bytes]:
        asked.append(few)
        return {part: bytes([part]) * length for part in few if length}

    assert list(each_part(remembered)) == [(part, bytes([part]) * length) for part in PARTS]
    assert [part for few in asked for part in few] == list(PARTS)
    assert max(map(len, asked)) * length < 1_500_000 or max(map(len, asked)) == 1
