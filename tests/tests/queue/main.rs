//! The suites of queues and buses on each of them, and their faults.

mod bus_faults;
mod faults;
mod local;
mod prefixes;
mod redis;
mod turns;
