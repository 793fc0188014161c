"""The tables of the state DB. They are not used outside this package.

SQLModel declares them; statements on the hot path use SQLAlchemy Core on the same tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import declared_attr
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from state.enums import Decision, GateState, Observed, Outcome, Phase


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


DECIDED = tuple(decision for decision in Decision if decision not in (Decision.RETRIED, Decision.RESENT))
"""The decisions that are stored; `retried` and `resent` say that a person's grant is used up."""
_HAS_BODY = " OR ".join(f"kind = '{kind}'" for kind in (Observed.EDITED, Observed.TO_PUBLISH, Observed.RETURNED, Observed.HELD))
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


def _index_where(condition: str, name: str, *columns: str, unique: bool = False) -> sa.Index:
    """Return an index of the rows under a condition only."""
    where = sa.text(condition)
    return sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _is_one_of(column: str, values: Iterable[StrEnum]) -> sa.CheckConstraint:
    """Return the constraint of a closed set. Of a list after IN, SQLite would make a table for every row that is written."""
    return sa.CheckConstraint(" OR ".join(f"{column} = '{value}'" for value in values), name=column)


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


class Entry(Row, table=True):
    """One row of one feed, for ever, and the last answer under its present key.

    `id` grows with age, and is never reused. The idempotency key is a function of row key and `revision`, and not stored.
    `fingerprint`, `twin_digest`, `channel_id` and `ends_at` (when the event is over: its end, or its start if it has none) are
    those of the entry's body, or of what is held; `ends_at` may be that of what its source asks for, if that is later.
    `twin_digest`: the duplicate digest. `row_digest`: of the cells from which that body was mapped, empty if the source says
    something else. `staged_run`, `sent_run`: numbers of runs.
    """

    __table_args__ = (
        sa.UniqueConstraint("scope_id", "row_key"),
        _index_where(f"outcome <> '{Outcome.CREATED}'", "ix_entry_open", "scope_id", "outcome", "id"),
        _index_where("event_id IS NOT NULL", "uq_entry_event", "scope_id", "event_id", unique=True),
        _is_one_of("outcome", Outcome),
        sa.CheckConstraint(
            "outcome = 'removed' OR (outcome = 'created') = (event_id IS NOT NULL)",
            name="event",
        ),
        sa.CheckConstraint("revision >= 0", name="revision"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=True))
    scope_id: int = Field(foreign_key="scope.id", sa_type=BIG_ID)
    row_key: str = Field(sa_type=PlainText)
    outcome: str = Field(sa_type=PlainText)
    revision: int = 0
    event_id: int | None = Field(default=None, sa_type=BIG_ID)
    fingerprint: str = Field(sa_type=PlainText)
    row_digest: bytes
    twin_digest: bytes
    channel_id: int = Field(sa_type=BIG_ID)
    ends_at: datetime | None = Field(default=None, sa_type=UtcTime)
    origin: str = Field(sa_type=PlainText)
    staged_run: int = Field(sa_type=BIG_ID)
    sent_run: int | None = Field(default=None, sa_type=BIG_ID)
    answer: str | None = Field(default=None, sa_type=PlainText)
    changed_at: datetime = Field(sa_type=UtcTime)
    created_at: datetime = Field(sa_type=UtcTime)


class Body(Row, table=True):
    """The bytes that go out under an entry's key, and then what the service shows as far as we know: the baseline.

    `cover_url`: an image to upload before the first request. Every entry has one, except those held or moved. It has no foreign
    key, which the database would check row by row (budget 4).
    """

    __table_args__ = (sa.CheckConstraint("(cover_url IS NULL) = (cover_on_error IS NULL)", name="cover"),)

    entry_id: int = Field(sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=False))
    body: bytes
    cover_url: str | None = Field(default=None, sa_type=PlainText)
    cover_on_error: str | None = Field(default=None, sa_type=PlainText)


