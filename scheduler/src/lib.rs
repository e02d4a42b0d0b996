//! mainspring-scheduler
