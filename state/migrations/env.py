"""Configures Alembic for each command: our tables, on the connection that `upgrade` passes in. It reads no files."""

from __future__ import annotations

from alembic import context

from state.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
