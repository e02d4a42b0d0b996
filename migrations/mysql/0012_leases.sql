-- How long a boot's lease runs from its renewal. One that ends much later than that from now was
-- given by a clock that has been set back since.
ALTER TABLE boots ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 60000;