class Attempt(Row, table=True):
    """The requests under one idempotency key that have no usable answer, or whose answer is stored under it.

    `requests`: those that may have created the event, counted before they leave; `since`: the time of the first, from which the
    service's memory of the key counts. `is_limited`: one was answered 429. `refused_id`, `denied_id`: the request ids of the
    refusal and the denial stored under the key. `granted`: what a person allows the next request. `last_at`, `run`: of the last
    claim or settlement, or of the decision that made the row. A receipt deletes it, unless several requests were made for the
    entry. It has no foreign key, as `body`.
    """

    __table_args__ = (
        sa.CheckConstraint("requests >= 0", name="requests"),
        sa.CheckConstraint("(requests > 0) = (since IS NOT NULL)", name="since"),
        sa.CheckConstraint("granted IS NULL OR granted = 'retry' OR granted = 'resend'", name="granted"),
    )

    entry_id: int = Field(sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=False))
    revision: int = Field(sa_column=sa.Column(sa.Integer, primary_key=True, autoincrement=False))
    requests: int
    since: datetime | None = Field(default=None, sa_type=UtcTime)
    is_limited: bool = False
    refused_id: str | None = Field(default=None, sa_type=PlainText)
    denied_id: str | None = Field(default=None, sa_type=PlainText)
    granted: str | None = Field(default=None, sa_type=PlainText)
    last_at: datetime = Field(sa_type=UtcTime)
    run: int = Field(sa_type=BIG_ID)


class Observation(Row, table=True):
    """The latest thing that a source said of a row and that its entry does not show; without one the source asks for what is
    shown.

    `body`: another payload that it asks for. `candidate_id`: the entry that a held row resembles; `rule`: the mapping's rule that
    leaves a vanished row out.
    """

    __table_args__ = (
        sa.Index(None, "scope_id", "kind", "entry_id"),
        _is_one_of("kind", [kind for kind in Observed if kind is not Observed.SAME]),
        sa.CheckConstraint(f"({_HAS_BODY}) = (body IS NOT NULL)", name="body"),
        sa.CheckConstraint("(body IS NOT NULL OR kind = 'counted') = (fingerprint IS NOT NULL)", name="fingerprint"),
        sa.CheckConstraint("(cover_url IS NULL) = (cover_on_error IS NULL)", name="cover"),
        sa.CheckConstraint("candidate_id IS NULL OR kind = 'held'", name="candidate"),
        sa.CheckConstraint("rule IS NULL OR kind = 'vanished'", name="rule"),
    )

    entry_id: int = Field(
        sa_column=sa.Column(BIG_ID, sa.ForeignKey("entry.id"), primary_key=True, autoincrement=False),
    )
    scope_id: int = Field(sa_type=BIG_ID)
    kind: str = Field(sa_type=PlainText)
    body: bytes | None = None
    fingerprint: str | None = Field(default=None, sa_type=PlainText)
    cover_url: str | None = Field(default=None, sa_type=PlainText)
    cover_on_error: str | None = Field(default=None, sa_type=PlainText)
    candidate_id: int | None = Field(default=None, sa_type=BIG_ID)
    rule: str | None = Field(default=None, sa_type=PlainText)
    seen_at: datetime = Field(sa_type=UtcTime)


