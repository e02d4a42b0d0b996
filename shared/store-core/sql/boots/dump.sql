-- Every boot.
SELECT {boot}
FROM boots
ORDER BY boot_id;
