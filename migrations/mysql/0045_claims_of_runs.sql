-- How many schedulers in a row took a run over without committing an advance of it: a run that kills
-- or hangs its scheduler is not taken up for ever.
ALTER TABLE runs ADD COLUMN claims INTEGER NOT NULL DEFAULT 0;
