-- A durable no-op: once it is on disk, so is everything that was committed before it.
UPDATE boots SET in_flight = in_flight WHERE boot_id = $1;
