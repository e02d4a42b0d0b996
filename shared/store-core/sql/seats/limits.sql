-- The limits on the seats of the tenant $1, and whether its agents have limits; locked: nobody else
-- takes or calls any until the transaction ends.
SELECT sends_running, leaves_running, agents FROM seat_limits WHERE tenant = $1 {lock};
