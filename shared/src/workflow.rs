//! Workflows: trees of control nodes whose leaves are agents' sends, and their runs.

pub mod run;
