"""Lists of names in statements: few lengths, and nothing else asked for."""

from __future__ import annotations

import pytest

from state.database import rounded


@pytest.mark.parametrize("count", [1, 2, 3, 200, 256, 257, 1_999, 2_000])
def test_the_same_is_asked_for(count: int) -> None:
    names = [f"name {number}" for number in range(count)]
    assert list(dict.fromkeys(rounded(names))) == names


def test_lists_of_a_chunk_have_few_lengths() -> None:
    lengths = {len(rounded(range(count))) for count in range(1, 2_001)}
    assert len(lengths) <= 16
    assert max(lengths) <= 2_048


def test_a_dictionary_stands_for_its_keys() -> None:
    assert rounded({b"a": 1, b"b": 2, b"c": 3}) == [b"a", b"b", b"c", b"c"]
