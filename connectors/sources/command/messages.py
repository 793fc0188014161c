"""Keeps what a program prints: lines of records, or the records of one stream of a Singer tap or an Airbyte connector.

The specifications: https://hub.meltano.com/singer/spec and https://docs.airbyte.com/platform/understanding-airbyte/airbyte-protocol.
A message that is none of theirs is an error, because it may stand for records: BATCH names files of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, SourceUnavailableError
from connectors.sources.formats.records import JsonParser, text_of
from connectors.sources.rows import LARGEST_RECORD, short
from mappings.spec.source import CommandSource

_LARGEST = 2 * 1024**3
_LARGEST_STATE = 1024 * 1024
RECORDS = {"singer": "[*].record", "airbyte": "[*].record.data"}
"""The paths to the records where what is kept is a JSON list of messages."""


class Output:
    """What a program prints: its lines of records, or a JSON list of the RECORD messages of the stream, kept in `file`.

    `known_columns`: the names that the source has announced, whether or not a record has them. `largest`: the most bytes.
    """

    def __init__(self, file: BinaryIO, spec: CommandSource, largest: int = _LARGEST) -> None:
        self.known_columns = frozenset[str]()
        self._file, self._spec, self._largest = file, spec, largest
        self._size, self._number, self._rest, self._state = 0, 0, bytearray(), b""
        self._streams = dict[str, None]()

    def take(self, piece: bytes) -> None:
        """Keep the records among the lines that are complete.

        Raises:
            BadSourceError: the output is too long, or not of this kind.
            SourceUnavailableError: a connector says that it has failed.
        """
        self._rest += piece
        if b"\n" in piece:
            *lines, self._rest = self._rest.split(b"\n")
            for line in map(bytes, lines):
                self._number += 1
                if self._spec.speaks == "json":
                    self._keep(line + b"\n")
                elif line.strip():
                    self._message(line)
        if len(self._rest) > LARGEST_RECORD:
            raise self._bad(self._number + 1, f"a line is longer than {LARGEST_RECORD // 2**20} million bytes")

    def finish(self) -> None:
        """Check that the output is complete.

        Raises:
            BadSourceError: it is not.
        """
        place, stream = self._spec.place, self._spec.stream
        if self._rest:
            hint = "the program ended with exit code 0 all the same: correct it, each line ends with a line end"
            raise CutOffError(place, "its output ends in the middle of a line", hint=hint)
        if stream and stream not in self._streams:
            message = f'the stream "{stream}" did not come; it sent {", ".join(map(short, self._streams)) or "none"}'
            raise BadSourceError(place, message, hint="correct `stream`, or select the stream in the tap's catalog")
        if not self._number:
            raise EmptySourceError(place, "it printed nothing", hint="if it has no rows, let it print one empty line")
        if stream:
            self._keep(b"]" if self._size else b"[]")
        self._file.flush()

    def state(self) -> str:
        """Return the value of the last STATE as JSON, with all digits of its numbers; "" if there is none."""
        return text_of(self._as_singer(JsonParser().parse(self._state.decode()))["value"]) if self._state else ""

    def _keep(self, text: bytes) -> None:
        self._size += len(text)
        if self._size > self._largest:
            message = f"it printed more than {self._largest // 2**20} million bytes"
            raise BadSourceError(self._spec.place, message, hint="does it end at all? If so, let it print less")
        self._file.write(text)

    def _message(self, line: bytes) -> None:
        try:
            message = self._as_singer(json.loads(line))
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
            message = None
        match message:
            case {"type": "RECORD", "stream": str(stream), "record": dict()}:
                self._streams[stream] = None
                if stream == self._spec.stream:
                    self._keep((b",\n" if self._size else b"[") + line)
            case {"type": "SCHEMA", "stream": str(stream), "schema": dict(schema)}:
                self._streams[stream] = None
                if stream == self._spec.stream:
                    self.known_columns |= frozenset(_names(schema))
            case {"type": "STATE", "value": value} if len(line) < _LARGEST_STATE:
                self._state = b"" if value is None else line
            case {"type": "ACTIVATE_VERSION" | "LOG" | "CONTROL"}:
                pass  # what a full read lacks has vanished, whatever the version of its table
            case _:
                text = short(line.decode("utf-8", "replace").strip())
                raise self._bad(self._number, f'this is no {self._spec.speaks} message that eventsync reads: "{text}"')

    def _bad(self, number: int, message: str) -> BadSourceError:
        hint = "correct the program: its log belongs on stderr, and a tap must not send BATCH messages"
        return BadSourceError(f"{self._spec.place} line {number}", message, hint=hint)

    def _as_singer(self, message: Any) -> Any:
        """Return the Singer message for a message of Airbyte: the end of a stream announces it, as SCHEMA does."""
        match message if self._spec.speaks == "airbyte" else None:
            case {"type": "RECORD", "record": {"stream": stream, "data": data}}:
                return {"type": "RECORD", "stream": stream, "record": data}
            case {
                "type": "STATE",
                "state": {"type": "GLOBAL"} | {"stream": {"stream_descriptor": {"name": self._spec.stream}}} as one,
            }:
                return {"type": "STATE", "value": [one]}
            case {"type": "TRACE", "trace": {"type": "ERROR"} | {"stream_status": {"status": "INCOMPLETE"}} as trace}:
                said = short(json.dumps(trace.get("error", trace)))
                raise SourceUnavailableError(f"{self._spec.place} failed: {said}", hint="run it by hand to see what is wrong")
            case {"type": "TRACE", "trace": {"stream_status": {"stream_descriptor": {"name": name}}}}:
                return {"type": "SCHEMA", "stream": name, "schema": {}}
            case {"type": "TRACE" | "STATE"}:  # of another stream, or of a form that connectors no longer send
                return {"type": "LOG"}
            case _:
                return message


def _names(schema: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the columns that a JSON Schema of a record announces, inner ones as paths."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{before}{name}"
        if isinstance(inner, dict):
            yield from _names(inner, f"{before}{name}.")
