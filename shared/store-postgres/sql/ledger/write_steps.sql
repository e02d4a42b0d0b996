-- Writes final steps that were numbered from locked hot rows.
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
SELECT i.tenant, i.session_id, i.n, i.send_id, 'finished', i.epoch, i.boot, $1::bigint, i.refs
FROM unnest(
    $2::integer[], $3::uuid[], $4::bigint[], $5::uuid[], $6::bigint[], $7::uuid[], $8::text[]
) AS i (tenant, session_id, n, send_id, epoch, boot, refs)
