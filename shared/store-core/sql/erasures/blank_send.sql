-- Removes what a send said and was answered, unless its parent or its run still has to read it.
UPDATE sends SET input = '[]', options = $3, output_text = NULL, output = NULL
WHERE tenant = $1 AND send_id = $2 AND finished_at IS NOT NULL
  AND (reports_to IS NULL OR reported_at IS NOT NULL)
  AND (run_id IS NULL OR NOT EXISTS (
      SELECT 1 FROM runs WHERE runs.tenant = sends.tenant AND runs.run_id = sends.run_id
  ));
