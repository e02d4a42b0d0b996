-- Registers a boot.
INSERT INTO boots (boot_id, role, name, pool, concurrency, started_at, lease_until, lease_ms,
                   protocol, tools)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
