"""Probes: cheap requests that show whether something of a source has come or changed, without reading it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from connectors.masking import Mask
from connectors.sources.catalogue import needed_extra
from connectors.sources.environment import REAL_CLOCK, Access, Clock
from connectors.sources.feed_source import masked_errors
from connectors.sources.files.choice import FileChoice
from connectors.sources.files.source import choice_of, file_digest
from mappings.spec.source import AnySource, FileSource, GoogleSheetsSource
from mappings.spec.source_words import secrets_of


@dataclass(frozen=True, slots=True)
class SourceProbe:
    """`marks`: a digest for each version of each file or sheet. `blind`: why nothing can be concluded, "" if it can.

    `is_growing`: what is gone again does not count, only what has come or changed.
    """

    marks: frozenset[str] = frozenset()
    is_growing: bool = False
    blind: str = ""

    def is_news_to(self, seen: frozenset[str]) -> bool:
        """Whether there is more to read than when `seen` were all marks."""
        return not self.marks <= seen if self.is_growing else self.marks != seen


def probe_source(spec: AnySource, base: Path, *, access: Access, clock: Clock = REAL_CLOCK) -> SourceProbe:
    """Probe what a source would read now, its second tables among it, unless its files are read once each.

    Raises:
        SyncError: it cannot be probed; reading it fails as well.
    """
    with masked_errors(access.mask):
        own = _probe_own(spec, base, access, clock)
        if own.blind or own.is_growing:
            return own
        marks = set(own.marks)
        for place, join in enumerate(spec.join):
            table = probe_source(join.source, base, access=access, clock=clock)
            if table.blind:
                return table
            marks.update(f"{place}:{mark}" for mark in table.marks)
    return replace(own, marks=frozenset(marks))


def _probe_own(spec: AnySource, base: Path, access: Access, clock: Clock) -> SourceProbe:
    match spec:
        case FileSource():
            with masked_errors(Mask(secrets_of(spec.path))):
                return _probe_files(choice_of(spec, base, clock))
        case GoogleSheetsSource():
            return _probe_sheet(spec, access, clock)
        case _:
            return SourceProbe(blind=f"a source of kind {spec.kind} is asked what has changed by each run")


def _probe_files(unconnected: FileChoice) -> SourceProbe:
    with unconnected.connected() as choice:
        spec, there = choice.spec, choice.found()
        meant = there[-1:] if spec.files == "newest" else there
        unfinished = choice.unfinished(meant, may_wait=False)
    if spec.files == "new":
        waiting = {one.file for one in unfinished}
        return SourceProbe(frozenset(file_digest(file) for file in meant if file not in waiting), is_growing=True)
    if unfinished:
        return SourceProbe(blind=str(unfinished[0]))
    for file in meant:
        if not file.version:
            return SourceProbe(blind=f"{file.label} has no version, or has only just been written")
    return SourceProbe(frozenset(map(file_digest, meant)))


def _probe_sheet(spec: GoogleSheetsSource, access: Access, clock: Clock) -> SourceProbe:
    with needed_extra("sheets", f"to read {spec.place}"):
        # Here, as importing gspread takes long.
        from connectors.sources.google_sheets.spreadsheet import open_spreadsheet  # noqa: PLC0415
    with open_spreadsheet(spec, access, clock=clock) as sheet:
        version = sheet.version()
        digest = blake2b(f"{sheet.id} {version}".encode(), digest_size=9).hexdigest()
    return SourceProbe(frozenset({digest})) if version else SourceProbe(blind=f"the Drive API gives no version of {spec.place}")
