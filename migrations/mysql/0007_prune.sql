-- The seq that a transcript begins with: higher than 1 once older messages were pruned.
ALTER TABLE sessions ADD COLUMN first_seq BIGINT NOT NULL DEFAULT 1;
