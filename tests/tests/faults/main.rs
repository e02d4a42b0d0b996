//! Real processes on real servers under load, while faults of one kind are injected for some seconds
//! (docs/FAULTS.md). Each test has the machine to itself.

mod commits;
mod context;
mod detached;
mod kill;
mod limits;
mod mcp;
mod model;
mod money;
mod mysql;
mod openai;
mod pause;
mod places;
mod quota;
mod removals;
mod restore;
mod runs;
mod stores;
mod tools;
