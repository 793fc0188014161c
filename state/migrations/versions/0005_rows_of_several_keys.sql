CREATE TABLE known_as (
    scope_id BIGINT NOT NULL,
    digest BYTEA NOT NULL,
    entry_id BIGINT NOT NULL,
    columns TEXT NOT NULL,
    CONSTRAINT pk_known_as PRIMARY KEY (scope_id, digest, entry_id, columns)
) WITHOUT ROWID;
CREATE INDEX ix_known_as_entry_id ON known_as (entry_id);
