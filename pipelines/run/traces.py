"""What a read of a whole source leaves behind for the next one, and what it takes up of what the last one left.

What evidence is worth is `sameness`'s, what is remembered of records `recalling`'s; both are kept by the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from connectors.sources.contract import Reading, Source
from connectors.sources.files.snapshot import Sight
from mappings.compiler.mapper import RowMapper
from pipelines.run.reading import Evidence, Sameness
from pipelines.run.recalling import Known, Memory, recall
from state.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Trace:
    """A read before it begins. `stamp`: that of a reading of the source as it was seen, "" where nothing is left behind;
    `evidence` of what it looks like; `memory`: what remembers its records, None where none are.
    """

    stamp: str = ""
    evidence: Evidence | None = None
    memory: Memory | None = None

    def of(self, reading: Reading) -> Trace:
        """Return what is left of it by this reading: nothing, if the source is another one by now."""
        if self.evidence is None or reading.stamp != self.stamp:
            return NO_TRACE
        if self.memory is None or reading.records is None:
            return replace(self, memory=None)
        reading.records.seal()
        if self.memory.recollection is not None:
            reading.records.only(self.memory.recollection.pieces)
        return replace(self, evidence=replace(self.evidence, layout=reading.records.layout))


NO_TRACE = Trace()


@dataclass(frozen=True, slots=True)
class Tracing:
    """What a read is traced with: how its source is told again, the ledger, the mapper, the source itself."""

    sameness: Sameness
    ledger: Ledger
    mapper: RowMapper
    source: Source

    def trace(self, sight: Sight, *, is_anew: bool) -> Trace:
        """Look through a source that is not as it was. `is_anew`: for nothing, as all of its rows are to be read."""
        evidence = self.sameness.of_read(sight)
        if evidence is None or not self.mapper.takes_rows_alone:
            return Trace(sight.read_as, evidence)
        kept = "" if is_anew else self.ledger.stamp()
        last = self.sameness.known(kept)
        found = recall(Known(self.ledger, kept, last.layout, self.mapper.key_of), self.source) if last else None
        if last is None or found is None or found.stamp != sight.read_as:
            return Trace(sight.read_as, evidence, Memory(None))
        return Trace(sight.read_as, replace(evidence, read_at=last.read_at), Memory(found))
