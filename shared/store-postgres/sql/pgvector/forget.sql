-- Removes the vector of an older text. A process that was started before the extension was
-- installed does not know this column, and writes only the other one.
CREATE OR REPLACE FUNCTION memories_forget_vector() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.embedding_vector := NULL;
    RETURN NEW;
END
$$
