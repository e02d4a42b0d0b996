-- The last transaction of each connection, by which it is known whether a commit took place that was not answered.
-- Only here: on Postgres each step recognizes itself, and SQLite's answers are not lost.
--   slot  the connection
--   n     the transaction's number in its process
--   at    seconds, for deleting the rows of connections that are closed
CREATE TABLE commit_marks (
    slot CHAR(36)        NOT NULL PRIMARY KEY,
    n    BIGINT UNSIGNED NOT NULL,
    at   BIGINT          NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
