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
    body_base BYTEA,
    released_id BIGINT NOT NULL DEFAULT '0',
    marked_id BIGINT NOT NULL DEFAULT '0',
    CONSTRAINT pk_scope PRIMARY KEY (id),
    CONSTRAINT uq_scope_destination_feed UNIQUE (destination, feed)
);
CREATE TABLE lease (
    scope_id BIGINT NOT NULL,
    token BIGINT NOT NULL,
    holder TEXT NOT NULL,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    process_started FLOAT NOT NULL,
    acquired_at TIMESTAMPTZ NOT NULL,
    heartbeat_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    boot TEXT NOT NULL DEFAULT '',
    beat_s FLOAT NOT NULL DEFAULT '0',
    CONSTRAINT pk_lease PRIMARY KEY (scope_id),
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
    resent_run TEXT,
    denied_request_id TEXT NOT NULL DEFAULT '',
    CONSTRAINT ck_ledger_entry_ck_ledger_entry_state CHECK (
        state = 'pending' OR state = 'delivered' OR state = 'delivered_unconfirmed'
        OR state = 'refused' OR state = 'blocked' OR state = 'uncertain' OR state = 'conflict'),
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
    CONSTRAINT pk_earlier_event PRIMARY KEY (entry_id, revision),
    CONSTRAINT fk_earlier_event_entry_id_ledger_entry FOREIGN KEY (entry_id) REFERENCES ledger_entry (id)
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
    CONSTRAINT pk_sync_run PRIMARY KEY (scope_id, id),
    CONSTRAINT fk_sync_run_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
CREATE TABLE twin_mark (
    scope_id BIGINT NOT NULL,
    mark BYTEA NOT NULL,
    entry_id BIGINT NOT NULL,
    CONSTRAINT pk_twin_mark PRIMARY KEY (scope_id, mark, entry_id)
) WITHOUT ROWID;
CREATE TABLE record_memory (
    scope_id BIGINT NOT NULL,
    part INTEGER NOT NULL,
    pairs BYTEA NOT NULL,
    CONSTRAINT pk_record_memory PRIMARY KEY (scope_id, part),
    CONSTRAINT fk_record_memory_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
CREATE TABLE row_release (
    scope_id BIGINT NOT NULL,
    row_key TEXT NOT NULL,
    decision TEXT NOT NULL,
    decided_at TIMESTAMPTZ NOT NULL,
    decided_by TEXT NOT NULL,
    CONSTRAINT pk_row_release PRIMARY KEY (scope_id, row_key),
    CONSTRAINT fk_row_release_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
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
CREATE TABLE route_worker (
    destination TEXT NOT NULL,
    route TEXT NOT NULL,
    worker TEXT NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_route_worker PRIMARY KEY (destination, route, worker)
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
CREATE INDEX ix_ledger_entry_decision ON ledger_entry (scope_id, decision) WHERE decision IS NOT NULL;
CREATE INDEX ix_ledger_entry_drift ON ledger_entry (scope_id, drift_kind) WHERE drift_kind IS NOT NULL;
CREATE INDEX ix_ledger_entry_past ON ledger_entry (scope_id, past_at) WHERE past_at IS NOT NULL;
CREATE INDEX ix_ledger_entry_resent ON ledger_entry (scope_id, resent_run) WHERE resent_run IS NOT NULL;
CREATE INDEX ix_ledger_entry_scope_id_state_id ON ledger_entry (scope_id, state, id);
CREATE INDEX ix_ledger_entry_vanished ON ledger_entry (scope_id, vanished_at) WHERE vanished_at IS NOT NULL;
CREATE INDEX ix_problem_row_scope_id_listed_run_kind_id ON problem_row (scope_id, listed_run, kind, id);
CREATE INDEX ix_sync_run_scope_id_started_at ON sync_run (scope_id, started_at);
