-- Creates a tenant.
INSERT INTO tenants (tenant, name, limits, created_at, weight, retention, pools)
VALUES ($1, $2, $3, $4, $5, $6, $7);
