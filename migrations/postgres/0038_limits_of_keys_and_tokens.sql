-- What an API key may use besides its tenant, as JSON; all that the tenant may where it is null.
ALTER TABLE api_keys ADD COLUMN limits TEXT COLLATE "C";
-- The sends that requests with a key with a limit of open sends made, or are about to make. What ended is removed when
-- there seems to be no place left.
CREATE TABLE key_sends (
    tenant      INTEGER NOT NULL,
    key_id      UUID    NOT NULL,
    send_id     UUID    NOT NULL,
    reserved_at BIGINT  NOT NULL,
    PRIMARY KEY (tenant, key_id, send_id)
);
