//! mainspring-queue-redis
