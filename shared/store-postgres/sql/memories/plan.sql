-- Lets the full-text index be used until the transaction ends: connections of the steps plan without
-- bitmaps and without looking at the question, and this index answers in bitmaps only.
SELECT
    set_config('enable_bitmapscan', 'on', true) AS bitmaps,
    set_config('plan_cache_mode', 'force_custom_plan', true) AS plans
