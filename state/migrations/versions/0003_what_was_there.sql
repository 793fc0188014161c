UPDATE scope SET whole_read_at = (SELECT max(started_at) FROM sync_run WHERE sync_run.scope_id = scope.id AND is_whole
    AND brakes = '[]' AND stage_report IS NOT NULL) WHERE last_whole_read IS NOT NULL;
UPDATE ledger_entry SET copies = CASE
    WHEN resent_run IS NOT NULL THEN CASE WHEN attempts > 2 THEN attempts ELSE 2 END
    WHEN unanswered_at IS NOT NULL THEN CASE WHEN attempts > 1 THEN attempts ELSE 1 END
    WHEN state IN ('delivered', 'delivered_unconfirmed') THEN 1 ELSE 0 END;
UPDATE earlier_event SET copies = 1;
DROP INDEX ix_ledger_entry_resent;
ALTER TABLE ledger_entry DROP COLUMN resent_run;
DELETE FROM problem_row WHERE kind = 'held' AND listed_run = '';
DROP TABLE row_release;
UPDATE ledger_entry SET ignored_fingerprint = coalesce(drift_fingerprint, fingerprint)
    WHERE decision = 'ignore' AND state <> 'held';
UPDATE problem_row SET listed_run = CASE WHEN run_id = (SELECT run_id FROM problem_row AS other
    WHERE other.scope_id = problem_row.scope_id AND other.kind = 'warning' AND other.row_key = problem_row.row_key
    ORDER BY other.seen_at DESC, other.id DESC LIMIT 1) THEN run_id ELSE '' END WHERE kind = 'warning';
UPDATE ledger_entry SET row_digest = CAST('' AS BYTEA) WHERE EXISTS (SELECT 1 FROM problem_row
    WHERE problem_row.scope_id = ledger_entry.scope_id AND kind = 'warning' AND problem_row.row_key = ledger_entry.row_key);
DROP TABLE twin_mark;
INSERT INTO duplicate_mark (mark, entry_id) SELECT substr(twin_digest, 1, 8), id FROM ledger_entry
    WHERE state <> 'held' ORDER BY 1, 2;
UPDATE scope SET marked_id = coalesce((SELECT max(id) FROM ledger_entry WHERE scope_id = scope.id), 0);
UPDATE scope SET stamp = '', cursor = '';
DELETE FROM record_memory;
