INSERT INTO entry (id, scope_id, row_key, outcome, revision, event_id, fingerprint, row_digest, twin_digest, channel_id, ends_at, origin,
    staged_run, sent_run, answer, changed_at, created_at)
SELECT ledger_entry.id, scope_id, row_key,
    CASE WHEN state IN ('delivered', 'delivered_unconfirmed') AND removed_at IS NOT NULL THEN 'removed'
        WHEN state = 'refused' AND fingerprint = '' THEN 'idle'
        WHEN state = 'delivered' AND event_id IS NULL THEN 'used'
        WHEN state = 'pending' THEN 'owed' WHEN state = 'delivered' THEN 'created' WHEN state = 'delivered_unconfirmed' THEN 'used'
        WHEN state = 'blocked' THEN 'denied' WHEN state = 'uncertain' THEN 'unclear' WHEN state = 'superseded' THEN 'moved'
        ELSE state END,
    revision, CASE WHEN state IN ('delivered', 'delivered_unconfirmed') THEN event_id END,
    coalesce(baseline_fingerprint, fingerprint), CASE WHEN drift_fingerprint IS NULL THEN row_digest ELSE CAST('' AS BYTEA) END,
    twin_digest, channel_id, ends_at, origin,
    coalesce((SELECT number FROM sync_run WHERE sync_run.scope_id = ledger_entry.scope_id AND sync_run.id = staged_run), 0),
    CASE WHEN sent_run <> '' THEN
        coalesce((SELECT number FROM sync_run WHERE sync_run.scope_id = ledger_entry.scope_id AND sync_run.id = sent_run), 0) END,
    answer, updated_at, created_at
FROM ledger_entry ORDER BY ledger_entry.id;
INSERT INTO body (entry_id, body, cover_url, cover_on_error)
SELECT id, coalesce(baseline_body, body), cover_url, CASE WHEN cover_url IS NOT NULL THEN coalesce(cover_on_error, 'omit') END
FROM ledger_entry WHERE state NOT IN ('held', 'superseded') ORDER BY id;
CREATE TABLE tried AS SELECT id, revision, created_at, unanswered_at, is_limited, refused_request_id, denied_request_id, updated_at,
    CASE WHEN state = 'pending' AND attempts = 0 AND unanswered_at IS NULL AND revision > 0 THEN 0
        WHEN unanswered_at IS NOT NULL AND NOT is_limited AND copies = 0 THEN 1 ELSE copies END AS requests,
    CASE WHEN state = 'pending' AND attempts = 0 AND unanswered_at IS NULL AND revision > 0 THEN copies ELSE 0 END AS requests_before
FROM ledger_entry WHERE state NOT IN ('held', 'superseded') AND (unanswered_at IS NOT NULL OR refused_request_id <> ''
    OR denied_request_id <> '' OR copies > 1
    OR (copies > 0 AND (state <> 'delivered' OR decision IN ('event_id', 'reconciled'))));
INSERT INTO attempt (entry_id, revision, requests, since, is_limited, refused_id, denied_id, last_at, run)
SELECT tried.id, tried.revision, requests,
    CASE WHEN requests > 0 THEN CASE WHEN is_limited THEN tried.created_at ELSE coalesce(unanswered_at, tried.created_at) END END,
    is_limited AND unanswered_at IS NOT NULL, nullif(refused_request_id, ''), nullif(denied_request_id, ''), updated_at,
    coalesce(sent_run, staged_run)
FROM tried JOIN entry ON entry.id = tried.id
WHERE requests > 0 OR unanswered_at IS NOT NULL OR refused_request_id <> '' OR denied_request_id <> '';
INSERT INTO attempt (entry_id, revision, requests, since, is_limited, last_at, run)
SELECT tried.id, tried.revision - 1, requests_before, tried.created_at, false, updated_at, coalesce(sent_run, staged_run)
FROM tried JOIN entry ON entry.id = tried.id WHERE requests_before > 0;
DROP TABLE tried;
INSERT INTO observation (entry_id, scope_id, kind, body, fingerprint, cover_url, cover_on_error, candidate_id, seen_at)
SELECT id, scope_id, 'held', body, fingerprint, cover_url, CASE WHEN cover_url IS NOT NULL THEN coalesce(cover_on_error, 'omit') END,
    candidate_id, updated_at
FROM ledger_entry WHERE state = 'held';
INSERT INTO observation (entry_id, scope_id, kind, rule, seen_at)
SELECT id, scope_id, CASE WHEN past_at IS NOT NULL THEN 'gone' ELSE 'vanished' END,
    CASE WHEN past_at IS NULL THEN nullif(vanished_by, '') END, coalesce(past_at, vanished_at)
FROM ledger_entry WHERE state <> 'held' AND (past_at IS NOT NULL OR vanished_at IS NOT NULL);
INSERT INTO observation (entry_id, scope_id, kind, body, fingerprint, seen_at)
SELECT id, scope_id, coalesce(drift_kind, 'counted'), drift_body, CASE WHEN drift_kind = 'cancelled' THEN NULL ELSE drift_fingerprint END,
    updated_at
FROM ledger_entry WHERE state <> 'held' AND past_at IS NULL AND vanished_at IS NULL AND drift_fingerprint IS NOT NULL;
INSERT INTO decision (entry_id, option, decided_by, decided_at, wish, outcome, revision, other_id)
SELECT taker.id, 'same_as', coalesce(taker.decided_by, ''), giver.updated_at, taker.fingerprint, 'held', taker.revision, giver.id
FROM ledger_entry AS giver JOIN ledger_entry AS taker ON taker.id = giver.candidate_id
WHERE giver.state = 'superseded' AND coalesce(taker.decision, '') <> 'same_as' ORDER BY giver.id;
