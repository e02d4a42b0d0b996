-- Sets the limits on the seats of a tenant. Running sends take seats, however many they are.
-- Index: seat_limits_pkey.
INSERT INTO seat_limits AS l (tenant, sends_running, leaves_running, set_at)
VALUES (
    $2::integer, $3::integer, $4::integer,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
)
ON CONFLICT (tenant) DO UPDATE SET
    sends_running = excluded.sends_running, leaves_running = excluded.leaves_running
