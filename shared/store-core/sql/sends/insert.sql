-- Inserts an accepted send, which may have been started by the accept. Its step and the hot row are
-- written with it.
INSERT INTO sends (tenant, session_id, send_id, position, status, input, options,
                   deadline_at, alarm_at, first_step, created_at, reports_to,
                   run_id, run_path, run_attempt,
                   rounds, attempts, crashes, cancel_requested, started_at, agent_version)
VALUES ($1, $2, $18, $26, $24, $38, $39, $40, $27, $17, $22, $41, $42, $43, $44,
        $28, $29, $30, $31, $32, $45);
