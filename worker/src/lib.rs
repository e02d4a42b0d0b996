//! mainspring-worker
