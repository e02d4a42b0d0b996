//! Names of members that a provider doesn't take, renamed on the way out and back on the way in.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::dialect::{KEY_CHARS_MAX, Keys};

/// The names of the members of a value, and of what is in it. They belong to places: the same name elsewhere, such as
/// in an object whose members have any name, stays as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in super::super) struct Names {
    /// By their true names.
    members: BTreeMap<String, Member>,
    /// What is in members that aren't declared.
    others: Option<Box<Names>>,
    /// What is in the items of an array.
    items: Option<Box<Names>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Member {
    outward: String,
    below: Names,
}

/// The direction in which arguments go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// To the provider.
    Out,
    /// From the provider.
    In,
}

impl Names {
    /// The names that go out otherwise in a schema without references.
    pub(super) fn of(schema: &Value, keys: Keys) -> Self {
        if keys == Keys::Any {
            return Self::default();
        }
        Self::of_place(&[schema], keys)
    }

    /// Of everything that is said of the values at one place.
    fn of_place(said: &[&Value], keys: Keys) -> Self {
        let mut place = Place::default();
        for schema in said {
            place.add(schema);
        }
        let mut taken: Vec<String> = Vec::new();
        taken.extend(
            place
                .members
                .keys()
                .filter(|name| keys.take(name))
                .map(|it| (*it).clone()),
        );
        let mut members = BTreeMap::new();
        for (name, schemas) in &place.members {
            let outward = if keys.take(name) {
                (*name).clone()
            } else {
                let free = free(&keys.fitted(name), &taken);
                taken.push(free.clone());
                free
            };
            let below = Self::of_place(schemas, keys);
            if outward != **name || !below.is_empty() {
                members.insert((*name).clone(), Member { outward, below });
            }
        }
        let inner = |schemas: &[&Value]| {
            let names = (!schemas.is_empty()).then(|| Self::of_place(schemas, keys))?;
            (!names.is_empty()).then(|| Box::new(names))
        };
        Self {
            members,
            others: inner(&place.others),
            items: inner(&place.items),
        }
    }

    /// Whether all names stay as they are.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.others.is_none() && self.items.is_none()
    }

    /// Renames the members in a schema.
    pub(super) fn rename(&self, schema: &mut Value) {
        let Value::Object(node) = schema else {
            return;
        };
        if self.is_empty() {
            return;
        }
        if let Some(Value::Object(properties)) = node.get_mut("properties") {
            *properties = std::mem::take(properties)
                .into_iter()
                .map(|(name, mut schema)| {
                    if let Some(member) = self.members.get(&name) {
                        member.below.rename(&mut schema);
                    }
                    (self.outward(&name).to_owned(), schema)
                })
                .collect();
        }
        if let Some(Value::Array(required)) = node.get_mut("required") {
            for name in required {
                *name = self.outward(name.as_str().unwrap_or_default()).into();
            }
        }
        // These are about the true names, or contain them.
        node.remove("propertyNames");
        node.remove("dependentRequired");
        if node.remove("patternProperties").is_some() {
            node.remove("additionalProperties");
        }
        let is_plain = |value: &Value| !value.is_object() && !value.is_array();
        if node.get("const").is_some_and(|value| !is_plain(value)) {
            node.remove("const");
        }
        let values = node.get("enum").and_then(Value::as_array);
        if values.is_some_and(|values| !values.iter().all(is_plain)) {
            node.remove("enum");
        }
        for (keyword, names) in [
            ("additionalProperties", &self.others),
            ("items", &self.items),
        ] {
            if let (Some(names), Some(schema)) = (names, node.get_mut(keyword)) {
                names.rename(schema);
            }
        }
        if let (Some(names), Some(Value::Array(tuple))) = (&self.items, node.get_mut("prefixItems"))
        {
            for schema in tuple {
                names.rename(schema);
            }
        }
        if let Some(Value::Array(branches)) = node.get_mut("anyOf") {
            for branch in branches {
                self.rename(branch);
            }
        }
    }

    /// A remark about the members, with the names that the model sees.
    pub(super) fn told(&self, words: &str) -> String {
        let renamed = self
            .members
            .iter()
            .filter(|(name, member)| **name != member.outward);
        renamed.fold(words.to_owned(), |words, (name, member)| {
            words.replace(name.as_str(), &member.outward)
        })
    }

    fn outward<'a>(&'a self, name: &'a str) -> &'a str {
        self.members
            .get(name)
            .map_or(name, |member| member.outward.as_str())
    }

    /// The member that a name stands for.
    fn member(&self, name: &str, way: Way) -> Option<(&str, &Self)> {
        let (inward, member) = match way {
            Way::Out => self.members.get_key_value(name)?,
            Way::In => self
                .members
                .iter()
                .find(|(_, member)| member.outward == name)?,
        };
        let name = match way {
            Way::Out => &member.outward,
            Way::In => inward,
        };
        Some((name, &member.below))
    }

    /// Renames the members of a value. If a name would then occur twice, the members of that object keep their names:
    /// nothing that was said is lost.
    pub(in super::super) fn map(&self, value: &Value, way: Way) -> Value {
        match value {
            Value::Object(members) => {
                let mut mapped = Map::new();
                for (name, value) in members {
                    let known = self.member(name, way);
                    let value = match (known, &self.others) {
                        (Some((_, below)), _) => below.map(value, way),
                        (None, Some(others)) => others.map(value, way),
                        (None, None) => value.clone(),
                    };
                    mapped.insert(
                        known.map_or(name.as_str(), |(name, _)| name).to_owned(),
                        value,
                    );
                }
                if mapped.len() == members.len() {
                    mapped.into()
                } else {
                    value.clone()
                }
            }
            Value::Array(items) => match &self.items {
                Some(names) => items.iter().map(|item| names.map(item, way)).collect(),
                None => value.clone(),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
}

/// What is said of the values at one place.
#[derive(Default)]
struct Place<'a> {
    members: BTreeMap<&'a String, Vec<&'a Value>>,
    others: Vec<&'a Value>,
    items: Vec<&'a Value>,
}

impl<'a> Place<'a> {
    fn add(&mut self, schema: &'a Value) {
        let members = schema.get("properties").and_then(Value::as_object);
        for (name, member) in members.into_iter().flatten() {
            self.members.entry(name).or_default().push(member);
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        self.others
            .extend(patterns.into_iter().flat_map(Map::values));
        self.others.extend(
            schema
                .get("additionalProperties")
                .filter(|it| it.is_object()),
        );
        self.items
            .extend(schema.get("items").filter(|it| it.is_object()));
        let tuple = schema.get("prefixItems").and_then(Value::as_array);
        self.items.extend(tuple.into_iter().flatten());
        let branches = schema.get("anyOf").and_then(Value::as_array);
        for branch in branches.into_iter().flatten() {
            self.add(branch);
        }
    }
}

/// A name that nobody has yet.
fn free(wanted: &str, taken: &[String]) -> String {
    let is_free = |name: &str| !taken.iter().any(|known| known == name);
    if is_free(wanted) {
        return wanted.to_owned();
    }
    let numbered = |number: usize| {
        let suffix = format!("_{number}");
        let room = KEY_CHARS_MAX - suffix.len();
        format!("{}{suffix}", &wanted[..wanted.len().min(room)])
    };
    let mut number = 2;
    loop {
        let name = numbered(number);
        if is_free(&name) {
            return name;
        }
        number += 1;
    }
}
