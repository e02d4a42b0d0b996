//! JSON as stored in databases. Programs of two releases share a database during an upgrade, so
//! stored JSON is read more tolerantly than requests: members that this program does not know are
//! kept, and written back when it writes the object again.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

thread_local! {
    /// Whether what is being parsed on this thread comes from a database.
    static STORED: Cell<bool> = const { Cell::new(false) };
}

/// Resets the mark when parsing ends, even by a panic.
struct Mark(bool);

impl Drop for Mark {
    fn drop(&mut self) {
        STORED.set(self.0);
    }
}

/// Parses stored JSON. Everywhere else an unknown member of an object is an error.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let _mark = Mark(STORED.replace(true));
    serde_json::from_str(text)
}

/// Members that this program does not know: an error in a request, any members in stored JSON.
/// Flattened into an object, which is then written back as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extra(Option<Box<Map<String, Value>>>);

impl Extra {
    /// Whether every member is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(members) => members.serialize(serializer),
            None => Map::<String, Value>::new().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Extra;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Extra, A::Error> {
                let mut members = Map::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !STORED.get() {
                        return Err(unknown(&name));
                    }
                    members.insert(name, map.next_value()?);
                }
                Ok(Extra((!members.is_empty()).then(|| Box::new(members))))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// Like [`Extra`], but drops the unknown members, for objects that need not preserve them: stored
/// JSON may have them, a request may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped;

impl<'de> Deserialize<'de> for Dropped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Dropped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Dropped, A::Error> {
                while let Some(name) = map.next_key::<String>()? {
                    if !STORED.get() {
                        return Err(unknown(&name));
                    }
                    let _: IgnoredAny = map.next_value()?;
                }
                Ok(Dropped)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// Serde's error for an unknown member.
fn unknown<E: serde::de::Error>(name: &str) -> E {
    E::custom(format_args!("unknown field `{name}`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::{AgentSpec, SendOptions};
    use crate::list::Entry;
    use crate::message::ContentPart;
    use crate::workflow::run::RunOptions;

    /// JSON stored by a later release, as this one writes it back.
    fn again<T: DeserializeOwned + Serialize>(stored: &Value) -> Value {
        let text = stored.to_string();
        let error = serde_json::from_str::<T>(&text).err();
        let error = error.expect("a request may not say so").to_string();
        assert!(error.contains("unknown field `later"), "{error}");
        let value: T = read(&text).expect("what is stored may");
        let text = serde_json::to_string(&value).expect("prints");
        serde_json::from_str(&text).expect("is JSON")
    }

    #[test]
    fn what_a_later_release_stored_is_kept_whole() {
        let agent = json!({
            "model": "m", "later": {"a": [1, null]},
            "tools": [
                "core",
                {"type": "http", "name": "a", "url": "https://x.example", "later_tool": true,
                 "description": "", "parameters": {"type": "object"}, "repeat": "once",
                 "parallel": true, "approval": false},
            ],
            "context": {"last_messages": 5, "later_context": "x"},
            "notes": {"max": 3, "when_full": "fifo", "later_notes": 1},
            "recovery": "auto",
        });
        assert_eq!(again::<AgentSpec>(&agent), agent);
        let options = json!({"priority": "low", "on_busy": "enqueue", "later": [1]});
        assert_eq!(again::<SendOptions>(&options), options);
        let options = json!({"max_tokens": 5, "later": null});
        assert_eq!(again::<RunOptions>(&options), options);
        let entry = json!({
            "id": 1, "version": 1, "text": "x", "later": 2,
            "created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z",
        });
        assert_eq!(again::<Entry>(&entry), entry);
    }

    #[test]
    fn a_budget_is_read_without_what_nobody_knows() {
        let stored =
            json!({"budget": {"tokens": 5, "later": 1}, "priority": "high", "on_busy": "enqueue"});
        let kept = again::<SendOptions>(&stored);
        assert_eq!(kept["budget"], json!({"tokens": 5}));
    }

    #[test]
    fn parts_of_messages_may_say_more() {
        let part = json!({"type": "text", "text": "x", "later": 1}).to_string();
        let read: ContentPart = read(&part).expect("reads");
        assert_eq!(read, ContentPart::text("x"));
    }

    #[test]
    fn the_mark_goes_with_a_failure_too() {
        assert!(read::<SendOptions>("{").is_err());
        assert!(!STORED.get());
    }
}
