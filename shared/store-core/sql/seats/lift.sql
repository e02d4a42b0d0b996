-- Removes the own limits of the tenant $1 on its seats. Whether its agents have limits is checked
-- in clear.sql. Locks the row under which others take seats.
UPDATE seat_limits SET sends_running = NULL, leaves_running = NULL WHERE tenant = $1;
