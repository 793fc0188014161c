"""Which kinds of source can be told what became of their rows: the one place where a mapping's `write_back` becomes a board.

How a kind is written is its own module's, imported only when it is asked for: its client may not be installed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from connectors.sources.access import Access
from connectors.sources.marks import MarkBoard
from mappings.errors import ConfigError
from mappings.spec.source import GoogleSheetsSource


def open_board(spec: GoogleSheetsSource, keys: frozenset[str], access: Access) -> AbstractContextManager[MarkBoard]:
    """Return the board of a sheet that its owner lets us write into, to be opened; `keys` are the columns of a row's key.

    Raises:
        ConfigError: its client is not installed, or there are no credentials.
    """
    try:
        from connectors.sources.google_sheets.board import opened_board  # noqa: PLC0415  # an extra: not everybody has it
    except ModuleNotFoundError as error:
        message = f"to write back into {spec.place}, the module {error.name} is missing"
        raise ConfigError(message, hint="pip install 'eventsync[sheets]'") from error
    return opened_board(spec, keys, access)
