//! mainspring-queue-local
