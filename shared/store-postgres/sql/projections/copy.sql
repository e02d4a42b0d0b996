-- Stores the projections of the sends of a copied session.
INSERT INTO projections (tenant, session_id, from_seq, to_seq, send_id, version, digest)
SELECT $1::integer, $2::uuid, p.from_seq, p.to_seq, p.send_id, p.version, p.digest
FROM unnest(
    $3::bigint[], $4::bigint[], $5::bigint[], $6::uuid[], $7::integer[], $8::text[]
) AS p (ord, from_seq, to_seq, send_id, version, digest)
