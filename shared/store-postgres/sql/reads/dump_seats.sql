-- The sessions that have a seat or wait for one, for comparisons.
SELECT t.tenant, t.session_id, t.waits_since
FROM seats t
WHERE t.waits_since IS NOT NULL
   OR EXISTS (
       SELECT FROM session_hot h
       WHERE h.tenant = t.tenant AND h.session_id = t.session_id AND h.active = 1
   )
ORDER BY t.tenant, t.session_id
