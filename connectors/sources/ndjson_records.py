"""A text file with a JSON object on each line, cut into its records.

What becomes of a record is `record_file`'s.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from connectors.sources.errors import BadSourceError, CutOffError, EmptySourceError
from connectors.sources.json_records import NO_OBJECT
from connectors.sources.json_values import JsonTexts, TooManyValuesError
from connectors.sources.opened_file import OpenedFile
from connectors.sources.record_file import Record
from connectors.sources.text_file import Lines, chosen_encoding
from mappings.outcome import RowLocation
from mappings.spec.source import NdjsonSource


@dataclass(frozen=True, slots=True)
class NdjsonRecords:
    """Cuts a file into the objects of its lines; blank lines hold none."""

    spec: NdjsonSource

    def __call__(self, file: OpenedFile) -> Generator[Record]:
        """Give the records, in their order, numbered by their line.

        Raises:
            BadSourceError: not even the first line is JSON, or the last one breaks off.
        """
        encoding = chosen_encoding(file.stream, self.spec.encoding or ("utf-8",))
        lines = Lines(file.stream, encoding, file.name, needs_end=not file.has_known_end)
        try:
            yield from _records(lines, file.name)
        finally:
            lines.release()


def _records(lines: Lines, name: str) -> Iterator[Record]:
    number = 0
    is_any = False
    values = JsonTexts()
    for number, line in enumerate(lines, start=1):
        lines.clear()
        if not line.strip():
            continue
        record = _record(values, RowLocation(f"{name}:{number}", number), line)
        if record.problem and not is_any:
            hint = "is it one document over several lines? Then say `kind: json`"
            raise BadSourceError(str(record.origin), f"the first line is no JSON object ({record.problem})", hint=hint)
        is_any = is_any or bool(record.value)
        if record.problem and not line.endswith(("\n", "\r")):
            raise CutOffError(
                str(record.origin), "the file ends in the middle of this line", hint="ask the partner for all of it"
            )
        yield record
    if not number:
        raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")


def _record(values: JsonTexts, origin: RowLocation, line: str) -> Record:
    try:
        value = values.parse(line)
    except TooManyValuesError as error:
        return Record(origin, {}, f"this line cannot be read as one record: {error}", line)
    except ValueError as error:
        return Record(origin, {}, f"this line is not JSON: {error}", line)
    if not isinstance(value, dict):
        return Record(origin, {}, NO_OBJECT, line)
    return Record(origin, value, repeats=values.repeats_in(value))
