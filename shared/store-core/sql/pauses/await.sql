-- Records what a send waits for, replacing what was recorded before. Index: the primary key.
INSERT INTO pause_waits (tenant, send_id, pause_tenant, kind, name) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, send_id) DO UPDATE SET
    pause_tenant = excluded.pause_tenant,
    kind = excluded.kind,
    name = excluded.name;
