//! The queue and bus suites against each implementation, and fault tests.

mod bus_faults;
mod faults;
mod local;
mod prefixes;
mod redis;
mod refusals;
mod turns;
