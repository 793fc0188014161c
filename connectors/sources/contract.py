"""The contract of every source of rows.

* **Streams.** Rows are produced while they are requested; memory does not grow with their number.
* **Locations.** Each row's `RowLocation` is where a person finds it, with the row's true number.
* **Every row.** Blank rows are rows too, so that numbers and counts agree with what a person sees; each row has a cell for each
  of `Reading.columns`, "" if the source has none.
* **Text.** A cell is the source's text: never trimmed, converted to a number, or interpreted as "missing".
* **All or an exception.** A source that cannot be read, ends early, lacks a column or changes meanwhile raises one of the
  errors below; it never ends silently with fewer rows. Problems of a single row are only in `SourceRow.problems`.
* **Closes what it opened** when the `with` block ends, read to the end or not. Rows are requested inside the block.
* **Repeatable.** `read()` may be called any number of times; each reading starts from the first row, or, if the source was
  opened with the cursor of an earlier reading, from that cursor.
* **Cursors**, if a kind has them: `AnySource.full_every` of its model says how often it is read in full nevertheless. A cursor
  that the source does not know (any more) leads to a full read.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from connectors.masking import Mask
from mappings.columns import LINK, NO_LINKS
from mappings.errors import ConfigError, PermanentError, TransientError
from mappings.outcome import SourceRow


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a complete reading.

    `cursor`: where a later reading may continue, "" if the source has no cursors; it covers exactly the rows that were
    returned, and may be stored only once they are. `notices`: messages for the operator, such as that the reading was cut short
    by a limit of the source. `is_short`: it was, so rows are missing after those returned, and an absent one has not vanished.
    """

    cursor: str = ""
    notices: tuple[str, ...] = ()
    is_short: bool = False


