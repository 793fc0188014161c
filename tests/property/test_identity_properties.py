from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from mappings.row_key import FeedName, RowKey, idempotency_key, row_digest, row_key

TEXT = st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from("|\\ \u00a0e\u0301"), max_size=8)
PARTS = st.lists(TEXT, min_size=1, max_size=4)
TUPLES = st.tuples(TEXT, TEXT, TEXT, TEXT, st.integers(0, 99))


def _normal(parts: list[str]) -> list[str]:
    return [unicodedata.normalize("NFC", part).strip() for part in parts]


@given(PARTS, PARTS)
def test_two_rows_share_a_key_only_if_their_parts_are_the_same(one: list[str], other: list[str]) -> None:
    assert (row_key(one) == row_key(other)) == (_normal(one) == _normal(other))


@given(PARTS)
def test_a_row_key_does_not_care_for_white_space_around_or_the_spelling_of_accents(parts: list[str]) -> None:
    dressed = [f" \u2003{unicodedata.normalize('NFD', part)}\t" for part in parts]
    assert row_key(dressed) == row_key(parts)


@given(TUPLES, TUPLES)
def test_different_intents_never_share_an_idempotency_key(
    one: tuple[str, str, str, str, int], other: tuple[str, str, str, str, int]
) -> None:
    def key(parts: tuple[str, str, str, str, int]) -> str:
        namespace, feed, row, action, revision = parts
        return idempotency_key(namespace, FeedName(feed), RowKey(row), action=action, revision=revision)

    assert (key(one) == key(other)) == (one == other)
    assert len(key(one)) == 36
    assert key(one).isascii()


CELLS = st.lists(st.text(alphabet=st.sampled_from("\x1f\x00a1:|\ud800é"), max_size=3), max_size=4)


@given(CELLS, CELLS)
def test_rows_of_different_cells_never_share_a_digest(one: list[str], other: list[str]) -> None:
    assert (row_digest(b"mapping", one) == row_digest(b"mapping", other)) == (one == other)
