"""The tables of the state DB. They are not used outside this package.

SQLModel declares them; statements on the hot path use SQLAlchemy Core on the same tables.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import declared_attr
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from state.enums import EntryState, GateState, Phase


class UtcTime(TypeDecorator[datetime]):
    """A column type for times: aware, in UTC when stored and loaded; a naive value is refused.

    On SQLite, which has no such type, it is ISO 8601 text of a fixed width, which sorts by time.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[datetime] | TypeEngine[str]:
        """Return text for SQLite, `timestamptz` otherwise."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(sa.String(32))
        return dialect.type_descriptor(sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | str | None:
        """Convert a time to UTC; raise ValueError for a naive one."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value!r}")
        instant = value.astimezone(UTC)
        return instant.isoformat(timespec="microseconds") if dialect.name == "sqlite" else instant

    def process_result_value(self, value: datetime | str | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002 # the signature is SQLAlchemy's
        """Return an aware UTC time."""
        if value is None:
            return None
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


class PlainText(TypeDecorator[str]):
    """A column type for text; characters that one of the databases cannot store are escaped, see `storable`."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 # the signature is SQLAlchemy's
        """Escape what cannot be stored."""
        return None if value is None else storable(value)


def storable(text: str) -> str:
    """Escape what no database stores as text: NUL, and lone surrogates from a wrong encoding.

    Different texts stay different as long as their backslashes are doubled, as they are in row keys.
    """
    if text.isprintable():  # neither of the two is, and asking costs next to nothing
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A 64-bit id; SQLite generates ids only in a column of exactly the type INTEGER."""
METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Row(SQLModel):
    """The base of all tables, with our own metadata, separate from any other SQLModel in the process."""

    metadata: ClassVar[sa.MetaData] = METADATA

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805 - of the class
        """Return the name of the class in snake case."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class BackfillHead(Row, table=True):
    """A requested window of a feed's past; `plan` is defined by the caller."""

    __tablename__ = "backfill"
    __table_args__ = (sa.Index(None, "destination", "feed"),)

    id: str = Field(primary_key=True, sa_type=PlainText)
    destination: str = Field(sa_type=PlainText)
    feed: str = Field(sa_type=PlainText)
    plan: str = Field(sa_type=PlainText)
    state: str = Field(sa_type=PlainText)
    created_at: datetime = Field(sa_type=UtcTime)
    updated_at: datetime = Field(sa_type=UtcTime)


class SliceRow(Row, table=True):
    """A slice of a backfill: its ISO days, its progress, and the last run that worked on it, by its `claim`."""

    __tablename__ = "backfill_slice"

    backfill_id: str = Field(foreign_key="backfill.id", primary_key=True, sa_type=PlainText)
    number: int = Field(primary_key=True)
    first_day: str = Field(sa_type=PlainText)
    last_day: str = Field(sa_type=PlainText)
    state: str = Field(sa_type=PlainText)
    claim: str = Field(sa_type=PlainText)
    run_id: str = Field(sa_type=PlainText)
    exit_code: int | None = None
    message: str = Field(sa_type=PlainText)
    counts: str = Field(sa_type=PlainText)
    started_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)


