-- The limits on the seats of a tenant, and whether its agents have limits; locked: nobody else
-- takes or calls any until the transaction ends.
-- Index: seat_limits_pkey.
SELECT l.sends_running, l.leaves_running, l.agents FROM seat_limits l WHERE l.tenant = $1::integer FOR UPDATE
