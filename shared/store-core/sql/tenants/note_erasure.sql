-- Records how far the erasure of the tenant $1 has got.
UPDATE tenants SET erasure = $2 WHERE tenant = $1;
