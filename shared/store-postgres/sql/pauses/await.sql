-- Records what a send waits for, replacing what was recorded before. Index: the primary key.
INSERT INTO pause_waits AS w (tenant, send_id, pause_tenant, kind, name)
VALUES ($1::integer, $2::uuid, $3::integer, $4::text, $5::text)
ON CONFLICT (tenant, send_id) DO UPDATE SET
    pause_tenant = excluded.pause_tenant,
    kind = excluded.kind,
    name = excluded.name
