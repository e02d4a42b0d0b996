//! Templates: texts with `{{…}}`, rendered by minijinja, restricted to the parts of its language
//! whose cost is bounded. Strict: a name or a member that does not exist is an error, never an
//! empty text.

mod language;
mod value;

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value as Shown};
use serde_json::Value;

use crate::error::{Code, Failure};

pub use self::language::free_names;
pub use self::value::{Named, NodeText};

/// Maximum bytes of a template.
pub const TEMPLATE_BYTES_MAX: usize = 128 << 10;

/// Maximum bytes of a rendered text.
pub const OUTPUT_BYTES_MAX: usize = 2 << 20;

/// Maximum steps of one rendering: enough to go through a list of the maximum length twice.
const FUEL: u64 = 200_000;

/// Provides the values of names.
pub trait Names {
    /// The value of a name that the validator accepted.
    fn named(&self, name: &str) -> Result<Named, Failure>;
}

/// Renders a template.
pub fn render(source: &str, names: &dyn Names) -> Result<String, Failure> {
    if !has_tags(source) {
        return Ok(source.to_owned());
    }
    let free = free_names(source).map_err(failed)?;
    let context = context(&free, names)?;
    let template = environment().template_from_str(source);
    let template = template.map_err(|error| failure(&error))?;
    let mut out = Limited(Vec::new());
    match template.render_captured_to(context, &mut out) {
        Ok(_) => String::from_utf8(out.0).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == ErrorKind::WriteFailure => {
            let detail = format!("the text would have more than {OUTPUT_BYTES_MAX} bytes");
            Err(failed(detail))
        }
        Err(error) => Err(failure(&error)),
    }
}

/// Renders every text in a value. A text that is a single expression gives the expression's value
/// with its type.
pub fn render_value(value: &Value, names: &dyn Names) -> Result<Value, Failure> {
    match value {
        Value::String(text) => match language::only_expression(text) {
            Some(expression) => evaluate(text, expression, names),
            None => render(text, names).map(Value::String),
        },
        Value::Array(list) => list.iter().map(|one| render_value(one, names)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| Ok((key.clone(), render_value(value, names)?)))
            .collect::<Result<_, Failure>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

fn evaluate(source: &str, expression: &str, names: &dyn Names) -> Result<Value, Failure> {
    let free = free_names(source).map_err(failed)?;
    let context = context(&free, names)?;
    let compiled = environment().compile_expression(expression);
    let value = compiled.and_then(|compiled| compiled.eval(context));
    let value = value.map_err(|error| failure(&error))?;
    if value.is_undefined() {
        let detail = format!("{expression:?} has no value");
        return Err(Failure::new(Code::WorkflowRefUnresolved, detail));
    }
    value::to_json(&value).map_err(failed)
}

/// Whether there is anything to render.
fn has_tags(source: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|tag| source.contains(tag))
}

fn context(free: &[String], names: &dyn Names) -> Result<Shown, Failure> {
    let mut values = BTreeMap::new();
    for name in free {
        values.insert(name.clone(), names.named(name)?.into_shown());
    }
    Ok(Shown::from_object(value::Context(values)))
}

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(value::format);
        value::add_filters(&mut environment);
        environment
    })
}

fn failed(detail: impl Into<String>) -> Failure {
    Failure::new(Code::WorkflowTemplate, detail)
}

fn failure(error: &minijinja::Error) -> Failure {
    let detail = error.detail().unwrap_or_default();
    let kind = error.kind();
    if kind == ErrorKind::OutOfFuel {
        return failed("the template takes too many steps");
    }
    if kind != ErrorKind::UndefinedError {
        return failed(format!("{kind}: {detail}"));
    }
    let detail = match error.line() {
        Some(line) => format!("a value in line {line} of the template does not exist"),
        None => "a value in the template does not exist".to_owned(),
    };
    Failure::new(Code::WorkflowRefUnresolved, detail)
}

/// A writer that accepts at most [`OUTPUT_BYTES_MAX`] bytes.
struct Limited(Vec<u8>);

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
