-- Sessions whose steps are not numbered without gaps from 1 up to, but not including, next_step,
-- except for those that were removed with their sends.
SELECT json_object('session', 'ses_' || lower(hex(h.session_id)),
                   'steps', count(s.n), 'next_step', h.next_step)
FROM session_hot h
LEFT JOIN steps s ON s.tenant = h.tenant AND s.session_id = h.session_id
LEFT JOIN retired_steps r ON r.tenant = h.tenant AND r.session_id = h.session_id
GROUP BY h.tenant, h.session_id
HAVING count(s.n) + coalesce(max(r.steps), 0) <> max(h.next_step) - 1
    OR coalesce(min(s.n), 1) < 1
    OR coalesce(max(s.n), 0) > max(h.next_step) - 1
ORDER BY h.tenant, h.session_id
LIMIT $1;
