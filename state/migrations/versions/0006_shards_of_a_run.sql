CREATE TABLE lease_before AS SELECT * FROM lease;
DROP TABLE lease;
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
INSERT INTO lease SELECT scope_id, 0, 1, token, holder, host, pid, process_started, acquired_at, heartbeat_at, expires_at, boot
    FROM lease_before;
DROP TABLE lease_before;
ALTER TABLE sync_run ADD COLUMN shards INTEGER NOT NULL DEFAULT 1;
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
