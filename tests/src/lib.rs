//! mainspring-tests
