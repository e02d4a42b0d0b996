//! The cost of a check, counted before it is made: how often a subschema meets a part of the value
//! if every branch is taken. No validator does more work than that.

use serde_json::{Map, Value};

use super::bounds::{APPLIES, APPLIES_EACH, APPLIES_NAMED, POINTS, Targets, target};

/// Maximum steps of a check: a few hundred milliseconds at most.
pub(super) const STEPS_MAX: u64 = 250_000;

/// Maximum nesting of subschemas in progress; a thread's stack holds far more.
const DEPTH_MAX: usize = 400;

/// Bytes of text that are matched in about the time of one step.
const BYTES_PER_STEP: u64 = 4;

/// Why a value is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error("the value is too large to be checked against its JSON Schema")]
    Steps,
    #[error("the value is nested too deeply to be checked against its JSON Schema")]
    Depth,
}

pub(super) struct Work<'a> {
    root: &'a Value,
    targets: &'a Targets,
    left: u64,
}

impl<'a> Work<'a> {
    /// The steps that checking this value takes, or an error if they exceed `max`.
    pub(super) fn of(
        root: &'a Value,
        targets: &'a Targets,
        value: &Value,
        max: u64,
    ) -> Result<u64, Excess> {
        let mut work = Self {
            root,
            targets,
            left: max,
        };
        work.apply(root, value, 0)?;
        Ok(max - work.left)
    }

    fn spend(&mut self, steps: u64) -> Result<(), Excess> {
        self.left = self.left.checked_sub(steps).ok_or(Excess::Steps)?;
        Ok(())
    }

    /// Counts a value with all its parts, which is the cost of comparing it.
    fn spend_whole(&mut self, value: &Value) -> Result<(), Excess> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.spend_whole(item))?,
            Value::Object(members) => members
                .values()
                .try_for_each(|member| self.spend_whole(member))?,
            Value::String(text) => self.spend(text.len() as u64 / 64)?,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        self.spend(1)
    }

    fn apply(&mut self, schema: &Value, value: &Value, depth: usize) -> Result<(), Excess> {
        self.spend(1)?;
        let Value::Object(words) = schema else {
            return Ok(());
        };
        if depth > DEPTH_MAX {
            return Err(Excess::Depth);
        }
        let before = self.left;
        for (word, given) in words {
            let word = word.as_str();
            if POINTS.contains(&word) {
                if let Some(target) = target(self.root, self.targets, given) {
                    self.apply(target, value, depth + 1)?;
                }
            } else if APPLIES.contains(&word) {
                self.apply(given, value, depth + 1)?;
            } else if APPLIES_EACH.contains(&word) {
                for item in given.as_array().into_iter().flatten() {
                    self.apply(item, value, depth + 1)?;
                }
            } else if APPLIES_NAMED.contains(&word) {
                for (name, item) in given.as_object().into_iter().flatten() {
                    if value.get(name).is_some() {
                        self.apply(item, value, depth + 1)?;
                    }
                }
            }
        }
        // For each part, every subschema that applies must be asked whether it has evaluated that part.
        let around = before - self.left;
        for (word, given) in words {
            match value {
                Value::Object(members) => {
                    self.members(word, given, (words, members), (around, depth))?;
                }
                Value::Array(items) => self.items(word, given, items, (around, depth))?,
                Value::String(text) if word == "pattern" => {
                    self.spend(text.len() as u64 / BYTES_PER_STEP)?;
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
            match word.as_str() {
                "enum" => {
                    for _ in given.as_array().into_iter().flatten() {
                        self.spend_whole(value)?;
                    }
                }
                "const" | "uniqueItems" => self.spend_whole(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The parts of an object.
    fn members(
        &mut self,
        word: &str,
        given: &Value,
        (words, members): (&Map<String, Value>, &Map<String, Value>),
        (around, depth): (u64, usize),
    ) -> Result<(), Excess> {
        let depth = depth + 1;
        match word {
            "properties" => {
                for (name, schema) in given.as_object().into_iter().flatten() {
                    if let Some(member) = members.get(name) {
                        self.apply(schema, member, depth)?;
                    }
                }
            }
            "patternProperties" => {
                for schema in given.as_object().into_iter().flatten().map(|(_, s)| s) {
                    for (name, member) in members {
                        self.spend(name.len() as u64 / BYTES_PER_STEP)?;
                        self.apply(schema, member, depth)?;
                    }
                }
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                for (name, member) in members {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        self.apply(given, member, depth)?;
                    }
                }
            }
            "unevaluatedProperties" => {
                for member in members.values() {
                    self.spend(around)?;
                    self.apply(given, member, depth)?;
                }
            }
            "propertyNames" => {
                for name in members.keys() {
                    self.apply(given, &Value::String(name.clone()), depth)?;
                }
            }
            "required" => self.spend(given.as_array().map_or(0, Vec::len) as u64 / 8)?,
            _ => {}
        }
        Ok(())
    }

    /// The parts of an array.
    fn items(
        &mut self,
        word: &str,
        given: &Value,
        items: &[Value],
        (around, depth): (u64, usize),
    ) -> Result<(), Excess> {
        let depth = depth + 1;
        match (word, given) {
            ("items" | "prefixItems", Value::Array(schemas)) => {
                for (schema, item) in schemas.iter().zip(items) {
                    self.apply(schema, item, depth)?;
                }
            }
            ("items" | "additionalItems" | "contains", schema) => {
                for item in items {
                    self.apply(schema, item, depth)?;
                }
            }
            ("unevaluatedItems", schema) => {
                for item in items {
                    self.spend(around)?;
                    self.apply(schema, item, depth)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
