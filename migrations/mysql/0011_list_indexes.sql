-- Few sends end otherwise than well, and few sessions have an agent of one name: who asks for them must
-- not go through all others. not_end is 1 on the sends that ended otherwise than well, else null.
ALTER TABLE sends
    ADD COLUMN not_end TINYINT AS (CASE WHEN stop_reason <> 'end' THEN 1 END) VIRTUAL,
    ADD KEY sends_not_completed (tenant, not_end, send_id);
CREATE INDEX sessions_agent ON sessions (tenant, agent_name, session_id);
