-- The erasure of a tenant with everything that it has.
--   erasing_at   when it began
--   erased_at    when nothing was left
--   erasure      how far it is, as JSON
ALTER TABLE tenants ADD COLUMN erasing_at BIGINT;
ALTER TABLE tenants ADD COLUMN erased_at BIGINT;
ALTER TABLE tenants ADD COLUMN erasure TEXT;
