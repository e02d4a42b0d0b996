-- Few sends end otherwise than well, and few sessions have an agent of one name: who asks for them must
-- not go through all others. Neither index is touched by what sends and sessions do every day: a reason is
-- written once, with the end, which other indexes see anyway.
CREATE INDEX sends_not_completed ON sends (tenant, status, send_id) WHERE stop_reason <> 'end';
CREATE INDEX sessions_agent ON sessions (tenant, agent_name, session_id) WHERE agent_name IS NOT NULL;
