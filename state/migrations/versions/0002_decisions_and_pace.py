"""What people decide about rows, the pace that workers share, what was last known of a service, a lease's own clock, where
a source that is read by what changed is read on, what owners were told, and marks of twins, in place of an index of them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from state.tables import BIG_ID, UtcTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ledger_entry", sa.Column("decision", sa.Text(), nullable=True))
    op.add_column("ledger_entry", sa.Column("decided_at", UtcTime(), nullable=True))
    op.add_column("ledger_entry", sa.Column("decided_by", sa.Text(), nullable=True))
    op.add_column("ledger_entry", sa.Column("past_at", UtcTime(), nullable=True))
    op.add_column("ledger_entry", sa.Column("resent_run", sa.Text(), nullable=True))
    op.add_column("ledger_entry", sa.Column("denied_request_id", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE ledger_entry SET denied_request_id = refused_request_id, refused_request_id = '' WHERE state = 'blocked'")
    op.add_column("lease", sa.Column("boot", sa.Text(), nullable=False, server_default=""))
    op.add_column("lease", sa.Column("beat_s", sa.Float(), nullable=False, server_default="0"))
    op.add_column("sync_run", sa.Column("notices", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("sync_run", sa.Column("pace", sa.Text(), nullable=False, server_default="{}"))
    for name, column in (("resent", "resent_run"), ("decision", "decision"), ("past", "past_at")):
        where = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_ledger_entry_{name}", "ledger_entry", ["scope_id", column], sqlite_where=where, postgresql_where=where
        )
    op.add_column("scope", sa.Column("cursor", sa.Text(), nullable=False, server_default=""))
    op.add_column("scope", sa.Column("cursor_fit", sa.Text(), nullable=False, server_default=""))
    op.add_column("scope", sa.Column("full_read_at", UtcTime(), nullable=True))
    op.add_column("scope", sa.Column("body_base", sa.LargeBinary(), nullable=True))
    op.add_column("problem_row", sa.Column("listed_run", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE problem_row SET listed_run = run_id")
    op.drop_index("ix_problem_row_scope_id_run_id_kind_id", "problem_row")
    op.create_index("ix_problem_row_scope_id_listed_run_kind_id", "problem_row", ["scope_id", "listed_run", "kind", "id"])
    op.add_column("scope", sa.Column("released_id", BIG_ID, nullable=False, server_default="0"))
    op.execute("UPDATE scope SET released_id = coalesce((SELECT max(id) FROM ledger_entry WHERE scope_id = scope.id), 0)")
    op.create_table(
        "earlier_event",
        sa.Column("entry_id", BIG_ID, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("row_digest", sa.LargeBinary(), nullable=False),
        sa.Column("twin_digest", sa.LargeBinary(), nullable=False),
        sa.Column("channel_id", BIG_ID, nullable=False),
        sa.Column("event_id", BIG_ID, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("sent_run", sa.Text(), nullable=False),
        sa.Column("replaced_at", UtcTime(), nullable=False),
        sa.Column("is_let_out", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["ledger_entry.id"], name="fk_earlier_event_entry_id_ledger_entry"),
        sa.PrimaryKeyConstraint("entry_id", "revision", name="pk_earlier_event"),
    )
    op.add_column("scope", sa.Column("marked_id", BIG_ID, nullable=False, server_default="0"))
    op.drop_index("ix_ledger_entry_scope_id_twin_digest", "ledger_entry")
    op.create_table(
        "twin_mark",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("entry_id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "mark", "entry_id", name="pk_twin_mark"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "backfill",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_backfill"),
    )
    op.create_index("ix_backfill_destination_feed", "backfill", ["destination", "feed"])
    op.create_table(
        "backfill_slice",
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("first_day", sa.Text(), nullable=False),
        sa.Column("last_day", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(["backfill_id"], ["backfill.id"], name="fk_backfill_slice_backfill_id_backfill"),
        sa.PrimaryKeyConstraint("backfill_id", "number", name="pk_backfill_slice"),
    )
    op.create_table(
        "record_memory",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("pairs", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_record_memory_scope_id_scope"),
        sa.PrimaryKeyConstraint("scope_id", "part", name="pk_record_memory"),
    )
    op.create_table(
        "row_release",
        sa.Column("scope_id", BIG_ID, nullable=False),
        sa.Column("row_key", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("decided_at", UtcTime(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scope.id"], name="fk_row_release_scope_id_scope"),
        sa.PrimaryKeyConstraint("scope_id", "row_key", name="pk_row_release"),
    )
    op.create_table(
        "route_pace",
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("version", BIG_ID, nullable=False),
        sa.Column("pace", sa.Text(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("destination", "route", name="pk_route_pace"),
    )
    op.create_table(
        "route_worker",
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("destination", "route", "worker", name="pk_route_worker"),
    )
    op.create_table(
        "service_note",
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("noted_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("destination", "name", name="pk_service_note"),
    )
    op.create_table(
        "notice_sent",
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("feed", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("noted_at", UtcTime(), nullable=False),
        sa.Column("told_at", UtcTime(), nullable=True),
        sa.Column("is_over", sa.Boolean(), nullable=False),
        sa.Column("claimed_until", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("destination", "feed", "recipient", "cause", name="pk_notice_sent"),
    )
