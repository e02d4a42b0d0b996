-- Deleted sessions that may have left something behind: rows that are removed page by page, sessions
-- below them that are still to be deleted.
--   due_at      since when something is to be done
--   deleted_at  when it was deleted
--   seq         messages up to this one are gone
--   send_id     calls and usage of the sends up to this one are gone
CREATE TABLE erasures (
    tenant     INTEGER NOT NULL,
    session_id UUID    NOT NULL,
    due_at     BIGINT  NOT NULL,
    deleted_at BIGINT  NOT NULL,
    seq        BIGINT  NOT NULL DEFAULT 0,
    send_id    UUID    NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    PRIMARY KEY (tenant, session_id)
);
CREATE INDEX erasures_due ON erasures (due_at, tenant, session_id);
-- Sessions whose parent an earlier release deleted, and then crashed.
INSERT INTO erasures (tenant, session_id, due_at, deleted_at)
SELECT h.tenant, h.session_id, 0, 0
FROM session_hot h
WHERE h.lifecycle = 2
  AND EXISTS (
      SELECT FROM sessions s WHERE s.tenant = h.tenant AND s.parent_session = h.session_id
  );
-- Counts what changes a session's context other than by a message behind the others: with the number
-- of the next message it tells whether a window that was read before is still the session's.
ALTER TABLE session_hot ADD COLUMN context_version BIGINT NOT NULL DEFAULT 0;
