"""The door to a Google spreadsheet: logged in, found by address, id or title, and closed again.

What can be asked of it is `google_spreadsheet`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from connectors.sources.access import Access
from connectors.sources.clockwork import REAL, Clockwork
from connectors.sources.google_sheets.login import google_login
from connectors.sources.google_sheets.spreadsheet import GoogleSpreadsheet, find_spreadsheet
from connectors.sources.google_sheets.wire import GoogleWire
from mappings.spec.source import GoogleSheetsSource


@contextmanager
def opened_spreadsheet(
    spec: GoogleSheetsSource, access: Access, *, writes: bool = False, clockwork: Clockwork = REAL
) -> Iterator[GoogleSpreadsheet]:
    """Give the spreadsheet that `spec` names, for reading or for writing too; its connections are closed at the end.

    Raises:
        ConfigError: there are no credentials, or they cannot be read.
        SourceRefusedError: only its title is known, and no spreadsheet that we may see has it, or several have.
        SourceUnavailableError: only its title is known, and Google did not answer.
    """
    wire = GoogleWire(google_login(access.google, writes=writes), access.google.api_url, access.mask, clockwork)
    with wire.session:
        found, version = (spec.spreadsheet_id, "") if spec.spreadsheet_id else find_spreadsheet(wire, spec.spreadsheet)
        yield GoogleSpreadsheet(wire, found, spec.place, version)
