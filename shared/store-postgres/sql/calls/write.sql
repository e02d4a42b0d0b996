-- Writes the changes of calls whose sessions' hot rows are locked.
-- Index: tool_calls_pkey.
UPDATE tool_calls c SET
    waits_on = i.waits_on,
    approval = i.approval,
    deadline_at = i.deadline_at,
    result = i.result,
    settled_at = i.settled_at,
    asked = i.asked,
    claim = i.claim,
    claimed_until = i.claimed_until,
    claim_n = i.claim_n
FROM unnest(
    $1::integer[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
    $8::text[], $9::uuid[], $10::bigint[], $11::integer[]
) AS i (
    tenant, call_id, waits_on, approval, deadline_at, result, settled_at, asked, claim,
    claimed_until, claim_n
)
WHERE c.tenant = i.tenant AND c.call_id = i.call_id
