"""Find slices of a backfill without rows, before a run is started for them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date

from connectors.sources.catalogue import SourceProbe, open_source, probe_org, probe_source
from connectors.sources.files.source import NO_FILES
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from mappings.spec.source import SalesforceSource
from pipelines.run.backfill import narrow_to
from pipelines.run.context import RunContext
from pipelines.run.options import Advance, Window
from pipelines.run.outcome import faults_as_errors
from pipelines.run.signals import signals_raised
from pipelines.run.stage import WindowFilter, read_chunks


@dataclass(slots=True)
class EmptySlices:
    """Decides before the run of a slice whether it has rows.

    If only reading shows a row's day, one pass over the source serves all slices; it is repeated for a slice without rows if the
    source may have changed since. `notices`: sentences about rows without a day.
    """

    context: RunContext
    mapping: FeedMapping
    notices: tuple[str, ...] = ()
    _mapper: RowMapper | None = None
    _days: Collection[date] = field(default_factory=frozenset)
    _probe: SourceProbe | None = None

    def has(self, window: Window, advance: Advance) -> bool:
        """Return whether the slice has no row; False if that is unknown: the run then reports why.

        `advance`: called with the number of rows read.
        """
        try:
            with faults_as_errors("searching the slice for rows"), signals_raised():
                return not self._has_rows(window, advance)
        except SyncError:
            return False

    def _has_rows(self, window: Window, advance: Advance) -> bool:
        mapping, access, folder = self.mapping, self.context.settings.access, self.mapping.path.parent
        mapper = self._mapper = self._mapper or compile_feed(mapping, self.context.lists(mapping).directory, self.context.now())
        spec = narrow_to(mapping, window, mapper).source
        if window.by == "event" or window.column:
            if not any(map(window.holds, self._days)):
                self._read_days(window, mapper, advance)
            return any(map(window.holds, self._days))
        if isinstance(spec, SalesforceSource):
            return probe_org(spec, mapper.columns, access=access).records != 0
        with open_source(spec, folder, mapper.columns, access=access, since=NO_FILES, folders=mapping.folders).read() as reading:
            return next(reading.rows, None) is not None

    def _read_days(self, window: Window, mapper: RowMapper, advance: Advance) -> None:
        """Collect the days of all rows, unless the source is unchanged since the last time."""
        mapping, access, folder = self.mapping, self.context.settings.access, self.mapping.path.parent
        # Before the read, so that a change during it is noticed.
        probe = probe_source(mapping.source, folder, access=access, folders=mapping.folders)
        if probe == self._probe and not probe.blind:
            return
        days, days_of = set[date](), WindowFilter(window)
        spec = narrow_to(mapping, window, mapper).source
        with open_source(spec, folder, mapper.columns, access=access, folders=mapping.folders).read() as reading:
            for chunk in read_chunks(days_of.days(reading.rows, mapper)):
                days.update(chunk)
                advance(len(chunk))
        self._days, self._probe, self.notices = days, probe, tuple(days_of.notices())[1:]
