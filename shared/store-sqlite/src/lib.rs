//! mainspring-store-sqlite
