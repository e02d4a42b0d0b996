-- What an API key is bound to, as JSON; to nothing where it is null. The scopes of a bound key have a prefix, so that a
-- release that does not know this column finds none.
ALTER TABLE api_keys ADD COLUMN binding TEXT;
