//! The built-in tools: implementations of the worker's port [`mainspring_worker::tool`].
//!
//! | tools | module |
//! |---|---|
//! | files, search and shell, optionally sandboxed | `files`, `shell`, `sandbox`, registered by [`builtin`] |
//! | to-do list, notes, a board, long outputs | [`memory`] |
//! | skills and their files in workspaces | [`skills`] |
//! | other agents, workflows, people, wake-ups | [`agents`] |
//! | tools that an agent declares by URL | [`http`] |
//! | tools of MCP servers | [`mcp`] |
//! | pages and searches of the web | [`web`] |
//!
//! [`register_all`] gives a worker all of them.
//!
//! [`HttpPolicy`] is a hook behind a URL, called like an HTTP tool. [`built_in`] lists every
//! built-in tool.

pub mod agents;
pub mod builtin;
mod catalogue;
mod current_time;
mod exact;
mod families;
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
pub mod web;
mod words;

pub use catalogue::{BuiltIn, PRESETS, built_in};
pub use families::{Families, register_all};
pub use policy::HttpPolicy;
