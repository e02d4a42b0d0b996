-- Nobody of a tenant waits any more. Index: seats_pkey.
DELETE FROM seats t WHERE t.tenant = $1::integer
