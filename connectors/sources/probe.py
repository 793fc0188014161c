"""A glance at a source that costs a request or two: whether something has come or changed since an earlier one.

Nothing of it is read. Files of this machine are looked at more closely before they are read, in `sights`.
"""

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
    """What was seen. `marks`: one for each version of each file or sheet. `blind`: why nothing can be said from it, "" if it can.

    `is_growing`: what is gone again does not count, only what has come or changed.
    """

    marks: frozenset[str] = frozenset()
    is_growing: bool = False
    blind: str = ""

    def is_news_to(self, seen: frozenset[str]) -> bool:
        """Whether there is more to read than when the marks `seen` were all there were."""
        return not self.marks <= seen if self.is_growing else self.marks != seen


def probe_source(spec: AnySource, base: Path, *, access: Access, clock: Clock = REAL_CLOCK) -> SourceProbe:
    """Look at what a source would read now, its second tables among it, unless its files are read once each.

    Raises:
        SyncError: it cannot be looked at; whoever reads it fails as well.
    """
    with masked_errors(access.mask):
        own = _own(spec, base, access, clock)
        if own.blind or own.is_growing:
            return own
        marks = set(own.marks)
        for place, join in enumerate(spec.join):
            beside = probe_source(join.source, base, access=access, clock=clock)
            if beside.blind:
                return beside
            marks.update(f"{place}:{mark}" for mark in beside.marks)
    return replace(own, marks=frozenset(marks))


def _own(spec: AnySource, base: Path, access: Access, clock: Clock) -> SourceProbe:
    match spec:
        case FileSource():
            with masked_errors(Mask(secrets_of(spec.path))):
                return _files(choice_of(spec, base, clock))
        case GoogleSheetsSource():
            return _sheet(spec, access, clock)
        case _:
            return SourceProbe(blind=f"a source of kind {spec.kind} is asked what has changed by each run")


def _files(unconnected: FileChoice) -> SourceProbe:
    with unconnected.connected() as choice:
        spec, there = choice.spec, choice.found()
        meant = there[-1:] if spec.files == "newest" else there
        left = choice.unfinished(meant, may_wait=False)
    if spec.files == "new":
        unfinished = {one.file for one in left}
        return SourceProbe(frozenset(file_digest(file) for file in meant if file not in unfinished), is_growing=True)
    if left:
        return SourceProbe(blind=str(left[0]))
    untold = next((file for file in meant if not file.version), None)
    if untold is not None:
        return SourceProbe(blind=f"{untold.label} tells no version, or has only just been written")
    return SourceProbe(frozenset(map(file_digest, meant)))


def _sheet(spec: GoogleSheetsSource, access: Access, clock: Clock) -> SourceProbe:
    with needed_extra("sheets", spec.place):
        # Here, as feeds of files need not wait for what knows Google.
        from connectors.sources.google_sheets.spreadsheet import opened_spreadsheet  # noqa: PLC0415
    with opened_spreadsheet(spec, access, clockwork=clock) as sheet:
        version = sheet.version()
        mark = blake2b(f"{sheet.id} {version}".encode(), digest_size=9).hexdigest()
    return SourceProbe(frozenset({mark})) if version else SourceProbe(blind=f"the Drive API tells no version of {spec.place}")
