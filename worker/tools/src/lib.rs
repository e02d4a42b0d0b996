//! The tools that ship: implementations of the worker's port [`mainspring_worker::tool`].
//!
//! | tools | module |
//! |---|---|
//! | files and search; the same and the shell in a sandboxed process | `files`, `shell`, `sandbox`, entered by [`builtin`] |
//! | to-do, notes, a board, long outputs | [`memory`] |
//! | skills, and their files in workspaces | [`skills`] |
//! | other agents, workflows, people, wake-ups | [`agents`] |
//! | those of an agent that name a URL | [`http`] |
//! | those of MCP servers | [`mcp`] |
//!
//! [`HttpPolicy`] is a hook behind a URL, asked like an HTTP tool. [`built_in`] lists all names.

pub mod agents;
pub mod builtin;
mod catalogue;
mod current_time;
mod files;
pub mod http;
pub mod mcp;
pub mod memory;
mod pass_turn;
mod policy;
mod sandbox;
mod settings;
mod shell;
pub mod skills;
#[cfg(test)]
mod tests;
mod words;

pub use catalogue::{BuiltIn, PRESETS, built_in};
pub use policy::HttpPolicy;
