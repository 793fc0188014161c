"""All kinds of source that the contract suite asks, by families."""

from __future__ import annotations

from contract.far_file_kinds import FAR_FILE_KINDS
from contract.file_kinds import FILE_KINDS
from contract.salesforce_kinds import SALESFORCE_KINDS
from contract.sheet_kinds import SHEET_KINDS
from contract.source_kinds import Kind

KINDS: list[Kind] = [*FILE_KINDS, *FAR_FILE_KINDS, *SHEET_KINDS, *SALESFORCE_KINDS]
INCREMENTAL_KINDS = [kind for kind in KINDS if kind.is_incremental]
VERSIONED_KINDS = [kind for kind in KINDS if kind.knows_versions]
