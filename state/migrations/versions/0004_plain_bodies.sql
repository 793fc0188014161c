ALTER TABLE scope DROP COLUMN body_base;
ALTER TABLE lease DROP COLUMN beat_s;
DROP TABLE record_memory;
DROP TABLE route_worker;
CREATE TABLE row_digest_part (
    scope_id BIGINT NOT NULL,
    part INTEGER NOT NULL,
    digests BYTEA NOT NULL,
    entries BYTEA NOT NULL,
    CONSTRAINT fk_row_digest_part_scope_id_scope FOREIGN KEY (scope_id) REFERENCES scope (id),
    CONSTRAINT pk_row_digest_part PRIMARY KEY (scope_id, part)
);
