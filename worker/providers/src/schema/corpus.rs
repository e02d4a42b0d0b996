//! Schemas in the manner of those that servers in use give, with arguments that fit them.

use serde::Deserialize;
use serde_json::Value;

/// A schema, and arguments that fit it.
#[derive(Debug, Deserialize)]
pub(in super::super) struct Sample {
    pub(in super::super) name: String,
    pub(in super::super) schema: Value,
    pub(in super::super) accepts: Vec<Value>,
}

pub(in super::super) fn corpus() -> Vec<Sample> {
    serde_json::from_str(include_str!("corpus.json")).expect("the corpus is JSON")
}
