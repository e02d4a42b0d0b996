-- How many endpoints a tenant has.
SELECT count(*) FROM webhooks WHERE tenant = $1;
