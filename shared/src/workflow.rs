//! Workflows: trees of control nodes whose leaves are sends of agents, and the runs of workflows.

pub mod nodes;
pub mod path;
pub mod run;
pub mod schema;
pub mod spec;
pub mod template;
pub mod validate;
pub mod view;
