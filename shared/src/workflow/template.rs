//! Templates: texts with `{{…}}` in minijinja's language, restricted to the parts of it whose cost
//! is bounded. Strict: a name or a member that does not exist is an error, never an empty text.
//!
//! What an evaluation costs is counted in the bytes that it goes through and never exceeds its
//! [`Work`], whatever the template and the values are.

mod evaluate;
mod filters;
mod language;
mod value;
mod work;

use std::collections::BTreeMap;

use minijinja::Value as Shown;
use minijinja::machinery::{parse, parse_expr};
use minijinja::syntax::SyntaxConfig;
use serde_json::Value;

use self::evaluate::{Evaluation, Fault};
use crate::error::{Code, Failure};

pub use self::language::free_names;
pub use self::value::{Named, NodeText};
pub use self::work::{RENDERING_WORK, Work};

/// Maximum bytes of a template.
pub const TEMPLATE_BYTES_MAX: usize = 128 << 10;

/// Maximum bytes of a rendered text.
pub const OUTPUT_BYTES_MAX: usize = 2 << 20;

/// What reading a template costs, per byte.
const READING: u64 = 16;

/// Provides the values of names.
pub trait Names {
    /// The value of a name that the validator accepted.
    fn named(&self, name: &str) -> Result<Named<'_>, Failure>;
}

/// Renders a template, for at most this work.
pub fn render(source: &str, names: &dyn Names, work: &Work<'_>) -> Result<String, Failure> {
    if !has_tags(source) {
        return Ok(source.to_owned());
    }
    // Reading a template takes several passes over it.
    let read = work.charge(source.len() as u64 * READING);
    read.map_err(|spent| failure(spent.into(), 1))?;
    let free = free_names(source).map_err(failed)?;
    let names = values(&free, names, work)?;
    let tree = parse(source, "template", SyntaxConfig::default());
    let tree = tree.map_err(|error| failure(error.into(), 1))?;
    let mut evaluation = Evaluation::new(names, work);
    match evaluation.statement(&tree) {
        Ok(()) => Ok(evaluation.out),
        Err(fault) => Err(failure(fault, evaluation.line)),
    }
}

/// Renders every text in a value. A text that is a single expression gives the expression's value
/// with its type.
pub fn render_value(value: &Value, names: &dyn Names, work: &Work<'_>) -> Result<Value, Failure> {
    match value {
        Value::String(text) => match language::only_expression(text) {
            Some(expression) => evaluate(text, expression, names, work),
            None => render(text, names, work).map(Value::String),
        },
        Value::Array(list) => list
            .iter()
            .map(|one| render_value(one, names, work))
            .collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| Ok((key.clone(), render_value(value, names, work)?)))
            .collect::<Result<_, Failure>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

fn evaluate(
    source: &str,
    expression: &str,
    names: &dyn Names,
    work: &Work<'_>,
) -> Result<Value, Failure> {
    let read = work.charge(source.len() as u64 * READING);
    read.map_err(|spent| failure(spent.into(), 1))?;
    let free = free_names(source).map_err(failed)?;
    let names = values(&free, names, work)?;
    let tree = parse_expr(expression).map_err(|error| failure(error.into(), 1))?;
    let mut evaluation = Evaluation::new(names, work);
    let value = evaluation.value(&tree);
    let value = value.map_err(|fault| failure(fault, evaluation.line))?;
    if value.is_undefined() {
        let detail = format!("{expression:?} has no value");
        return Err(Failure::new(Code::WorkflowRefUnresolved, detail));
    }
    filters::to_json(&value, work).map_err(|fault| failure(fault, 1))
}

/// Whether there is anything to render.
fn has_tags(source: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|tag| source.contains(tag))
}

fn values(
    free: &[String],
    names: &dyn Names,
    work: &Work<'_>,
) -> Result<BTreeMap<String, Shown>, Failure> {
    let each = free.iter().map(|name| {
        let shown = names.named(name)?.into_shown(work);
        let shown = shown.map_err(|spent| failure(spent.into(), 1))?;
        Ok((name.clone(), shown))
    });
    each.collect()
}

fn failed(detail: impl Into<String>) -> Failure {
    Failure::new(Code::WorkflowTemplate, detail)
}

fn failure(fault: Fault, line: usize) -> Failure {
    match fault {
        Fault::Undefined => {
            let detail = format!("a value in line {line} of the template does not exist");
            Failure::new(Code::WorkflowRefUnresolved, detail)
        }
        Fault::Work => failed(
            "the template takes too much work: it goes through too many or too large values too often",
        ),
        Fault::Long => failed(format!(
            "the text would have more than {OUTPUT_BYTES_MAX} bytes"
        )),
        Fault::Wrong(detail) => failed(detail),
    }
}

#[cfg(test)]
mod tests;
