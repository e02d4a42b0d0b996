//! The API over real sockets, on the model store and the queue in process. A worker is a few lines
//! that take the steps which a real one takes.

mod client;
mod faulty;
mod world;

mod access;
mod agents;
mod batch;
mod bindings;
mod blobs;
mod bounds;
mod browsers;
mod calls;
mod carried;
mod connections;
mod context;
mod copies;
mod events;
mod failing_runs;
mod folds;
mod forks;
mod idempotency;
mod imports;
mod invalid;
mod issuers;
mod lifecycle;
mod limits;
mod locked;
mod loops;
mod memories;
mod naming_agents;
mod operations;
mod outage;
mod pauses;
mod pools;
mod provider_keys;
mod prune;
mod runs;
mod send_agents;
mod sends;
mod sessions;
mod skills;
mod tenants;
mod timers;
mod waiting;
mod webhooks;
