-- A send that was accepted; its step and the hot row are written with it.
INSERT INTO sends (tenant, session_id, send_id, position, status, input, options,
                   deadline_at, alarm_at, first_step, created_at, reports_to,
                   run_id, run_path, run_attempt)
VALUES ($1, $2, $18, $26, $24, $38, $39, $40, $27, $17, $22, $41, $42, $43, $44);
