//! What `docs/CONTEXT.md` promises of requests, measured: that they are the same whoever asks, that they begin
//! alike, what they cost, and that none is sent in vain.

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
