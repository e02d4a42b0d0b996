-- The first transaction that had not begun to write yet, and the oldest one that has and is under way.
SELECT
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest
