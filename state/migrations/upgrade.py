"""The schema's revision, and upgrades to it by the Alembic revisions in `versions`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection

HEAD = "0007"
"""The newest revision in `versions`; a constant, so that a current database opens without importing Alembic."""
_OF_ROW_KEYS = frozenset(
    {
        *("uq_entry_scope_id_row_key", "uq_entry_scope_id_md5", "ix_entry_row_key"),
        "ix_problem_row_scope_id_kind_row_key",
    }
)
"""Indexes that differ on PostgreSQL, whose B-trees hold no key above 2,704 bytes."""
_FOLDER = Path(__file__).parent
_SQLITE_TYPES = {"BIGSERIAL": "INTEGER", "BIGINT": "INTEGER", "BYTEA": "BLOB", "TIMESTAMPTZ": "VARCHAR(32)"}
_SQLITE_OPTIONS = ((" AUTOINCREMENT", ""), (" WITHOUT ROWID", ""))


def is_known(revision: str) -> bool:
    """Return whether `versions` has this revision; of unknown ones the lower are older than version 0.2, the higher newer."""
    return any(path.name.startswith(f"{revision}_") for path in (_FOLDER / "versions").glob("*.py"))


def upgrade(connection: Connection, to: str = HEAD) -> None:
    """Run the missing revisions up to `to`, inside the caller's transaction."""
    from alembic import command, config  # noqa: PLC0415 # a quarter of a second that only a first start should pay

    settings = config.Config()
    settings.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, to)


def run_sql(connection: Connection, migration: str | Path) -> None:
    """Run the statements in a migration's `.sql` file, which has PostgreSQL's types and SQLite's options."""
    statements = Path(migration).with_suffix(".sql").read_text("utf-8")
    for word, replacement in _SQLITE_TYPES.items() if connection.dialect.name == "sqlite" else _SQLITE_OPTIONS:
        statements = statements.replace(word, replacement)
    for statement in filter(None, statements.strip().split(";\n")):
        connection.exec_driver_sql(statement.removesuffix(";"))


def allow_long_keys(connection: Connection) -> None:
    """Change PostgreSQL's indexes to allow row keys that its B-trees cannot hold (2,704 bytes); only ledgers with such keys
    need two indexes.
    """
    if connection.dialect.name == "postgresql":
        for statement in (
            "ALTER TABLE entry DROP CONSTRAINT IF EXISTS uq_entry_scope_id_row_key",
            "CREATE UNIQUE INDEX IF NOT EXISTS uq_entry_scope_id_md5 ON entry (scope_id, md5(row_key))",
            "CREATE INDEX IF NOT EXISTS ix_entry_row_key ON entry USING hash (row_key)",
        ):
            connection.exec_driver_sql(statement)


def differences(connection: Connection) -> list[str]:
    """Return the differences between the tables and ours as sentences; other tables in the database are ignored."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415 # as above
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415 # as above

    from state.tables import METADATA  # noqa: PLC0415 # as above

    is_server = connection.dialect.name == "postgresql"

    def is_ours(_object: object, name: str | None, kind: str, _is_there: bool, _ours: object) -> bool:
        return name in METADATA.tables if kind == "table" else not (is_server and name in _OF_ROW_KEYS)

    context = MigrationContext.configure(connection, opts={"include_object": is_ours})
    found = compare_metadata(context, METADATA)
    return [_in_words(one) for step in found for one in (step if isinstance(step, list) else [step])]


def _in_words(step: tuple[Any, ...]) -> str:
    """Return one of Alembic's operations as a sentence: what it would add is missing."""
    operation, names = str(step[0]), [str(getattr(part, "name", part)) for part in step[1:4] if part is not None]
    verb, _, what = operation.partition("_")
    problem = {"add": "is missing", "remove": "is not ours", "modify": "differs"}.get(verb, operation)
    return f"{what} {'.'.join(names)} {problem}"
