ALTER TABLE ledger_entry ADD COLUMN ends_at TIMESTAMPTZ;
ALTER TABLE ledger_entry ADD COLUMN baseline_body BYTEA;
ALTER TABLE ledger_entry ADD COLUMN baseline_fingerprint TEXT;
ALTER TABLE ledger_entry ADD COLUMN ignored_fingerprint TEXT;
ALTER TABLE ledger_entry ADD COLUMN candidate_id BIGINT;
ALTER TABLE ledger_entry ADD COLUMN removed_at TIMESTAMPTZ;
ALTER TABLE ledger_entry ADD COLUMN vanished_by TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger_entry ADD COLUMN undo TEXT;
ALTER TABLE ledger_entry ADD COLUMN copies INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_entry ADD COLUMN is_limited BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE earlier_event ADD COLUMN ends_at TIMESTAMPTZ;
ALTER TABLE earlier_event ADD COLUMN removed_at TIMESTAMPTZ;
ALTER TABLE earlier_event ADD COLUMN copies INTEGER NOT NULL DEFAULT 0;
ALTER TABLE scope ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE scope ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
ALTER TABLE scope ADD COLUMN key_definition TEXT NOT NULL DEFAULT '';
ALTER TABLE scope ADD COLUMN stopped_by TEXT NOT NULL DEFAULT '';
ALTER TABLE scope ADD COLUMN whole_read_at TIMESTAMPTZ;
ALTER TABLE sync_run ADD COLUMN standing TEXT;
CREATE INDEX ix_scope_service ON scope (service);
CREATE INDEX ix_ledger_entry_removed ON ledger_entry (scope_id, removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX ix_ledger_entry_copies ON ledger_entry (scope_id, copies) WHERE copies > 1;
CREATE TABLE side_by_side (
    scope_id BIGINT NOT NULL,
    other_id BIGINT NOT NULL,
    CONSTRAINT fk_side_by_side_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id),
    CONSTRAINT fk_side_by_side_other_id_scope FOREIGN KEY (other_id) REFERENCES scope (id),
    CONSTRAINT pk_side_by_side PRIMARY KEY (scope_id, other_id)
);
CREATE TABLE duplicate_mark (
    mark BYTEA NOT NULL,
    entry_id BIGINT NOT NULL,
    CONSTRAINT pk_duplicate_mark PRIMARY KEY (mark, entry_id)
) WITHOUT ROWID;
