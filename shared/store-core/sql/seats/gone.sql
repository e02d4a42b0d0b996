-- Sessions at the head of the line of the tenant $1 that have no work any more. By seats_line.
SELECT f.session_id
FROM (SELECT w.tenant, w.session_id FROM seats w
      WHERE w.tenant = $1 AND w.waits_since IS NOT NULL
      ORDER BY w.leaf, w.waits_since, w.session_id
      LIMIT $2) f
WHERE NOT EXISTS (SELECT 1 FROM session_hot h
                  WHERE h.tenant = f.tenant AND h.session_id = f.session_id
                    AND h.ready_since IS NOT NULL AND h.lifecycle <> 2);
