//! Reads any JSON value as a workflow, or reports everything that is wrong with it.

mod grants;
pub(super) mod limits;
pub(super) mod reader;
mod refs;
pub(super) mod tree;

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use self::reader::Reader;
use super::run::DSL_VERSION;
use super::spec::Spec;
use crate::agent::Delegation;

/// Maximum number of problems reported at once.
pub const PROBLEMS_MAX: usize = 200;

/// One thing that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Where, as a JSON pointer into the spec.
    pub pointer: String,
    /// Which rule it breaks.
    #[schema(value_type = String)]
    pub rule: &'static str,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = if self.pointer.is_empty() {
            "the spec"
        } else {
            &self.pointer
        };
        write!(f, "{at}: {} — {}", self.message, self.hint)
    }
}

/// Checks a spec.
pub fn validate(spec: &Value) -> Result<Spec, Vec<Problem>> {
    validate_with(spec, None)
}

/// Reads a spec that was accepted in this version of the language, by the rules of that version.
/// `None` if the version is newer than any known here.
pub fn accepted(spec: &Value, version: i32) -> Option<Result<Spec, Vec<Problem>>> {
    let known = (1..=DSL_VERSION).contains(&version);
    known.then(|| read(spec, None, version))
}

/// Checks a spec whose leaves may have only the granted tools, if any are given.
pub fn validate_with(spec: &Value, granted: Option<&Delegation>) -> Result<Spec, Vec<Problem>> {
    read(spec, granted, DSL_VERSION)
}

fn read(spec: &Value, granted: Option<&Delegation>, version: i32) -> Result<Spec, Vec<Problem>> {
    let decoded;
    let mut spec = spec;
    if let Value::String(text) = spec {
        decoded = limits::decode(text, "").map_err(|problem| vec![problem])?;
        spec = &decoded;
    }
    limits::check(spec).map_err(|problem| vec![problem])?;
    let mut reader = Reader::new(granted, version);
    let spec = reader.spec(spec);
    reader.finish(spec)
}

/// Everything that is wrong with a spec, one problem per line, for the model that wrote it.
pub fn listed(problems: &[Problem]) -> String {
    let mut text = format!("error: the spec has {} problems:", problems.len());
    for problem in problems {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {problem}");
    }
    text
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
