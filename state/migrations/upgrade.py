"""Which schema is ours, and how a database gets there. What the schema is stands in `versions` and in `state.tables`."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

HEAD = "0002"
"""The newest revision in `versions`; a constant, so that a database which has it opens without importing Alembic."""

_FOLDER = Path(__file__).parent


def is_known(revision: str) -> bool:
    """Whether `versions` has this revision: a newer eventsync may have written one that we do not know."""
    return any(path.name.startswith(f"{revision}_") for path in (_FOLDER / "versions").glob("*.py"))


def upgrade(connection: Connection) -> None:
    """Run the revisions that the database lacks, inside the caller's transaction."""
    from alembic import command, config  # noqa: PLC0415 # a quarter of a second that only a first start should pay

    settings = config.Config()
    settings.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
