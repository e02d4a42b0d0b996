//! Workflows: trees of control nodes whose leaves are agents' sends, and their runs.

pub mod nodes;
pub mod path;
pub mod run;
pub mod schema;
pub mod spec;
pub mod template;
pub mod validate;
pub mod view;
