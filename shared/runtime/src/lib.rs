//! mainspring-runtime
