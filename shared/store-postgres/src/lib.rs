//! mainspring-store-postgres
