-- Writes steps that were numbered from locked hot rows.
INSERT INTO steps (tenant, session_id, n, send_id, kind, epoch, boot, at, refs)
SELECT i.tenant, i.session_id, i.n, i.send_id, 'finished', i.epoch, $1::uuid, $2::bigint, i.refs
FROM unnest($3::integer[], $4::uuid[], $5::bigint[], $6::uuid[], $7::bigint[], $8::text[])
    AS i (tenant, session_id, n, send_id, epoch, refs)
