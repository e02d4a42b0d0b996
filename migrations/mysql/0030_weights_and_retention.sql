-- A tenant's weight: how many of its sessions have their turn for each of a tenant with weight 1. And for how long what
-- is its own is kept, as JSON; as the installation says where it is null.
ALTER TABLE tenants ADD COLUMN weight INT NOT NULL DEFAULT 1;
ALTER TABLE tenants ADD COLUMN retention LONGTEXT;
