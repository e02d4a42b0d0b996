-- How many sends of a tenant may be in flight at once. Its row is the lock under which seats are taken; tenants
-- without such a limit have none, and then no seats.
--   set_at  since when: what began before may have no seat
CREATE TABLE seat_limits (
    tenant         INTEGER PRIMARY KEY,
    sends_running  INTEGER,
    leaves_running INTEGER,
    set_at         BIGINT NOT NULL
);
-- Sessions of such tenants that have a seat, and those that wait for one. A session has its seat while its send is
-- running; a row of one whose send ended or waits counts no more, and goes when seats run short.
--   waits_since  of those that wait: since when they have had work, their order; called_at: when they were called
CREATE TABLE seats (
    tenant      INTEGER NOT NULL,
    session_id  UUID    NOT NULL,
    leaf        BOOLEAN NOT NULL,
    waits_since BIGINT,
    called_at   BIGINT,
    PRIMARY KEY (tenant, session_id),
    CHECK (called_at IS NULL OR waits_since IS NOT NULL)
);
CREATE INDEX seats_line ON seats (tenant, leaf, waits_since, session_id) WHERE waits_since IS NOT NULL;
