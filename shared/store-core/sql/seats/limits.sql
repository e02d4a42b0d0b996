-- The seats of the tenant $1, locked: nobody else takes or calls any until the transaction ends.
SELECT sends_running, leaves_running FROM seat_limits WHERE tenant = $1 {lock};
