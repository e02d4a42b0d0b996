-- The highest number that a tenant got.
SELECT max(tenant) FROM tenants;
