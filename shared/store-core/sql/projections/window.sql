-- What the sends of a window that begins at $3 are shown as once they are old, with the
-- transcript's first message number. By their key.
SELECT p.tenant, p.session_id, {p.projection}, s.first_seq
FROM sessions s
JOIN projections p ON p.tenant = s.tenant AND p.session_id = s.session_id
WHERE s.tenant = $1 AND s.session_id = $2 AND p.from_seq >= $3
ORDER BY p.from_seq;
