"""All kinds of source that the contract suite asks, by families."""

from __future__ import annotations

from contract.command_kinds import COMMAND_KINDS
from contract.far_file_kinds import FAR_FILE_KINDS
from contract.file_kinds import FILE_KINDS
from contract.rest_kinds import REST_KINDS
from contract.salesforce_kinds import SALESFORCE_KINDS
from contract.sheet_kinds import SHEET_KINDS
from contract.source_kinds import Kind
from contract.sql_kinds import SQL_KINDS

KINDS: list[Kind] = [*FILE_KINDS, *FAR_FILE_KINDS, *SHEET_KINDS, *SALESFORCE_KINDS, *COMMAND_KINDS, *SQL_KINDS, *REST_KINDS]
INCREMENTAL_KINDS = [kind for kind in KINDS if kind.is_incremental]
VERSIONED_KINDS = [kind for kind in KINDS if kind.knows_versions]
