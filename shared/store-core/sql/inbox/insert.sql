-- Inserts an inbox item.
INSERT INTO inbox (tenant, session_id, item_id, n, kind, mode, send_id, content, fate, seq,
                   created_at, settled_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
