-- The tenant $1 has as many seats as it wants from now on. First the row under whose lock others take some.
DELETE FROM seat_limits WHERE tenant = $1;
DELETE FROM seats WHERE tenant = $1;
