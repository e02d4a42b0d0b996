-- Counts the fences.
SELECT count(*) AS fences
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid
WHERE t.tgname LIKE 'mainspring_fence_%' AND t.tgenabled <> 'D' AND c.relname = ANY ($1::text[])
  AND c.relnamespace = (SELECT n.relnamespace FROM pg_class n WHERE n.oid = to_regclass('tenants'))
