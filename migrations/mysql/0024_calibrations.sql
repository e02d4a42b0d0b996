-- How far providers' counts are from the estimates, by model; learned by the workers.
--   ratio   millionths of a token counted for each one expected
--   counts  how many counts it rests on
CREATE TABLE calibrations (
    provider   VARCHAR(255) NOT NULL,
    model      VARCHAR(255) NOT NULL,
    ratio      BIGINT       NOT NULL CHECK (ratio > 0),
    counts     BIGINT       NOT NULL CHECK (counts >= 0),
    updated_at BIGINT       NOT NULL,
    PRIMARY KEY (provider, model)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
