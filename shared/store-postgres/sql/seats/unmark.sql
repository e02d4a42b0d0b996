-- Records that an agent of a tenant has no limit any more. Index: seats_pkey.
UPDATE seats t SET agent = '' WHERE t.tenant = $1::integer AND t.agent = $2::text
