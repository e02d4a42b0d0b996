-- Creates a tenant.
INSERT INTO tenants (tenant, name, limits, created_at) VALUES ($1, $2, $3, $4);
