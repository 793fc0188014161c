DROP TABLE shard_run;
CREATE TABLE run_before AS SELECT * FROM sync_run;
DROP TABLE sync_run;
CREATE TABLE sync_run (
    number BIGSERIAL NOT NULL,
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
    notices TEXT NOT NULL,
    pace TEXT NOT NULL,
    standing TEXT,
    CONSTRAINT pk_sync_run PRIMARY KEY (number),
    CONSTRAINT uq_sync_run_scope_id_id UNIQUE (scope_id, id),
    CONSTRAINT fk_sync_run_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
CREATE INDEX ix_sync_run_scope_id_started_at ON sync_run (scope_id, started_at);
INSERT INTO sync_run (scope_id, id, started_at, finished_at, launched_by, dagster_run_id, phase, outcome, exit_code, message, is_whole,
    read_account, stage_report, publish_account, brakes, notices, pace, standing)
SELECT scope_id, id, started_at, finished_at, launched_by, dagster_run_id, phase, outcome, exit_code, message, is_whole,
    read_account, stage_report, publish_account, brakes, notices, pace, standing
FROM run_before ORDER BY started_at, scope_id, id;
DROP TABLE run_before;
CREATE TABLE lease_before AS SELECT * FROM lease;
DROP TABLE lease;
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
    boot TEXT NOT NULL,
    CONSTRAINT pk_lease PRIMARY KEY (scope_id),
    CONSTRAINT fk_lease_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
INSERT INTO lease
SELECT lease_before.scope_id, newest, holder, host, pid, process_started, acquired_at, heartbeat_at, expires_at, boot
FROM lease_before JOIN (SELECT scope_id, max(token) AS newest, min(shard) AS first FROM lease_before GROUP BY scope_id) AS every
    ON every.scope_id = lease_before.scope_id AND every.first = lease_before.shard;
DROP TABLE lease_before;
CREATE TABLE notice_before AS SELECT * FROM notice_sent;
DROP TABLE notice_sent;
CREATE TABLE notice_sent (
    destination TEXT NOT NULL,
    feed TEXT NOT NULL,
    recipient TEXT NOT NULL,
    cause TEXT NOT NULL,
    noted_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_notice_sent PRIMARY KEY (destination, feed, recipient, cause)
);
INSERT INTO notice_sent
SELECT destination, feed, recipient, cause, noted_at FROM notice_before WHERE told_at IS NOT NULL;
DROP TABLE notice_before;
DELETE FROM problem_row WHERE kind = 'held' AND EXISTS (SELECT 1 FROM ledger_entry
    WHERE ledger_entry.scope_id = problem_row.scope_id AND ledger_entry.row_key = problem_row.row_key
    AND state = 'held' AND length(body) = 0);
DELETE FROM ledger_entry WHERE state = 'held' AND length(body) = 0;
CREATE TABLE entry (
    id BIGSERIAL NOT NULL CONSTRAINT pk_entry PRIMARY KEY AUTOINCREMENT,
    scope_id BIGINT NOT NULL,
    row_key TEXT NOT NULL,
    outcome TEXT NOT NULL,
    revision INTEGER NOT NULL,
    event_id BIGINT,
    fingerprint TEXT NOT NULL,
    row_digest BYTEA NOT NULL,
    twin_digest BYTEA NOT NULL,
    channel_id BIGINT NOT NULL,
    ends_at TIMESTAMPTZ,
    origin TEXT NOT NULL,
    staged_run BIGINT NOT NULL,
    sent_run BIGINT,
    answer TEXT,
    changed_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT uq_entry_scope_id_row_key UNIQUE (scope_id, row_key),
    CONSTRAINT ck_entry_outcome CHECK (
        outcome = 'owed' OR outcome = 'created' OR outcome = 'used' OR outcome = 'refused' OR outcome = 'denied'
        OR outcome = 'unclear' OR outcome = 'conflict' OR outcome = 'removed' OR outcome = 'held'
        OR outcome = 'moved' OR outcome = 'idle'),
    CONSTRAINT ck_entry_event CHECK (outcome = 'removed' OR (outcome = 'created') = (event_id IS NOT NULL)),
    CONSTRAINT ck_entry_revision CHECK (revision >= 0),
    CONSTRAINT fk_entry_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id)
);
CREATE INDEX ix_entry_open ON entry (scope_id, outcome, id) WHERE outcome <> 'created';
CREATE UNIQUE INDEX uq_entry_event ON entry (scope_id, event_id) WHERE event_id IS NOT NULL;
CREATE TABLE body (
    entry_id BIGINT NOT NULL,
    body BYTEA NOT NULL,
    cover_url TEXT,
    cover_on_error TEXT,
    CONSTRAINT pk_body PRIMARY KEY (entry_id),
    CONSTRAINT ck_body_cover CHECK ((cover_url IS NULL) = (cover_on_error IS NULL))
);
CREATE TABLE attempt (
    entry_id BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    since TIMESTAMPTZ,
    is_limited BOOLEAN NOT NULL,
    refused_id TEXT,
    denied_id TEXT,
    granted TEXT,
    last_at TIMESTAMPTZ NOT NULL,
    run BIGINT NOT NULL,
    CONSTRAINT pk_attempt PRIMARY KEY (entry_id, revision),
    CONSTRAINT ck_attempt_requests CHECK (requests >= 0),
    CONSTRAINT ck_attempt_since CHECK ((requests > 0) = (since IS NOT NULL)),
    CONSTRAINT ck_attempt_granted CHECK (granted IS NULL OR granted = 'retry' OR granted = 'resend')
);
CREATE TABLE observation (
    entry_id BIGINT NOT NULL,
    scope_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body BYTEA,
    fingerprint TEXT,
    cover_url TEXT,
    cover_on_error TEXT,
    candidate_id BIGINT,
    rule TEXT,
    seen_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT pk_observation PRIMARY KEY (entry_id),
    CONSTRAINT ck_observation_kind CHECK (
        kind = 'edited' OR kind = 'to_publish' OR kind = 'counted' OR kind = 'cancelled' OR kind = 'returned'
        OR kind = 'vanished' OR kind = 'gone' OR kind = 'held'),
    CONSTRAINT ck_observation_body CHECK (
        (kind = 'edited' OR kind = 'to_publish' OR kind = 'returned' OR kind = 'held') = (body IS NOT NULL)),
    CONSTRAINT ck_observation_fingerprint CHECK ((body IS NOT NULL OR kind = 'counted') = (fingerprint IS NOT NULL)),
    CONSTRAINT ck_observation_cover CHECK ((cover_url IS NULL) = (cover_on_error IS NULL)),
    CONSTRAINT ck_observation_candidate CHECK (candidate_id IS NULL OR kind = 'held'),
    CONSTRAINT ck_observation_rule CHECK (rule IS NULL OR kind = 'vanished'),
    CONSTRAINT fk_observation_entry_id_entry FOREIGN KEY (entry_id) REFERENCES entry (id)
);
CREATE INDEX ix_observation_scope_id_kind_entry_id ON observation (scope_id, kind, entry_id);
CREATE TABLE decision (
    id BIGSERIAL NOT NULL,
    entry_id BIGINT NOT NULL,
    option TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    decided_at TIMESTAMPTZ NOT NULL,
    wish TEXT NOT NULL,
    outcome TEXT NOT NULL,
    revision INTEGER NOT NULL,
    event_id BIGINT,
    body BYTEA,
    fingerprint TEXT,
    answer TEXT,
    other_id BIGINT,
    CONSTRAINT pk_decision PRIMARY KEY (id),
    CONSTRAINT ck_decision_option CHECK (
        option = 'retry' OR option = 'resend' OR option = 'event_id' OR option = 'reconciled' OR option = 'ignore'
        OR option = 'applied' OR option = 'same_as' OR option = 'release' OR option = 'removed'),
    CONSTRAINT ck_decision_body CHECK ((body IS NULL) = (fingerprint IS NULL)),
    CONSTRAINT ck_decision_other CHECK (option = 'release' OR (option = 'same_as') = (other_id IS NOT NULL)),
    CONSTRAINT fk_decision_entry_id_entry FOREIGN KEY (entry_id) REFERENCES entry (id)
);
CREATE INDEX ix_decision_entry_id_id ON decision (entry_id, id);
CREATE INDEX ix_decision_other ON decision (other_id) WHERE other_id IS NOT NULL;
