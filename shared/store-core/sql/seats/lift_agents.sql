-- Records that no agent of the tenant $1 has a limit any more. Whether the tenant has one is
-- checked in clear.sql. By the primary key.
UPDATE seat_limits SET agents = 0 WHERE tenant = $1;