class Bookmark:
    """The cursor of a kind that reads changes: it belongs to what is asked for, `question`, which JSON can hold.

    `before`: how far the earlier reading came, "" if there was none, or it asked for something else.
    """

    def __init__(self, cursor: str, question: object) -> None:
        self._digest = blake2b(json.dumps(question, default=str).encode(), digest_size=8).hexdigest()
        before, _, asked_for = cursor.rpartition(" ")
        self.before = before if asked_for == self._digest else ""

    def cursor_at(self, reached: str) -> str:
        """Return the cursor of a reading that came so far, "" for none."""
        return f"{reached} {self._digest}" if reached else ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass over a source.

    `columns`: the names in the source's order, spelt as in the mapping if it uses them. `rows`: can be consumed once. `stamp`:
    the version of the content, taken before the first row; equal stamps mean equal content, "" means unknown. `is_whole`: the
    rows are complete, so that an absent one has vanished; otherwise they are the changed ones, and deleted ones have
    `SourceRow.is_gone`. `has_known_end`: it is proved that the source arrived completely; otherwise rows may be missing at the
    end. `ending`: to be called after all rows are consumed. `headers`: the source's own name of each column, where it has one.
    """

    columns: tuple[str, ...]
    rows: Iterator[SourceRow]
    stamp: str = ""
    is_whole: bool = True
    ending: Callable[[], Ending] = Ending
    has_known_end: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_empty(self, columns: tuple[str, ...]) -> Reading:
        """Return the reading with optional columns that the source lacks, empty in every row."""
        if not columns:
            return self
        blank = dict.fromkeys(columns, "")
        rows = (replace(row, cells={**row.cells, **blank}) for row in self.rows)
        return replace(self, columns=self.columns + columns, rows=rows)


def unchanged(columns: tuple[str, ...], cursor: str, name: str) -> Reading:
    """Return an empty reading for a source that has not changed since the reading with `cursor`."""
    notice = f"{name} has not changed since it was last read"
    return Reading(columns, iter(()), cursor, is_whole=False, ending=lambda: Ending(cursor, (notice,)))


OpenReading = Callable[[], AbstractContextManager[Reading]]
"""Starts a reading, under the contract of `Source.read`."""


class Source(Protocol):
    """A place to read rows from, as configured for one feed."""

    def read(self) -> AbstractContextManager[Reading]:
        """Open the source and match its columns; rows are produced on request.

        Raises:
            SourceUnavailableError: it did not answer, or changed while it was read; a later attempt may work.
            SourceRefusedError: it does not exist, or we may not read it.
            BadSourceError: its content cannot be read as this kind of source.
            ColumnsError: it lacks columns that the feed needs, or several answer to one name; raised before any row.
        """
        ...


def stamp_of_all(stamps: Sequence[str]) -> str:
    """Return the combined stamp of a source and its joined tables, "" if one of them has none."""
    return " ".join(stamps) if all(stamps) else ""


NO_SECRET = SecretStr("")


@dataclass(frozen=True, slots=True)
class GoogleAccess:
    """Access to Google Sheets.

    `credentials`: the file of a service account or of an authorised user; None: the machine's application-default
    credentials. `api_url`: where the API answers, "" for Google's own address.
    """

    credentials: Path | None = None
    api_url: str = ""


@dataclass(frozen=True, slots=True)
class SalesforceAccess:
    """Access to one Salesforce org, named as simple-salesforce names its arguments.

    Either `username`, `password` and `security_token`; or `consumer_key` and `consumer_secret` (client credentials); or
    `username`, `consumer_key` and `privatekey_file` (JWT). `domain`: "login", "test", or the My Domain prefix.
    `instance_url`: where the org answers, "" for where the login says.
    """

    username: str = ""
    password: SecretStr = NO_SECRET
    security_token: SecretStr = NO_SECRET
    consumer_key: str = ""
    consumer_secret: SecretStr = NO_SECRET
    privatekey_file: Path | None = None
    domain: str = "login"
    instance_url: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """All credentials that a feed's source may need.

    `secrets`: those of sources that mapping files name, by the names of their variables: `REST_NAME`, `SQL_NAME`, `TAP_NAME`.
    `programs`: the environment of programs that mapping files name, None if none may be started. `mask` masks the secrets in
    every text that leaves this process; tokens obtained later are added to it.
    """

    google: GoogleAccess = field(default_factory=GoogleAccess)
    salesforce: SalesforceAccess = field(default_factory=SalesforceAccess)
    secrets: Mapping[str, SecretStr] = field(default_factory=dict)
    programs: Mapping[str, str] | None = field(default=None, repr=False)
    mask: Mask = field(default_factory=Mask, repr=False, compare=False)

    def secret(self, variable: str, place: str) -> str:
        """Return the secret of a variable; `place`: the source that needs it.

        Raises:
            ConfigError: neither the variable nor `..._FILE` is set.
        """
        found = self.secrets.get(variable)
        if found is None:
            raise ConfigError(
                f"to read {place}, {variable} is not set", hint=f"set it, or {variable}_FILE to the path of a file with it"
            )
        return found.get_secret_value()


NO_ACCESS = Access()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and randomness, passed in so that tests need not wait.

    `now`: seconds since 1970; `clock_s`: monotonic seconds; `sleep` waits so many seconds; `chance`: a random number from 0 to
    less than 1.
    """

    now: Callable[[], float] = time.time
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep  # noqa: TID251  # the default of what is handed in
    chance: Callable[[], float] = random.random


REAL_CLOCK = Clock()


