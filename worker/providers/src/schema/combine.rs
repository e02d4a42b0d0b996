//! Alternatives and sums of schemas.

use serde_json::{Value, json};

use super::dialect::Beside;
use super::node::{Fitter, Refs, Trail};
use super::{Object, words};

/// The keywords for alternatives.
pub(super) const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

impl<'a> Fitter<'a> {
    /// Reads the combinators of a node: the parts of `allOf` are added to it, and alternatives are as they come.
    pub(super) fn combinators(
        &mut self,
        source: &'a Object,
        node: &mut Object,
        (at, refs): (&Trail<'_>, Refs),
    ) {
        for keyword in ALTERNATIVES {
            let branches = source.get(keyword).and_then(Value::as_array);
            let Some(branches) = branches.filter(|branches| !branches.is_empty()) else {
                continue;
            };
            let mut fitted: Vec<Value> = Vec::new();
            for branch in branches {
                if *branch == Value::Bool(false) {
                    continue;
                }
                let branch = Value::from(self.raw(branch, at, refs));
                if !fitted.contains(&branch) {
                    fitted.push(branch);
                }
            }
            if !fitted.is_empty() {
                node.insert(keyword.to_owned(), fitted.into());
            }
        }
        let parts = source.get("allOf").and_then(Value::as_array);
        let parts = parts.map_or(&[][..], Vec::as_slice);
        // A single reference beside nothing that counts can stay one.
        let refs = if parts.len() == 1 && !node.contains_key("$ref") {
            refs
        } else {
            Refs::Followed
        };
        for part in parts {
            let part = self.raw(part, at, refs);
            both(node, part);
        }
    }

    /// Folds the alternatives of an object into it: all members of all of them, of which those are required that each
    /// of them requires. A member that an alternative doesn't name is as another one has it. The rule is added to
    /// `notes` in words.
    pub(super) fn fold(&self, node: &mut Object, notes: &mut Vec<String>) {
        for keyword in ALTERNATIVES {
            let Some(Value::Array(branches)) = node.remove(keyword) else {
                continue;
            };
            let mut objects: Vec<Object> = Vec::new();
            for branch in branches {
                let Value::Object(mut branch) = branch else {
                    continue;
                };
                if branch.get("type").is_none_or(has_object) {
                    self.fold(&mut branch, &mut Vec::new());
                    objects.push(branch);
                }
            }
            notes.extend(words::of_alternatives(keyword, node, &objects));
            self.members_of(node, &objects);
            require(node, &objects);
        }
    }

    /// Adds the members of alternatives to a node.
    fn members_of(&self, node: &mut Object, objects: &[Object]) {
        let mut properties = match node.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Object::new(),
        };
        let mut found: Vec<(&String, Vec<Object>)> = Vec::new();
        let members = objects
            .iter()
            .filter_map(|it| it.get("properties")?.as_object());
        for (name, member) in members.flatten() {
            let Value::Object(member) = member else {
                continue;
            };
            // A member that says nothing in the object itself is told by the alternatives.
            if properties.get(name).is_some_and(|own| !says_nothing(own)) {
                continue;
            }
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, versions)) if versions.contains(member) => {}
                Some((_, versions)) => versions.push(member.clone()),
                None => found.push((name, vec![member.clone()])),
            }
        }
        for (name, versions) in found {
            let described = properties
                .get(name)
                .and_then(|own| own.get("description"))
                .cloned();
            let mut member = self.any_of(versions);
            if let Some(description) = described.filter(|_| self.form.beside != Beside::Nothing) {
                member.insert("description".to_owned(), description);
            }
            properties.insert(name.clone(), member.into());
        }
        if !properties.is_empty() {
            node.insert("properties".to_owned(), properties.into());
        }
    }

    /// A node that one of these fits, each of which is as it goes out.
    pub(super) fn any_of(&self, mut versions: Vec<Object>) -> Object {
        if versions.iter().any(Object::is_empty) {
            return self.anything();
        }
        if versions.len() == 1 {
            return versions.remove(0);
        }
        if let Some(one) = one_enum(&versions) {
            return one;
        }
        let mut node = Object::new();
        let versions: Vec<Value> = versions.into_iter().map(Value::from).collect();
        node.insert("anyOf".to_owned(), versions.into());
        if self.form.beside != Beside::Anything {
            self.settle(&mut node);
        }
        node
    }
}

/// Adds to a node what another one demands of the same value, where both can be said.
pub(super) fn both(node: &mut Object, other: Object) {
    for (keyword, value) in other {
        let Some(own) = node.get_mut(&keyword) else {
            node.insert(keyword, value);
            continue;
        };
        match (keyword.as_str(), own, value) {
            ("properties", Value::Object(own), Value::Object(others)) => {
                for (name, member) in others {
                    match (own.get_mut(&name), member) {
                        (Some(Value::Object(own)), Value::Object(member)) => {
                            both(own, member);
                        }
                        (Some(_), _) => {}
                        (None, member) => {
                            own.insert(name, member);
                        }
                    }
                }
            }
            ("required", Value::Array(own), Value::Array(others)) => {
                for name in others {
                    if !own.contains(&name) {
                        own.push(name);
                    }
                }
            }
            ("items", Value::Object(own), Value::Object(other)) => both(own, other),
            // The first one's, unless it would forbid members of the other one.
            ("additionalProperties", own, other) if *own != other => {
                *own = Value::Bool(true);
            }
            _ => {}
        }
    }
}

/// Requires what all alternatives require.
fn require(node: &mut Object, objects: &[Object]) {
    let mut required = words::names(node);
    if let [first, rest @ ..] = objects {
        for name in words::names(first) {
            let everywhere = rest
                .iter()
                .all(|branch| words::names(branch).contains(&name));
            if everywhere && !required.contains(&name) {
                required.push(name);
            }
        }
    }
    if !required.is_empty() {
        let required = json!(required);
        node.insert("required".to_owned(), required);
    }
}

/// Whether a type is, or may be, that of objects.
pub(super) fn has_object(kind: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind.as_str() == Some("object")),
        kind => kind.as_str() == Some("object"),
    }
}

/// Whether a member says nothing but what it is for.
fn says_nothing(member: &Value) -> bool {
    let Value::Object(member) = member else {
        return true;
    };
    member
        .keys()
        .all(|keyword| matches!(keyword.as_str(), "title" | "description"))
}

/// The texts that one of several nodes allows which only allow some texts, as one list.
fn one_enum(versions: &[Object]) -> Option<Object> {
    let mut all: Vec<Value> = Vec::new();
    for version in versions {
        let plain = |keyword: &String| {
            matches!(
                keyword.as_str(),
                "type" | "enum" | "const" | "title" | "description" | "default"
            )
        };
        if !version.keys().all(plain) {
            return None;
        }
        let values = match (version.get("enum"), version.get("const")) {
            (Some(Value::Array(values)), None) => values.as_slice(),
            (None, Some(value)) => std::slice::from_ref(value),
            _ => return None,
        };
        for value in values {
            if !value.is_string() {
                return None;
            }
            if !all.contains(value) {
                all.push(value.clone());
            }
        }
    }
    let mut node = Object::new();
    if let Some(description) = versions
        .iter()
        .find_map(|version| version.get("description"))
    {
        node.insert("description".to_owned(), description.clone());
    }
    node.insert("type".to_owned(), json!("string"));
    node.insert("enum".to_owned(), all.into());
    Some(node)
}
