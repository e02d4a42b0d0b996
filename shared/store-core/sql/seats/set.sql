-- Sets the limits on the seats of the tenant $1. By the primary key.
INSERT INTO seat_limits (tenant, sends_running, leaves_running, set_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant) DO UPDATE SET
    sends_running = excluded.sends_running, leaves_running = excluded.leaves_running;
