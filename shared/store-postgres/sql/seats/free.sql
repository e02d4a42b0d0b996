-- Frees the seats of a tenant whose sends have ended or were parked. A transaction that is ending
-- one right now is not seen: that seat is freed for the next one that asks.
-- Index: seats_pkey, session_hot_pkey.
DELETE FROM seats t
WHERE t.tenant = $1::integer AND t.waits_since IS NULL
  AND NOT EXISTS (
      SELECT FROM session_hot h
      WHERE h.tenant = t.tenant AND h.session_id = t.session_id AND h.active = 1
  )
