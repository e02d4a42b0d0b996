-- The seats of the tenant $1. One writer at a time is enough for a lock here.
SELECT sends_running, leaves_running FROM seat_limits WHERE tenant = $1;
