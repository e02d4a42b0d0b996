-- Deleted sessions that may have left something behind: rows that are removed page by page, sessions
-- below them that are still to be deleted.
--   due_at      since when something is to be done
--   deleted_at  when it was deleted
--   seq         messages up to this one are gone
--   send_id     calls and usage of the sends up to this one are gone
CREATE TABLE erasures (
    tenant     INT        NOT NULL,
    session_id BINARY(16) NOT NULL,
    due_at     BIGINT     NOT NULL,
    deleted_at BIGINT     NOT NULL,
    seq        BIGINT     NOT NULL DEFAULT 0,
    send_id    BINARY(16) NOT NULL DEFAULT X'00000000000000000000000000000000',
    PRIMARY KEY (tenant, session_id),
    KEY erasures_due (due_at, tenant, session_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Counts what changes a session's context other than by a message behind the others: with the number
-- of the next message it tells whether a window that was read before is still the session's.
ALTER TABLE session_hot ADD COLUMN context_version BIGINT NOT NULL DEFAULT 0;