@dataclass(frozen=True, slots=True)
class StatusRow:
    """A current row: its number in the sheet, and the cells of the key and status columns."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StatusCell:
    """The text to write into one cell, by row number and column name; "" empties the cell."""

    number: int
    column: str
    text: str


class StatusSheet(Protocol):
    """A sheet with columns that eventsync writes. Other columns are never written."""

    def read(self) -> Sequence[StatusRow]:
        """Return all current rows.

        Raises:
            ColumnsError: a status column or a column of the key is missing, or there are several of one.
            SyncError: the sheet cannot be read.
        """
        ...

    def write(self, cells: Sequence[StatusCell]) -> bool:
        """Write these cells as plain text and return True; return False if the rows have moved since the last `read`.

        Raises:
            SyncError: the sheet cannot be written; some of the cells may have been.
        """
        ...


_NEAR = 50.0
_MOST_NAMES_SHOWN = 40
_BY_POSITION = (
    "ask the partner to remove or rename all but one, or write the one that is meant by its position or letter in the mapping,"
    ' such as "#3" or "#C"'
)


class SourceUnavailableError(TransientError):
    """The source did not answer, broke off, or changed while it was read."""


class SourceRefusedError(PermanentError):
    """The source does not exist, or we may not read it."""


class LoginRefusedError(SourceRefusedError):
    """The service on the web wants a login, or another one (401, 403)."""


class NoFolderError(SourceRefusedError):
    """The folder of a file pattern does not exist."""


class BadSourceError(PermanentError):
    """The content cannot be read as the kind that the mapping file declares. `place`: file, or file:line.

    `delimiter`: the actual delimiter if it is not the declared one, "" if that is not the problem.
    """

    def __init__(self, place: str, message: str, *, hint: str = "", delimiter: str = "") -> None:
        super().__init__(f"{place}: {message}", hint=hint)
        self.place = place
        self.delimiter = delimiter


class CutOffError(BadSourceError):
    """The content ends too early: within a record, or before the end that its format requires."""


class EmptySourceError(BadSourceError):
    """The source has no content, not even a header: a file that was cut off, or not yet written."""


class ColumnsError(PermanentError):
    """The columns of a source do not fit the mapping; raised before any row."""


class RepeatedColumnsError(ColumnsError):
    """Several columns of the source answer to one name of the mapping. `columns`: each such name with all of them, for people."""

    def __init__(self, place: str, columns: Mapping[str, Sequence[str]], *, advice: str = "") -> None:
        self.columns = columns
        answers = (f'{len(found)} columns answer to "{name}": {_listed(found)}' for name, found in columns.items())
        hint = f"{advice or _BY_POSITION}; eventsync never chooses between them"
        super().__init__(f"in {place} {'; '.join(answers)}", hint=hint)


class MissingColumnsError(ColumnsError):
    """The source lacks columns that the feed needs.

    `missing`: all of them, sorted. `nearest`: the most similar column of the source for those that have one. Columns in `taken`
    are used themselves, so they are not suggested; nor is the only column of a source that lacks several, since it holds all of
    them unsplit. `NAME.link` of an existing column is missing if its texts have no links. `delimiter`: the delimiter that would
    split the header into more of the columns, "" if none.
    """

    def __init__(
        self,
        place: str,
        missing: Iterable[str],
        present: Sequence[str],
        *,
        taken: Collection[str] = (),
        advice: str = "",
        delimiter: str = "",
    ) -> None:
        self.missing = tuple(sorted(missing))
        self.delimiter = delimiter
        advice = f"set `source.delimiter` to {delimiter!r}, which separates the cells of this file" if delimiter else advice
        is_unsplit = bool(delimiter) or (len(present) == 1 and len(self.missing) > 1)
        texts = {name: text for name in self.missing if name.endswith(LINK) and (text := name.removesuffix(LINK)) in present}
        nearest = {} if is_unsplit else _nearest(self.missing, [name for name in present if name not in taken])
        self.nearest = {**nearest, **texts}
        listed = (f'"{name}"' + (f' (closest: "{self.nearest[name]}")' if name in self.nearest else "") for name in self.missing)
        shown = _listed([f'"{name}"' for name in present])
        advice = NO_LINKS if texts else advice
        hint = f"{advice or 'ask the partner, or name the new columns in the mapping file'}; its columns are: {shown}"
        super().__init__(f"{place} lacks the column{'s' * (len(self.missing) > 1)} {', '.join(listed)}", hint=hint)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES_SHOWN} more" if len(names) > _MOST_NAMES_SHOWN else ""
    return ", ".join(names[:_MOST_NAMES_SHOWN]) + more


def _nearest(missing: Sequence[str], present: Sequence[str]) -> Mapping[str, str]:
    from rapidfuzz import fuzz, process, utils  # noqa: PLC0415  # the command line's start need not wait for it

    nearest = partial(process.extractOne, scorer=fuzz.WRatio, processor=utils.default_process, score_cutoff=_NEAR)
    return {name: match[0] for name in missing if (match := nearest(name, present)) is not None}
