-- The tenant $1 itself limits its seats no more. Whether agents of it do is clear.sql's business. Locks the
-- row under which others take some.
UPDATE seat_limits SET sends_running = NULL, leaves_running = NULL WHERE tenant = $1;
