CREATE TABLE scope (
    id BIGSERIAL NOT NULL,
    destination TEXT NOT NULL,
    feed TEXT NOT NULL,
    gate TEXT NOT NULL,
    gate_run TEXT NOT NULL,
    gate_reason TEXT NOT NULL,
    last_whole_read BIGINT,
    stamp TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    cursor TEXT NOT NULL DEFAULT '',
    cursor_fit TEXT NOT NULL DEFAULT '',
    full_read_at TIMESTAMPTZ,
    released_id BIGINT NOT NULL DEFAULT '0',
    marked_id BIGINT NOT NULL DEFAULT '0',
    service TEXT NOT NULL DEFAULT '',
    namespace TEXT NOT NULL DEFAULT '',
    key_definition TEXT NOT NULL DEFAULT '',
    stopped_by TEXT NOT NULL DEFAULT '',
    whole_read_at TIMESTAMPTZ,
    CONSTRAINT pk_scope PRIMARY KEY (id),
    CONSTRAINT uq_scope_destination_feed UNIQUE (destination, feed)
);
CREATE TABLE lease (
    scope_id BIGINT NOT NULL,
    shard INTEGER NOT NULL,
    shards INTEGER NOT NULL,
    token BIGINT NOT NULL,
    holder TEXT NOT NULL,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    process_started FLOAT NOT NULL,
    acquired_at TIMESTAMPTZ NOT NULL,
    heartbeat_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    boot TEXT NOT NULL DEFAULT '',
    CONSTRAINT pk_lease PRIMARY KEY (scope_id, shard),
    CONSTRAINT fk_lease_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
CREATE TABLE ledger_entry (
    id BIGSERIAL NOT NULL CONSTRAINT pk_ledger_entry PRIMARY KEY AUTOINCREMENT,
    scope_id BIGINT NOT NULL,
    row_key TEXT NOT NULL,
    state TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body BYTEA NOT NULL,
    cover_url TEXT,
    cover_on_error TEXT,
    fingerprint TEXT NOT NULL,
    row_digest BYTEA NOT NULL,
    twin_digest BYTEA NOT NULL,
    channel_id BIGINT NOT NULL,
    event_id BIGINT,
    attempts INTEGER NOT NULL,
    unanswered_at TIMESTAMPTZ,
    answer TEXT,
    refused_request_id TEXT NOT NULL,
    drift_body BYTEA,
    drift_fingerprint TEXT,
    drift_kind TEXT,
    vanished_at TIMESTAMPTZ,
    origin TEXT NOT NULL,
    staged_run TEXT NOT NULL,
    sent_run TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    decision TEXT,
    decided_at TIMESTAMPTZ,
    decided_by TEXT,
    past_at TIMESTAMPTZ,
    denied_request_id TEXT NOT NULL DEFAULT '',
    ends_at TIMESTAMPTZ,
    baseline_body BYTEA,
    baseline_fingerprint TEXT,
    ignored_fingerprint TEXT,
    candidate_id BIGINT,
    removed_at TIMESTAMPTZ,
    vanished_by TEXT NOT NULL DEFAULT '',
    undo TEXT,
    copies INTEGER NOT NULL DEFAULT 0,
    is_limited BOOLEAN NOT NULL DEFAULT false,
    CONSTRAINT ck_ledger_entry_state CHECK (
        state = 'pending' OR state = 'delivered' OR state = 'delivered_unconfirmed' OR state = 'refused' OR state = 'blocked'
        OR state = 'uncertain' OR state = 'conflict' OR state = 'held' OR state = 'superseded'),
    CONSTRAINT fk_ledger_entry_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id),
    CONSTRAINT uq_ledger_entry_scope_id_row_key UNIQUE (scope_id, row_key)
);
CREATE TABLE earlier_event (
    entry_id BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    body BYTEA NOT NULL,
    fingerprint TEXT NOT NULL,
    row_digest BYTEA NOT NULL,
    twin_digest BYTEA NOT NULL,
    channel_id BIGINT NOT NULL,
    event_id BIGINT,
    attempts INTEGER NOT NULL,
    answer TEXT,
    sent_run TEXT NOT NULL,
    replaced_at TIMESTAMPTZ NOT NULL,
    is_let_out BOOLEAN NOT NULL,
    ends_at TIMESTAMPTZ,
    removed_at TIMESTAMPTZ,
    copies INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT pk_earlier_event PRIMARY KEY (entry_id, revision),
    CONSTRAINT fk_earlier_event_entry_id_ledger_entry FOREIGN KEY (entry_id) REFERENCES ledger_entry (id)
);
CREATE TABLE known_as (
    scope_id BIGINT NOT NULL,
    digest BYTEA NOT NULL,
    entry_id BIGINT NOT NULL,
    columns TEXT NOT NULL,
    CONSTRAINT pk_known_as PRIMARY KEY (scope_id, digest, entry_id, columns)
) WITHOUT ROWID;
CREATE TABLE duplicate_mark (
    mark BYTEA NOT NULL,
    entry_id BIGINT NOT NULL,
    CONSTRAINT pk_duplicate_mark PRIMARY KEY (mark, entry_id)
) WITHOUT ROWID;
CREATE TABLE row_digest_part (
    scope_id BIGINT NOT NULL,
    part INTEGER NOT NULL,
    digests BYTEA NOT NULL,
    entries BYTEA NOT NULL,
    CONSTRAINT fk_row_digest_part_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id),
    CONSTRAINT pk_row_digest_part PRIMARY KEY (scope_id, part)
);
CREATE TABLE side_by_side (
    scope_id BIGINT NOT NULL,
    other_id BIGINT NOT NULL,
    CONSTRAINT fk_side_by_side_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id),
    CONSTRAINT fk_side_by_side_other_id_scope FOREIGN KEY (other_id) REFERENCES scope (id),
    CONSTRAINT pk_side_by_side PRIMARY KEY (scope_id, other_id)
);
CREATE TABLE problem_row (
    id BIGSERIAL NOT NULL,
    scope_id BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    row_key TEXT NOT NULL,
    origin TEXT NOT NULL,
    reasons TEXT NOT NULL,
    cells TEXT NOT NULL,
    digest BYTEA NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL,
    listed_run TEXT NOT NULL DEFAULT '',
    CONSTRAINT pk_problem_row PRIMARY KEY (id),
    CONSTRAINT fk_problem_row_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id),
    CONSTRAINT uq_problem_row_scope_id_digest UNIQUE (scope_id, digest)
);
CREATE TABLE sync_run (
    scope_id BIGINT NOT NULL,
    id TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    launched_by TEXT NOT NULL,
    dagster_run_id TEXT,
    phase TEXT NOT NULL,
    outcome TEXT,
    exit_code INTEGER,
    message TEXT NOT NULL,
    is_whole BOOLEAN NOT NULL,
    read_account TEXT,
    stage_report TEXT,
    publish_account TEXT,
    brakes TEXT NOT NULL,
    notices TEXT NOT NULL DEFAULT '[]',
    pace TEXT NOT NULL DEFAULT '{}',
    standing TEXT,
    shards INTEGER NOT NULL DEFAULT 1,
    CONSTRAINT pk_sync_run PRIMARY KEY (scope_id, id),
    CONSTRAINT fk_sync_run_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
CREATE TABLE shard_run (
    scope_id BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    shard INTEGER NOT NULL,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    outcome TEXT,
    exit_code INTEGER,
    message TEXT NOT NULL,
    publish_account TEXT,
    pace TEXT NOT NULL,
    dagster_run_id TEXT,
    CONSTRAINT pk_shard_run PRIMARY KEY (scope_id, run_id, shard),
    CONSTRAINT fk_shard_run_scope_id_sync_run FOREIGN KEY (scope_id, run_id) REFERENCES sync_run (scope_id, id)
);
CREATE TABLE backfill (
    id TEXT NOT NULL,
    destination TEXT NOT NULL,
    feed TEXT NOT NULL,
    plan TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_backfill PRIMARY KEY (id)
);
CREATE TABLE backfill_slice (
    backfill_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    first_day TEXT NOT NULL,
    last_day TEXT NOT NULL,
    state TEXT NOT NULL,
    claim TEXT NOT NULL,
    run_id TEXT NOT NULL,
    exit_code INTEGER,
    message TEXT NOT NULL,
    counts TEXT NOT NULL,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    CONSTRAINT pk_backfill_slice PRIMARY KEY (backfill_id, number),
    CONSTRAINT fk_backfill_slice_backfill_id_backfill FOREIGN KEY (backfill_id) REFERENCES backfill (id)
);
CREATE TABLE media (
    destination TEXT NOT NULL,
    content_digest BYTEA NOT NULL,
    media_id BIGINT NOT NULL,
    uploaded_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_media PRIMARY KEY (destination, content_digest)
);
CREATE TABLE media_address (
    destination TEXT NOT NULL,
    url TEXT NOT NULL,
    content_digest BYTEA NOT NULL,
    etag TEXT NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_media_address PRIMARY KEY (destination, url)
);
CREATE TABLE route_pace (
    destination TEXT NOT NULL,
    route TEXT NOT NULL,
    version BIGINT NOT NULL,
    pace TEXT NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_route_pace PRIMARY KEY (destination, route)
);
CREATE TABLE service_note (
    destination TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    noted_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_service_note PRIMARY KEY (destination, name)
);
CREATE TABLE notice_sent (
    destination TEXT NOT NULL,
    feed TEXT NOT NULL,
    recipient TEXT NOT NULL,
    cause TEXT NOT NULL,
    words TEXT NOT NULL,
    noted_at TIMESTAMPTZ NOT NULL,
    told_at TIMESTAMPTZ,
    is_over BOOLEAN NOT NULL,
    claimed_until TIMESTAMPTZ,
    CONSTRAINT pk_notice_sent PRIMARY KEY (destination, feed, recipient, cause)
);
CREATE INDEX ix_backfill_destination_feed ON backfill (destination, feed);
CREATE INDEX ix_known_as_entry_id ON known_as (entry_id);
CREATE INDEX ix_ledger_entry_copies ON ledger_entry (scope_id, copies) WHERE copies > 1;
CREATE INDEX ix_ledger_entry_decision ON ledger_entry (scope_id, decision) WHERE decision IS NOT NULL;
CREATE INDEX ix_ledger_entry_drift ON ledger_entry (scope_id, drift_kind) WHERE drift_kind IS NOT NULL;
CREATE INDEX ix_ledger_entry_past ON ledger_entry (scope_id, past_at) WHERE past_at IS NOT NULL;
CREATE INDEX ix_ledger_entry_removed ON ledger_entry (scope_id, removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX ix_ledger_entry_scope_id_state_id ON ledger_entry (scope_id, state, id);
CREATE INDEX ix_ledger_entry_vanished ON ledger_entry (scope_id, vanished_at) WHERE vanished_at IS NOT NULL;
CREATE INDEX ix_problem_row_scope_id_listed_run_kind_id ON problem_row (scope_id, listed_run, kind, id);
CREATE INDEX ix_scope_service ON scope (service);
CREATE INDEX ix_sync_run_scope_id_started_at ON sync_run (scope_id, started_at);
