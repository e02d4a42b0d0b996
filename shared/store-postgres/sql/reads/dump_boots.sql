-- Reads every boot in order.
SELECT
    {b.boot}
FROM boots b
ORDER BY b.boot_id
