-- Writes locked hot rows back.
-- Index: session_hot_pkey.
UPDATE session_hot h SET
    owner_boot = i.owner_boot,
    token = i.token,
    epoch = i.epoch,
    next_seq = i.next_seq,
    next_position = i.next_position,
    next_step = i.next_step,
    pending = i.pending,
    active = i.active,
    signals = i.signals,
    ready_since = i.ready_since,
    lifecycle = i.lifecycle,
    pool = i.pool,
    priority = i.priority,
    writes = i.writes
FROM unnest(
    $1::integer[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::smallint[], $11::integer[], $12::bigint[], $13::smallint[],
    $14::text[], $15::smallint[], $16::bigint[]
) AS i (
    tenant, session_id, owner_boot, token, epoch, next_seq, next_position, next_step, pending,
    active, signals, ready_since, lifecycle, pool, priority, writes
)
WHERE h.tenant = i.tenant AND h.session_id = i.session_id
