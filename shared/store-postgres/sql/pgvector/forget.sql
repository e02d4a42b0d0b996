-- Removes the vector of an older text. A process that was started before the extension was there knows
-- nothing of the column, and writes the other one alone.
CREATE OR REPLACE FUNCTION memories_forget_vector() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.embedding_vector := NULL;
    RETURN NEW;
END
$$
