//! JSON Schemas of arguments and outputs: limited in cost, compiled once, with the first faults reported.
//!
//! Schemas come from requests, and even a small one can require any amount of work. So schemas are
//! accepted only within limits (`bounds`), and the cost of a check is counted before it is made
//! (`work`). Patterns have no look-around and no back-references, so they match in linear time.

mod bounds;
mod work;

use std::sync::Arc;

use jsonschema::PatternOptions;
use serde_json::{Value, json};

use self::bounds::Targets;
use self::work::Work;

/// Maximum number of faults reported for one value: a model needs only the first few.
const FAULTS_MAX: usize = 8;

/// Maximum characters of one fault; some repeat the whole value.
const FAULT_CHARS_MAX: usize = 500;

/// Maximum bytes of one compiled pattern; `^.{1,1000}$` fits, `^(.{1,1000}){1,1000}$` does not.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Up to this many steps of a check, all faults are collected; above that, only the first one is reported.
const ALL_FAULTS_STEPS_MAX: u64 = 10_000;

/// A check with at most this many steps takes no noticeable time.
const SMALL_STEPS_MAX: u64 = 2_000;

/// A schema without patterns of at most this many bytes compiles in no noticeable time.
const LIGHT_BYTES_MAX: usize = 8 << 10;

/// The schema that every object fits.
pub fn any_object() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// What is wrong with a schema, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct SchemaFault {
    /// A JSON pointer into the schema.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
}

/// A compiled schema. It never resolves references outside itself.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    json: Value,
    targets: Targets,
    validator: jsonschema::Validator,
}

impl Schema {
    /// Compiles a schema, or says what is wrong with it. The cost is bounded, but may be tens of
    /// milliseconds: call it on a thread that may block.
    pub fn compile(schema: &Value) -> Result<Self, SchemaFault> {
        let targets = bounds::check(schema)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_SIZE_MAX);
        let options = jsonschema::options()
            .with_pattern_options(patterns)
            // The `regex` format would compile patterns given in the value.
            .with_format("regex", |_| true);
        match options.build(schema) {
            Ok(validator) => Ok(Self(Arc::new(Compiled {
                json: schema.clone(),
                targets,
                validator,
            }))),
            Err(error) => Err(SchemaFault {
                pointer: error.instance_path().to_string(),
                detail: shortened(format!("is not a JSON Schema: {error}")),
            }),
        }
    }

    /// Whether checking this value takes no noticeable time.
    pub fn is_small_for(&self, value: &Value) -> bool {
        let Compiled { json, targets, .. } = &*self.0;
        Work::of(json, targets, value, SMALL_STEPS_MAX).is_ok()
    }

    /// The first faults of a value, each with its location; empty if the value fits. A value whose
    /// check would take too long does not fit.
    pub fn faults(&self, value: &Value) -> Vec<String> {
        let Compiled {
            json,
            targets,
            validator,
        } = &*self.0;
        let steps = match Work::of(json, targets, value, work::STEPS_MAX) {
            Ok(steps) => steps,
            Err(excess) => return vec![excess.to_string()],
        };
        if validator.is_valid(value) {
            return Vec::new();
        }
        // The library collects all faults before it returns the first one.
        if steps <= ALL_FAULTS_STEPS_MAX {
            let faults = validator.iter_errors(value).take(FAULTS_MAX);
            return faults.map(|error| said(&error)).collect();
        }
        let first = validator.validate(value).err();
        vec![first.map_or_else(|| "does not fit".to_owned(), |error| said(&error))]
    }
}

fn said(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    shortened(if path.is_empty() {
        error.to_string()
    } else {
        format!("{path}: {error}")
    })
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(FAULT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Compiles the schema of a tool's arguments, which must be for objects.
pub fn parameters(schema: &Value) -> Result<Schema, SchemaFault> {
    let fault = |pointer: &str, detail: &str| SchemaFault {
        pointer: pointer.to_owned(),
        detail: detail.to_owned(),
    };
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => {
            let detail = "arguments are an object: `type` must be \"object\"";
            return Err(fault("/type", detail));
        }
    }
    if !schema.is_object() {
        return Err(fault("", "must be a JSON Schema object"));
    }
    Schema::compile(schema)
}

/// Whether compiling this schema may take a noticeable time.
pub fn is_heavy(schema: &Value) -> bool {
    bounds::patterns(schema) > 0 || schema.to_string().len() > LIGHT_BYTES_MAX
}

/// The number of patterns in a schema: each takes time and memory to compile.
pub fn patterns(schema: &Value) -> usize {
    bounds::patterns(schema)
}

#[cfg(test)]
mod tests;
