//! Namespaces: paths that memory entries belong to.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::error::Failure;
use crate::id::SessionId;
use crate::workflow::template::{Named, Names, Work, free_names, render};

/// Maximum length of a namespace, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 400;

/// Maximum number of segments of a namespace.
pub const SEGMENTS_MAX: usize = 16;

/// The names that a namespace template may read.
const NAMES: [&str; 2] = ["metadata", "session_id"];

/// A path of segments separated by slashes: `user/42`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Namespace(String);

/// Why a text is not a valid namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NamespaceFault(pub String);

fn fault<T>(why: impl Into<String>) -> Result<T, NamespaceFault> {
    Err(NamespaceFault(why.into()))
}

impl Namespace {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The stored form, with a trailing slash: everything that starts with it is in the namespace.
    pub fn stored(&self) -> String {
        format!("{}/", self.0)
    }

    /// The exclusive upper bound of all texts that start with [`stored`](Self::stored).
    pub fn behind(&self) -> String {
        // `0` is the character after the slash.
        format!("{}0", self.0)
    }

    /// Parses the stored form.
    pub fn from_stored(text: &str) -> Result<Self, NamespaceFault> {
        text.strip_suffix('/').unwrap_or(text).parse()
    }

    /// Whether this is `other` or an ancestor of it.
    pub fn covers(&self, other: &Self) -> bool {
        other
            .0
            .strip_prefix(&self.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The namespace at this path below this one.
    pub fn below(&self, path: &str) -> Result<Self, NamespaceFault> {
        format!("{}/{path}", self.0).parse()
    }

    /// The namespaces from the first segment down to this one.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        let slashes = self.0.match_indices('/').map(|(at, _)| &self.0[..at]);
        slashes.chain(std::iter::once(self.0.as_str()))
    }

    /// Checks a template without its values.
    pub fn check_template(template: &str) -> Result<(), NamespaceFault> {
        let free = free_names(template).map_err(NamespaceFault)?;
        match free.iter().find(|name| !NAMES.contains(&name.as_str())) {
            Some(name) => fault(format!(
                "{name:?} is unknown; a namespace may use {}",
                NAMES.join(", ")
            )),
            // The path itself is checked with its values.
            None if template.len() > NAMESPACE_BYTES_MAX => fault(format!(
                "a namespace has at most {NAMESPACE_BYTES_MAX} bytes"
            )),
            None if !template.contains('{') => template.parse::<Self>().map(drop),
            None => Ok(()),
        }
    }

    /// Renders the namespace of a session. Each value becomes part of one segment, whatever it
    /// contains: characters other than letters, digits, `-`, `_`, `.`, `@` or `+` are
    /// percent-encoded.
    pub fn render(
        template: &str,
        metadata: &Map<String, Value>,
        session: SessionId,
    ) -> Result<Self, NamespaceFault> {
        Self::check_template(template)?;
        let values = Values { metadata, session };
        let rendered = render(template, &values, &Work::of_rendering());
        let path = rendered.map_err(|failure| NamespaceFault(failure.message))?;
        path.parse()
    }
}

struct Values<'a> {
    metadata: &'a Map<String, Value>,
    session: SessionId,
}

impl Names for Values<'_> {
    fn named(&self, name: &str) -> Result<Named<'_>, Failure> {
        let value = match name {
            "session_id" => Value::String(self.session.to_string()),
            _ => escaped(&Value::Object(self.metadata.clone())),
        };
        Ok(Named::Value(Cow::Owned(value)))
    }
}

