//! The promises of `docs/CONTEXT.md` about requests, measured: they are the same on every worker,
//! they share their prefix, what they cost, and none is sent in vain.

mod cost;
mod deaths;
mod faults;
mod history;
mod overflow;
mod prefix;
mod same;
mod vendor;
mod waits;
mod wires;
