//! mainspring-store-model