def _partial_index(name: str, column: str, where: str) -> sa.Index:
    """Return a partial index for the few entries that people search for; the others do not need one."""
    return sa.Index(f"ix_ledger_entry_{name}", "scope_id", column, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


class Scope(Row, table=True):
    """One feed at one destination: its gate, and facts about its last complete full read.

    `released_id`: the highest entry that a gate has released without a person. `cursor`: the bookmark of an incremental source,
    "" if the next read is a full one; `cursor_fit`: the mapping of the rows before it. `marked_id`: the highest entry in
    `duplicate_mark`. `stopped_by`: why its last drain was stopped, if by an outage or a systemic refusal without a delivered
    row since; "" otherwise.
    """

    __table_args__ = (sa.UniqueConstraint("destination", "feed"),)

    id: int | None = Field(default=None, sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=True))
    destination: str = Field(sa_type=PlainText)
    feed: str = Field(sa_type=PlainText)
    gate: str = Field(default=GateState.UNSTAGED.value, sa_type=PlainText)
    gate_run: str = Field(default="", sa_type=PlainText)
    gate_reason: str = Field(default="", sa_type=PlainText)
    last_whole_read: int | None = Field(default=None, sa_type=BIG_ID)
    released_id: int = Field(default=0, sa_type=BIG_ID)
    stamp: str = Field(default="", sa_type=PlainText)
    created_at: datetime = Field(sa_type=UtcTime)
    cursor: str = Field(default="", sa_type=PlainText)
    cursor_fit: str = Field(default="", sa_type=PlainText)
    full_read_at: datetime | None = Field(default=None, sa_type=UtcTime)
    marked_id: int = Field(default=0, sa_type=BIG_ID)
    service: str = Field(default="", sa_type=PlainText, index=True)
    namespace: str = Field(default="", sa_type=PlainText)
    key_definition: str = Field(default="", sa_type=PlainText)
    whole_read_at: datetime | None = Field(default=None, sa_type=UtcTime)
    stopped_by: str = Field(default="", sa_type=PlainText)


class SideBySide(Row, table=True):
    """Two scopes of one service that deliver the same rows by a person's decision: neither holds the other's rows as
    duplicates.
    """

    scope_id: int = Field(foreign_key="scope.id", primary_key=True, sa_type=BIG_ID)
    other_id: int = Field(foreign_key="scope.id", primary_key=True, sa_type=BIG_ID)


class LedgerEntry(Row, table=True):
    """The permanent entry of one row of one feed: what was or will be sent to the service, and its answer.

    `id` grows with age, and is never reused. `attempts`: the requests begun with the pinned body under the current key;
    `unanswered_at`: the time of the first of them that may have reached the service without a definitive answer; `is_limited`:
    all of these were answered 429. `copies`: the attempts that may have created an event, over all runs and keys, including one
    in flight; a service that ignores idempotency keys may have that many events of the row. `refused_request_id`,
    `denied_request_id`: the request ids of the last refusal and the last denial of access under the current key, "" if none.
    `past_at`: when the row was gone from its source after its event; `vanished_at`: in all other cases. `ends_at`: when the
    event of the baseline is over: its end, or its start if it has none. The **baseline** is what the service shows as far as we
    know: `baseline_body` and `baseline_fingerprint` if a person confirmed it (`--applied`), else NULL for the pinned body.
    `twin_digest`: the duplicate digest of the baseline, or of the pinned body before delivery. `ignored_fingerprint`: the
    source's payload when a person last ignored the entry. `candidate_id`: for `held`, the entry that the row resembles; for
    `superseded`, the entry that has its event now. `removed_at`: when a person reported the event as removed from the service.
    `vanished_by`: the rule that leaves the row out, "" if it is gone from its source. `undo`: JSON of the columns before the
    last decision.

    The body of a `held` entry is the payload of the last read; it is pinned on release.
    """

    __table_args__ = (
        sa.UniqueConstraint("scope_id", "row_key"),
        sa.Index(None, "scope_id", "state", "id"),
        _partial_index("decision", "decision", "decision IS NOT NULL"),
        _partial_index("drift", "drift_kind", "drift_kind IS NOT NULL"),
        _partial_index("copies", "copies", "copies > 1"),
        _partial_index("past", "past_at", "past_at IS NOT NULL"),
        _partial_index("vanished", "vanished_at", "vanished_at IS NOT NULL"),
        _partial_index("removed", "removed_at", "removed_at IS NOT NULL"),
        # Of a list after IN, SQLite would make a table for every row that is written.
        sa.CheckConstraint(" OR ".join(f"state = '{state.value}'" for state in EntryState), name="state"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=True))
    scope_id: int = Field(foreign_key="scope.id", sa_type=BIG_ID)
    row_key: str = Field(sa_type=PlainText)
    state: str = Field(sa_type=PlainText)
    idempotency_key: str = Field(sa_type=PlainText)
    revision: int = 0
    body: bytes
    cover_url: str | None = Field(default=None, sa_type=PlainText)
    cover_on_error: str | None = Field(default=None, sa_type=PlainText)
    fingerprint: str = Field(sa_type=PlainText)
    row_digest: bytes
    twin_digest: bytes
    channel_id: int = Field(sa_type=BIG_ID)
    event_id: int | None = Field(default=None, sa_type=BIG_ID)
    attempts: int = 0
    unanswered_at: datetime | None = Field(default=None, sa_type=UtcTime)
    answer: str | None = Field(default=None, sa_type=PlainText)
    refused_request_id: str = Field(default="", sa_type=PlainText)
    denied_request_id: str = Field(default="", sa_type=PlainText)
    drift_body: bytes | None = None
    drift_fingerprint: str | None = Field(default=None, sa_type=PlainText)
    drift_kind: str | None = Field(default=None, sa_type=PlainText)
    vanished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    past_at: datetime | None = Field(default=None, sa_type=UtcTime)
    origin: str = Field(sa_type=PlainText)
    staged_run: str = Field(sa_type=PlainText)
    sent_run: str = Field(default="", sa_type=PlainText)
    created_at: datetime = Field(sa_type=UtcTime)
    updated_at: datetime = Field(sa_type=UtcTime)
    decision: str | None = Field(default=None, sa_type=PlainText)
    decided_at: datetime | None = Field(default=None, sa_type=UtcTime)
    decided_by: str | None = Field(default=None, sa_type=PlainText)
    ends_at: datetime | None = Field(default=None, sa_type=UtcTime)
    baseline_body: bytes | None = None
    baseline_fingerprint: str | None = Field(default=None, sa_type=PlainText)
    ignored_fingerprint: str | None = Field(default=None, sa_type=PlainText)
    candidate_id: int | None = Field(default=None, sa_type=BIG_ID)
    removed_at: datetime | None = Field(default=None, sa_type=UtcTime)
    vanished_by: str = Field(default="", sa_type=PlainText)
    undo: str | None = Field(default=None, sa_type=PlainText)
    copies: int = 0
    is_limited: bool = False