class DecisionRow(Row, table=True):
    """A person's decision about an entry, and the entry before it; only the last one of an entry counts.

    `wish`: what the source said then: a fingerprint, or `cancelled`, `vanished` or `held`. `body`, `fingerprint`: where the
    decision replaced them; `answer`: the last answer, where the decision replaced that. `other_id`: the entry that gave up its
    event (`same_as`), or that a released row resembles.
    """

    __tablename__ = "decision"
    __table_args__ = (
        sa.Index(None, "entry_id", "id"),
        _index_where("other_id IS NOT NULL", "ix_decision_other", "other_id"),
        _is_one_of("option", DECIDED),
        sa.CheckConstraint("(body IS NULL) = (fingerprint IS NULL)", name="body"),
        sa.CheckConstraint("option = 'release' OR (option = 'same_as') = (other_id IS NOT NULL)", name="other"),
    )

    id: int | None = Field(default=None, sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=True))
    entry_id: int = Field(foreign_key="entry.id", sa_type=BIG_ID)
    option: str = Field(sa_type=PlainText)
    decided_by: str = Field(sa_type=PlainText)
    decided_at: datetime = Field(sa_type=UtcTime)
    wish: str = Field(sa_type=PlainText)
    outcome: str = Field(sa_type=PlainText)
    revision: int
    event_id: int | None = Field(default=None, sa_type=BIG_ID)
    body: bytes | None = None
    fingerprint: str | None = Field(default=None, sa_type=PlainText)
    answer: str | None = Field(default=None, sa_type=PlainText)
    other_id: int | None = Field(default=None, sa_type=BIG_ID)


class DuplicateMark(Row, table=True):
    """Index of duplicate digests over all feeds: the mark is the beginning of a present or former `twin_digest` of the entry.

    It is derived from `entry`. It has no foreign keys, which the database would check row by row.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    mark: bytes = Field(primary_key=True)
    entry_id: int = Field(primary_key=True, sa_type=BIG_ID)


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
    """One run of one feed: who launched it, its progress, accounts, messages about the service, and speed.

    `number`: its short name in entries.
    """

    __table_args__ = (sa.UniqueConstraint("scope_id", "id"), sa.Index(None, "scope_id", "started_at"))

    number: int | None = Field(default=None, sa_column=sa.Column(BIG_ID, primary_key=True, autoincrement=True))
    scope_id: int = Field(foreign_key="scope.id", sa_type=BIG_ID)
    id: str = Field(sa_type=PlainText)
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


class LeaseRow(Row, table=True):
    """The lease of a feed. The row is permanent, so that `token` only grows; a free lease has no holder."""

    __tablename__ = "lease"

    scope_id: int = Field(foreign_key="scope.id", primary_key=True, sa_type=BIG_ID)
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
    """A cause that a recipient was last notified of. Only the recipient's name is stored, no address."""

    destination: str = Field(primary_key=True, sa_type=PlainText)
    feed: str = Field(primary_key=True, sa_type=PlainText)
    recipient: str = Field(primary_key=True, sa_type=PlainText)
    cause: str = Field(primary_key=True, sa_type=PlainText)
    noted_at: datetime = Field(sa_type=UtcTime)


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


SCOPE: sa.Table = METADATA.tables["scope"]
ENTRY: sa.Table = METADATA.tables["entry"]
BODY: sa.Table = METADATA.tables["body"]
ATTEMPT: sa.Table = METADATA.tables["attempt"]
OBSERVATION: sa.Table = METADATA.tables["observation"]
DECISION: sa.Table = METADATA.tables["decision"]
DUPLICATE_MARK: sa.Table = METADATA.tables["duplicate_mark"]
SIDE_BY_SIDE: sa.Table = METADATA.tables["side_by_side"]
ROW_DIGESTS: sa.Table = METADATA.tables["row_digest_part"]
PROBLEM: sa.Table = METADATA.tables["problem_row"]
RUN: sa.Table = METADATA.tables["sync_run"]
LEASE: sa.Table = METADATA.tables["lease"]
ROUTE_PACE: sa.Table = METADATA.tables["route_pace"]
SERVICE_NOTE: sa.Table = METADATA.tables["service_note"]
NOTICE_SENT: sa.Table = METADATA.tables["notice_sent"]
MEDIA: sa.Table = METADATA.tables["media"]
MEDIA_ADDRESS: sa.Table = METADATA.tables["media_address"]
BACKFILL: sa.Table = METADATA.tables["backfill"]
BACKFILL_SLICE: sa.Table = METADATA.tables["backfill_slice"]
