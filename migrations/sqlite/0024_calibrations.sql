-- How far providers' counts are from the estimates, by model; learned by the workers.
--   ratio   millionths of a token counted for each one expected
--   counts  how many counts it rests on
CREATE TABLE calibrations (
    provider   TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    ratio      INTEGER NOT NULL CHECK (ratio > 0),
    counts     INTEGER NOT NULL CHECK (counts >= 0),
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (provider, model)
) STRICT;
