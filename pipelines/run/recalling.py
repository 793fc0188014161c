"""A source that is not as it was, though most of its records are: what has to be read of it, and what is remembered of all.

What a memory means, and when it holds, is `state.recall`'s; how records are told from one another, `sifting`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryFile

from connectors.sources.contract import Piece, Reading, Records, Source
from mappings.errors import SyncError
from mappings.outcome import SourceRow
from mappings.row_key import RowKey
from pipelines.run.sifting import Sequel, Sieve, each_part
from pipelines.run.spilling import Parts
from state.ledger.ledger import Ledger
from state.ledger.recall import ENTRY_OF_PAIR

MOST_DIFFERING = 100_000
"""Records. Beyond, so much would have to be kept in mind that the source had better be read as if nothing were known of it."""


@dataclass(frozen=True, slots=True)
class Recollection:
    """What a look through a source found in the last read's memory. `stamp`: the source's then; `pieces`: what has to be read;
    `forgotten`: the entries whose records are not there any more, or have to be read; `touched`: the parts that these are in.
    """

    stamp: str
    pieces: list[Piece]
    forgotten: frozenset[int]
    touched: frozenset[int]

    def unchanged(self, ledger: Ledger) -> Iterator[Collection[int]]:
        """Yield the entries of all other records, a part at a time: each stands there once, as it was."""
        for _, pairs in each_part(ledger.remembered):
            entries = [entry_id for (entry_id,) in ENTRY_OF_PAIR.iter_unpack(pairs)]
            yield entries if self.forgotten.isdisjoint(entries) else [one for one in entries if one not in self.forgotten]


class Memory(Parts):
    """What a read that follows a recollection, or none, is to leave behind; keeps the promises of `state.recall.Remembering`."""

    def __init__(self, recollection: Recollection | None) -> None:
        super().__init__()
        self.recollection = recollection
        self.is_anew = recollection is None
        self.forgotten = recollection.forgotten if recollection else frozenset[int]()
        self._touched = recollection.touched if recollection else frozenset[int]()

    def changed(self) -> Iterable[int]:
        """Return the parts to write."""
        return sorted({*self._touched, *self.filled()})

    def added(self, part: int) -> bytes:
        """Return what was added to a part."""
        return self.of(part)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a source is looked through: the ledger, the evidence that the last read left, the layout of its
    records, "" if it remembered none, and how a row's key is told.
    """

    ledger: Ledger
    stamp: str
    layout: str
    key_of: Callable[[SourceRow], RowKey]


def recall(known: Known, source: Source) -> Recollection | None:
    """Look through a source for what the last read remembers; None where all of its rows have to be read."""
    doubtful = known.ledger.doubtful(known.stamp, MOST_DIFFERING) if known.layout else None
    if doubtful is None:
        return None
    try:
        with ExitStack() as stack:
            reading = stack.enter_context(source.read())
            if reading.records is None or reading.records.layout != known.layout:
                return None
            look = _Look(known, reading, reading.records, Sieve(known.ledger.remembered, doubtful, MOST_DIFFERING))
            return look.through(Sequel(stack.enter_context(TemporaryFile(prefix="eventsync-"))))
    except SyncError:
        return None  # whoever reads the rows says what is wrong


@dataclass(frozen=True, slots=True)
class _Look:
    """A look through an open source."""

    known: Known
    reading: Reading
    records: Records
    sieve: Sieve

    def through(self, sequel: Sequel) -> Recollection | None:
        """Find out what has to be read of the source; None where that is too much.

        Rows of records that differ are made once for their keys alone: where one speaks for the entry of a remembered record, it
        depends on their order what becomes of the two, and both are read.
        """
        if not self._sifted(sequel):
            return None
        pieces = self._pieces(sequel)
        if self.sieve.take_out(self._spoken_for(pieces)):
            pieces = self._pieces(sequel)
        return Recollection(self.reading.stamp, pieces, frozenset(self.sieve.forgotten), frozenset(self.sieve.touched))

    def _sifted(self, sequel: Sequel) -> bool:
        with Parts() as digests:
            for chunk in self.records.digests():
                sequel.put(chunk)
                digests.put(chunk)
            return self.sieve.sift(digests)

    def _pieces(self, sequel: Sequel) -> list[Piece]:
        return list(self.records.pieces(sequel.places(self.sieve.differing)))

    def _spoken_for(self, pieces: Iterable[Piece]) -> frozenset[int]:
        """Return the entries of the rows of these pieces; a row without a key has none."""
        self.records.only(pieces)
        keys = set(map(self.known.key_of, self.reading.rows))
        return self.known.ledger.entries_of(sorted(keys))
