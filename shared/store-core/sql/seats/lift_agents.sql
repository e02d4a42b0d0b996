-- No agent of the tenant $1 has a limit from now on. Whether the tenant has is clear.sql's business. By the primary key.
UPDATE seat_limits SET agents = 0 WHERE tenant = $1;
