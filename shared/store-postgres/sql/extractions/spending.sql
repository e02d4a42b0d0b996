-- What a session has spent, and its owner; neither changes until the transaction ends.
-- Index: the primary key.
SELECT h.owner_boot, h.spent
FROM session_hot h
WHERE h.tenant = $1::integer AND h.session_id = $2::uuid
FOR UPDATE
