//! The tools that ship: implementations of the worker's port [`mainspring_worker::tool`].
//!
//! | tools | module |
//! |---|---|
//! | files, search, shell, wake-ups, a clock | [`builtin`] |
//! | to-do, notes, a board, long outputs | [`state`] |
//! | other agents, workflows, people | [`agents`], [`workflow`] |
//! | those of an agent that name a URL | [`http`] |
//! | those of MCP servers | [`mcp`] |
//!
//! [`HttpPolicy`] is a hook behind a URL, asked like an HTTP tool. [`BUILT_IN`] lists all names.

pub mod agents;
pub mod builtin;
mod catalogue;
pub mod http;
pub mod mcp;
mod policy;
pub mod state;
pub mod workflow;

pub use catalogue::{BUILT_IN, BuiltIn, PRESETS};
pub use policy::HttpPolicy;
