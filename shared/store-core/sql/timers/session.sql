-- Whether a session, which is locked, accepts timers, and how many armed ones it has, by
-- timers_session.
{lock_session}
SELECT h.lifecycle,
       (SELECT count(*) FROM timers t
        WHERE t.tenant = h.tenant AND t.session_id = h.session_id AND t.status = 'armed') AS armed
FROM session_hot h
WHERE h.tenant = $1 AND h.session_id = $2;
