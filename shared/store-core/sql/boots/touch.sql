-- Changes nothing, durably: what was committed before is on the disk when this is.
UPDATE boots SET in_flight = in_flight WHERE boot_id = $1;
