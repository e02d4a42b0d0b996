-- The last number that a tenant got.
SELECT max(tenant) FROM tenants;
