"""The ledger as it begins: scopes, entries, problems, runs, leases and the memory of images."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from state.tables import BIG_ID, UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "media",
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("content_digest", sa.LargeBinary(), nullable=False),
        sa.Column("media_id", BIG_ID, nullable=False),
        sa.Column("uploaded_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("destination", "content_digest", name="pk_media"),
    )
    op.create_table(
        "media_address",
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("content_digest", sa.LargeBinary(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("destination", "url", name="pk_media_address"),
    )
    op.create_table(
        "scope",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("gate_run", sa.Text(), nullable=False),
        sa.Column("gate_reason", sa.Text(), nullable=False),
        sa.Column("last_whole_read", BIG_ID, nullable=True),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scope"),
        sa.UniqueConstraint("destination", "feed", name="uq_scope_destination_feed"),
    )
    op.create_table(
        "lease",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("token", BIG_ID, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", BIG_ID, nullable=False),
        sa.Column("process_started", sa.Float(), nullable=False),
        sa.Column("acquired_at", UtcTime(), nullable=False),
        sa.Column("heartbeat_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_lease_scope_id_scope"),
        sa.PrimaryKeyConstraint("scope_id", name="pk_lease"),
    )
    op.create_table(
        "ledger_entry",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("cover_url", sa.Text(), nullable=True),
        sa.Column("cover_on_error", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("row_digest", sa.LargeBinary(), nullable=False),
        sa.Column("twin_digest", sa.LargeBinary(), nullable=False),
        sa.Column("channel_id", BIG_ID, nullable=False),
        sa.Column("event_id", BIG_ID, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("unanswered_at", UtcTime(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("refused_request_id", sa.Text(), nullable=False),
        sa.Column("drift_body", sa.LargeBinary(), nullable=True),
        sa.Column("drift_fingerprint", sa.Text(), nullable=True),
        sa.Column("drift_kind", sa.Text(), nullable=True),
        sa.Column("vanished_at", UtcTime(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("staged_run", sa.Text(), nullable=False),
        sa.Column("sent_run", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "state = 'pending' OR state = 'delivered' OR state = 'delivered_unconfirmed' OR state = 'refused' "
            "OR state = 'blocked' OR state = 'uncertain' OR state = 'conflict'",
            name="ck_ledger_entry_state",
        ),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_ledger_entry_scope_id_scope"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_entry"),
        sa.UniqueConstraint("scope_id", "row_key", name="uq_ledger_entry_scope_id_row_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_ledger_entry_scope_id_state_id", "ledger_entry", ["scope_id", "state", "id"])
    op.create_index("ix_ledger_entry_scope_id_twin_digest", "ledger_entry", ["scope_id", "twin_digest"])
    for name, column in (("drift", "drift_kind"), ("vanished", "vanished_at")):
        where = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_ledger_entry_{name}", "ledger_entry", ["scope_id", column], sqlite_where=where, postgresql_where=where
        )
    op.create_table(
        "problem_row",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("cells", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("first_seen_at", UtcTime(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_problem_row_scope_id_scope"),
        sa.PrimaryKeyConstraint("id", name="pk_problem_row"),
        sa.UniqueConstraint("scope_id", "digest", name="uq_problem_row_scope_id_digest"),
    )
    op.create_index("ix_problem_row_scope_id_run_id_kind_id", "problem_row", ["scope_id", "run_id", "kind", "id"])
    op.create_table(
        "sync_run",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("launched_by", sa.Text(), nullable=False),
        sa.Column("dagster_run_id", sa.Text(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("is_whole", sa.Boolean(), nullable=False),
        sa.Column("read_account", sa.Text(), nullable=True),
        sa.Column("stage_report", sa.Text(), nullable=True),
        sa.Column("publish_account", sa.Text(), nullable=True),
        sa.Column("brakes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_sync_run_scope_id_scope"),
        sa.PrimaryKeyConstraint("scope_id", "id", name="pk_sync_run"),
    )
    op.create_index("ix_sync_run_scope_id_started_at", "sync_run", ["scope_id", "started_at"])
