-- Notes how far the erasure of the tenant $1 is.
UPDATE tenants SET erasure = $2 WHERE tenant = $1;
