"""The schema's history, as Alembic revisions; a test proves that they end in `state.tables`."""
