//! JSON Schemas cut to the dialect that a provider takes.
//!
//! Tools come from many places, above all from MCP servers, and so do their schemas: with alternatives at the root,
//! with references, without a type, of an older draft. A provider that doesn't take one of them refuses the whole
//! request, and every later one. So what goes out is a [`Fitted`] schema. It may accept more than the original, and
//! never less, apart from names of members, which are [mapped](Names) both ways. Calls are always checked against the
//! original.
//!
//! The same schema always gives the same bytes, which providers' prompt caches depend on. The work is bounded: a part
//! that is too deep, or that references would make too large, becomes "anything".

mod combine;
mod dialect;
mod names;
mod node;
mod settle;
mod words;

use std::borrow::Cow;

use mainspring_shared::agent::OutputSpec;
use serde_json::{Map, Value, json};

use self::dialect::Form;
pub(super) use self::names::{Names, Way};
use self::node::Fitter;
use crate::rules::SchemaDialect;

/// Maximum bytes of a schema that goes out: what a schema may have at all.
const BYTES_MAX: usize = 256 << 10;

/// How deep a schema may be: tried one after the other until the result is small enough.
const DEPTHS: [usize; 4] = [32, 8, 4, 2];

type Object = Map<String, Value>;

/// A schema in the form in which it goes out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fitted {
    /// The schema; `None` if there is nothing to say of the arguments and the dialect can't say that.
    pub(super) schema: Option<Value>,
    /// The names of members that are others outside.
    pub(super) names: Names,
    /// What the schema no longer says, in words for the description.
    pub(super) notes: Vec<String>,
}

/// Why a schema can't be expressed at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// Arguments are objects.
    #[error("its schema is not for objects")]
    NoObject,
    /// Even cut down it is too large.
    #[error("its schema is too large")]
    TooLarge,
}

/// Cuts the schema of a tool's arguments to a dialect.
pub(super) fn fit(schema: &Value, dialect: SchemaDialect) -> Result<Fitted, Unfit> {
    let form = Form::of(dialect);
    let Value::Object(source) = schema else {
        return Ok(Fitted {
            schema: (!form.filled).then(any_object),
            names: Names::default(),
            notes: Vec::new(),
        });
    };
    if !is_for_objects(source) {
        return Err(Unfit::NoObject);
    }
    if dialect == SchemaDialect::Plain {
        return Ok(plain(source));
    }
    for depth_max in DEPTHS {
        let fitted = Fitter::new(schema, form, depth_max).root(source);
        let bytes = fitted.schema.as_ref().map_or(0, |it| it.to_string().len());
        if bytes <= BYTES_MAX {
            return Ok(fitted);
        }
    }
    Err(Unfit::TooLarge)
}

/// Cuts the schema of an answer to a dialect. What must be enforced to the letter stays as its author wrote it, and so
/// does one whose members would be renamed.
pub(super) fn output(output: &OutputSpec, dialect: SchemaDialect) -> Cow<'_, Value> {
    let fitted = (!output.strict)
        .then(|| fit(&output.schema, dialect).ok())
        .flatten();
    match fitted {
        Some(Fitted {
            schema: Some(schema),
            names,
            ..
        }) if names.is_empty() => Cow::Owned(schema),
        _ => Cow::Borrowed(&output.schema),
    }
}

/// A schema that only says at its root that it is for objects, if it doesn't already.
fn plain(source: &Object) -> Fitted {
    let mut schema = source.clone();
    schema.insert("type".to_owned(), json!("object"));
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    Fitted {
        schema: Some(schema.into()),
        names: Names::default(),
        notes: Vec::new(),
    }
}

fn any_object() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// Whether objects can fit it, as far as its type tells.
fn is_for_objects(schema: &Object) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => node::type_named(kind).is_none_or(|kind| kind == "object"),
        Some(Value::Array(kinds)) => {
            kinds.is_empty() || kinds.iter().any(|kind| kind.as_str() == Some("object"))
        }
        _ => true,
    }
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;