class DuplicateMark(Row, table=True):
    """Index of duplicate digests over all feeds: the mark is the beginning of a present or former `twin_digest` of the entry.

    It is derived from `ledger_entry`. It has no foreign keys, which the database would check row by row.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    mark: bytes = Field(primary_key=True)
    entry_id: int = Field(primary_key=True, sa_type=BIG_ID)


class KnownAs(Row, table=True):
    """A key that the row of an entry had with version 0.2; not used any more.

    It has no foreign keys, which the database would check row by row.
    """

    __table_args__ = (sa.Index(None, "entry_id"), {"sqlite_with_rowid": False})

    scope_id: int = Field(primary_key=True, sa_type=BIG_ID)
    digest: bytes = Field(primary_key=True)
    entry_id: int = Field(primary_key=True, sa_type=BIG_ID)
    columns: str = Field(primary_key=True, sa_type=PlainText)


class EarlierEvent(Row, table=True):
    """An event that version 0.2 delivered for a row before it drafted a change of it; not used any more."""

    entry_id: int = Field(foreign_key="ledger_entry.id", primary_key=True, sa_type=BIG_ID)
    revision: int = Field(primary_key=True)
    idempotency_key: str = Field(sa_type=PlainText)
    body: bytes
    fingerprint: str = Field(sa_type=PlainText)
    row_digest: bytes
    twin_digest: bytes
    channel_id: int = Field(sa_type=BIG_ID)
    event_id: int | None = Field(default=None, sa_type=BIG_ID)
    attempts: int = 0
    answer: str | None = Field(default=None, sa_type=PlainText)
    sent_run: str = Field(sa_type=PlainText)
    replaced_at: datetime = Field(sa_type=UtcTime)
    is_let_out: bool = False
    ends_at: datetime | None = Field(default=None, sa_type=UtcTime)
    removed_at: datetime | None = Field(default=None, sa_type=UtcTime)
    copies: int = 0


class ProblemEntry(Row, table=True):
    """A row that people must see, stored once while it is unchanged: `run_id` and `seen_at` are its last sighting, `digest`
    covers its kind, place, reasons and raw cells. `listed_run`: the last run that lists it, which may not have read it if it
    read only a part of the source; "" once the row was read again with another outcome.

    A warning stays on the list of every run until its row or the mapping changes.
    """

    __tablename__ = "problem_row"
    __table_args__ = (
        sa.UniqueConstraint("scope_id", "digest"),
        sa.Index(None, "scope_id", "listed_run", "kind", "id"),
        sa.Index(None, "scope_id", "kind", "row_key"),  # on PostgreSQL a hash index of warnings: keys may be long
    )

    id: int | None = Field(default=None, sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=True))
    scope_id: int = Field(foreign_key="scope.id", sa_type=BIG_ID)
    run_id: str = Field(sa_type=PlainText)
    listed_run: str = Field(default="", sa_type=PlainText)
    kind: str = Field(sa_type=PlainText)
    row_key: str = Field(sa_type=PlainText)
    origin: str = Field(sa_type=PlainText)
    reasons: str = Field(sa_type=PlainText)
    cells: str = Field(sa_type=PlainText)
    digest: bytes
    first_seen_at: datetime = Field(sa_type=UtcTime)
    seen_at: datetime = Field(sa_type=UtcTime)


class RowDigestPart(Row, table=True):
    """The row digests of a feed's last full read that begin with the byte `part`, sorted, and the entry of each."""

    scope_id: int = Field(foreign_key="scope.id", primary_key=True, sa_type=BIG_ID)
    part: int = Field(primary_key=True)
    digests: bytes
    entries: bytes