/// Escapes a value so that no text extends beyond its segment. Members whose names would are left
/// out, and so are empty values, so that they do not exist for the template.
fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(segment(text)),
        Value::Array(list) => Value::Array(list.iter().map(escaped).collect()),
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| {
                segment(name) == **name && !value.is_null() && value.as_str() != Some("")
            });
            Value::Object(
                kept.map(|(name, value)| (name.clone(), escaped(value)))
                    .collect(),
            )
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Escapes a text to one segment.
pub fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let dots = !text.is_empty() && text.bytes().all(|byte| byte == b'.');
    for c in text.chars() {
        let plain = c.is_alphanumeric() || "-_@+".contains(c) || (c == '.' && !dots);
        if plain {
            escaped.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

impl FromStr for Namespace {
    type Err = NamespaceFault;

    fn from_str(text: &str) -> Result<Self, NamespaceFault> {
        if text.is_empty() {
            return fault("a namespace is not empty");
        }
        if text.len() > NAMESPACE_BYTES_MAX {
            return fault(format!(
                "a namespace has at most {NAMESPACE_BYTES_MAX} bytes"
            ));
        }
        if text.split('/').count() > SEGMENTS_MAX {
            return fault(format!("a namespace has at most {SEGMENTS_MAX} segments"));
        }
        for part in text.split('/') {
            if part.is_empty() {
                return fault("a segment of a namespace is empty");
            }
            if part.bytes().all(|byte| byte == b'.') {
                return fault("a segment of a namespace is not made of dots alone");
            }
            if part.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return fault("a namespace has no spaces and no control characters");
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn rendered(template: &str, metadata: &Value) -> Result<String, String> {
        let metadata = metadata.as_object().expect("metadata is an object");
        let session = SessionId(Uuid::from_u128(7));
        let namespace = Namespace::render(template, metadata, session);
        namespace
            .map(|namespace| namespace.to_string())
            .map_err(|fault| fault.to_string())
    }

    #[test]
    fn values_stay_in_their_segment() {
        for (value, expected) in [
            ("42", "user/42"),
            ("a/b", "user/a%2Fb"),
            ("../admin", "user/..%2Fadmin"),
            ("..", "user/%2E%2E"),
            ("100%", "user/100%25"),
            ("J\u{fc}rgen M", "user/J\u{fc}rgen%20M"),
            ("a@b.example", "user/a@b.example"),
            ("{{metadata}}", "user/%7B%7Bmetadata%7D%7D"),
        ] {
            let metadata = json!({ "user_id": value });
            let namespace = rendered("user/{{ metadata.user_id }}", &metadata);
            assert_eq!(namespace.as_deref(), Ok(expected));
        }
        let numbers = rendered("user/{{metadata.n}}/x", &json!({"n": 5}));
        assert_eq!(numbers.as_deref(), Ok("user/5/x"));
        let of_session = rendered("s/{{session_id}}", &json!({}));
        assert_eq!(
            of_session.as_deref(),
            Ok("s/ses_00000000000000000000000000000007")
        );
    }

    #[test]
    fn what_is_missing_is_refused() {
        for metadata in [
            json!({}),
            json!({"user_id": null}),
            json!({"user_id": ""}),
            json!({"other": "x"}),
        ] {
            assert!(rendered("user/{{metadata.user_id}}", &metadata).is_err());
        }
        assert!(rendered("user/{{nodes.a}}", &json!({})).is_err());
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", "/", "a/", "/a", "a//b", "a/../b", ".", "a b", "a\nb"] {
            assert!(text.parse::<Namespace>().is_err(), "{text:?}");
        }
        assert!("a/b-c/d_e.f".parse::<Namespace>().is_ok());
        assert!(
            "x".repeat(NAMESPACE_BYTES_MAX + 1)
                .parse::<Namespace>()
                .is_err()
        );
    }

    #[test]
    fn a_namespace_covers_what_is_below_it_and_nothing_beside_it() {
        let parse = |text: &str| text.parse::<Namespace>().expect("is a namespace");
        let user = parse("user/4");
        for (other, covered) in [
            ("user/4", true),
            ("user/4/work", true),
            ("user/42", false),
            ("user", false),
            ("user/40/x", false),
        ] {
            let other = parse(other);
            assert_eq!(user.covers(&other), covered, "{other}");
            let stored = other.stored();
            let in_range = stored >= user.stored() && stored < user.behind();
            assert_eq!(in_range, covered, "{other}");
        }
        let levels: Vec<_> = parse("a/b/c").levels().map(str::to_owned).collect();
        assert_eq!(levels, ["a", "a/b", "a/b/c"]);
    }

    proptest! {
        #[test]
        fn two_values_never_share_a_namespace(a in "\\PC{1,12}", b in "\\PC{1,12}") {
            let of = |value: &str| rendered("u/{{metadata.v}}", &json!({ "v": value }));
            prop_assert_eq!(a == b, of(&a) == of(&b));
            let namespace = of(&a).expect("any value has a namespace");
            prop_assert_eq!(namespace.split('/').count(), 2);
        }
    }
}