class SyncRun(Row, table=True):
    """One run of one feed: who launched it, its progress, accounts, messages about the service, and speed."""

    __table_args__ = (sa.Index(None, "scope_id", "started_at"),)

    scope_id: int = Field(foreign_key="scope.id", primary_key=True, sa_type=BIG_ID)
    id: str = Field(primary_key=True, sa_type=PlainText)
    started_at: datetime = Field(sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    launched_by: str = Field(sa_type=PlainText)
    dagster_run_id: str | None = Field(default=None, sa_type=PlainText)
    phase: str = Field(default=Phase.BEGUN.value, sa_type=PlainText)
    outcome: str | None = Field(default=None, sa_type=PlainText)
    exit_code: int | None = None
    message: str = Field(default="", sa_type=PlainText)
    is_whole: bool = False
    read_account: str | None = Field(default=None, sa_type=PlainText)
    stage_report: str | None = Field(default=None, sa_type=PlainText)
    publish_account: str | None = Field(default=None, sa_type=PlainText)
    brakes: str = Field(default="[]", sa_type=PlainText)
    notices: str = Field(default="[]", sa_type=PlainText)
    pace: str = Field(default="{}", sa_type=PlainText)
    standing: str | None = Field(default=None, sa_type=PlainText)
    shards: int = Field(default=1, sa_column_kwargs={"server_default": "1"})


class ShardRun(Row, table=True):
    """One shard of a run of several workers: its worker's progress, account and speed; `started_at` is None before it begins."""

    __table_args__ = (sa.ForeignKeyConstraint(["scope_id", "run_id"], ["sync_run.scope_id", "sync_run.id"]),)

    scope_id: int = Field(primary_key=True, sa_type=BIG_ID)
    run_id: str = Field(primary_key=True, sa_type=PlainText)
    shard: int = Field(primary_key=True)
    started_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    outcome: str | None = Field(default=None, sa_type=PlainText)
    exit_code: int | None = None
    message: str = Field(default="", sa_type=PlainText)
    publish_account: str | None = Field(default=None, sa_type=PlainText)
    pace: str = Field(default="{}", sa_type=PlainText)
    dagster_run_id: str | None = Field(default=None, sa_type=PlainText)


class LeaseRow(Row, table=True):
    """The lease of a feed (shard 0), or of one of its `shards`. The row is permanent, so that `token` only grows over all of a
    feed's leases; a free lease has no holder.
    """

    __tablename__ = "lease"

    scope_id: int = Field(foreign_key="scope.id", primary_key=True, sa_type=BIG_ID)
    shard: int = Field(default=0, primary_key=True)
    shards: int = 1
    token: int = Field(sa_type=BIG_ID)
    holder: str = Field(sa_type=PlainText)
    host: str = Field(sa_type=PlainText)
    pid: int = Field(sa_type=BIG_ID)
    process_started: float
    acquired_at: datetime = Field(sa_type=UtcTime)
    heartbeat_at: datetime = Field(sa_type=UtcTime)
    expires_at: datetime = Field(sa_type=UtcTime)
    boot: str = Field(default="", sa_type=PlainText)


class RoutePace(Row, table=True):
    """The shared state of a route's rate limiters; `version` grows with each change."""

    destination: str = Field(primary_key=True, sa_type=PlainText)
    route: str = Field(primary_key=True, sa_type=PlainText)
    version: int = Field(sa_type=BIG_ID)
    pace: str = Field(sa_type=PlainText)
    updated_at: datetime = Field(sa_type=UtcTime)


class ServiceNote(Row, table=True):
    """Facts about a service as a whole by name: the version of its classifications, its contract's digest."""

    destination: str = Field(primary_key=True, sa_type=PlainText)
    name: str = Field(primary_key=True, sa_type=PlainText)
    value: str = Field(sa_type=PlainText)
    noted_at: datetime = Field(sa_type=UtcTime)


class NoticeSent(Row, table=True):
    """A notification about a feed: one row for each cause and recipient, deleted once the end of the cause is sent.

    `told_at`: when it was sent, None if it was not; `is_over`: the cause has ended, which is not sent yet; `noted_at`: when the
    cause or its end was recorded. `claimed_until`: until then, a process is sending it. Only the recipient's name is stored, no
    address.
    """

    destination: str = Field(primary_key=True, sa_type=PlainText)
    feed: str = Field(primary_key=True, sa_type=PlainText)
    recipient: str = Field(primary_key=True, sa_type=PlainText)
    cause: str = Field(primary_key=True, sa_type=PlainText)
    words: str = Field(sa_type=PlainText)
    noted_at: datetime = Field(sa_type=UtcTime)
    told_at: datetime | None = Field(default=None, sa_type=UtcTime)
    is_over: bool = False
    claimed_until: datetime | None = Field(default=None, sa_type=UtcTime)


class Media(Row, table=True):
    """An uploaded image: the digest of its content, and the service's id."""

    destination: str = Field(primary_key=True, sa_type=PlainText)
    content_digest: bytes = Field(primary_key=True)
    media_id: int = Field(sa_type=BIG_ID)
    uploaded_at: datetime = Field(sa_type=UtcTime)


class MediaAddress(Row, table=True):
    """The content found at an image's address when it was last fetched."""

    destination: str = Field(primary_key=True, sa_type=PlainText)
    url: str = Field(primary_key=True, sa_type=PlainText)
    content_digest: bytes
    etag: str = Field(default="", sa_type=PlainText)
    seen_at: datetime = Field(sa_type=UtcTime)


NO_DRIFT: dict[str, None] = {"drift_body": None, "drift_fingerprint": None, "drift_kind": None}
"""The drift columns of an entry without drift."""
SCOPE: sa.Table = METADATA.tables["scope"]
ENTRY: sa.Table = METADATA.tables["ledger_entry"]
DUPLICATE_MARK: sa.Table = METADATA.tables["duplicate_mark"]
SIDE_BY_SIDE: sa.Table = METADATA.tables["side_by_side"]
ROW_DIGESTS: sa.Table = METADATA.tables["row_digest_part"]
PROBLEM: sa.Table = METADATA.tables["problem_row"]
RUN: sa.Table = METADATA.tables["sync_run"]
SHARD_RUN: sa.Table = METADATA.tables["shard_run"]
LEASE: sa.Table = METADATA.tables["lease"]
ROUTE_PACE: sa.Table = METADATA.tables["route_pace"]
SERVICE_NOTE: sa.Table = METADATA.tables["service_note"]
NOTICE_SENT: sa.Table = METADATA.tables["notice_sent"]
MEDIA: sa.Table = METADATA.tables["media"]
MEDIA_ADDRESS: sa.Table = METADATA.tables["media_address"]
BACKFILL: sa.Table = METADATA.tables["backfill"]
BACKFILL_SLICE: sa.Table = METADATA.tables["backfill_slice"]
