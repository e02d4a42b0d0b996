//! What JSON of models, users and databases has in common.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Number, Value};

/// Integers up to this are exact in a double, and so the same number however they are written.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Serializes a value with the members of every object sorted by name, whatever their order in memory: the form that is
/// hashed.
#[derive(Debug, Clone, Copy)]
pub struct Sorted<'a>(pub &'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let mut sorted: Vec<_> = members.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                let mut map = serializer.serialize_map(Some(sorted.len()))?;
                for (name, value) in sorted {
                    map.serialize_entry(name, &Sorted(value))?;
                }
                map.end()
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

/// The text of JSON without line breaks, for streams and files of lines. A model may put its arguments on several lines;
/// inside of strings JSON has no raw line breaks, so only blanks change.
pub fn one_line(text: String) -> String {
    if text.contains(['\n', '\r']) {
        text.replace(['\n', '\r'], " ")
    } else {
        text
    }
}

/// The text without U+0000, which a database cannot store.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// The value without U+0000, and with whole numbers as integers: what a database returns must
/// parse, and be sent again, exactly like what was first received.
pub fn clean_value(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => Value::String(clean(&text).into_owned()),
        Value::Number(number) => Value::Number(whole(number)),
        Value::Array(items) => Value::Array(items.into_iter().map(clean_value).collect()),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(name, value)| match clean(&name) {
                Cow::Borrowed(_) => (name, clean_value(value)),
                Cow::Owned(cleaned) => (cleaned, clean_value(value)),
            });
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT_MAX => {
            Number::from(float as i64)
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_on_several_lines_is_the_same_on_one() {
        let text = "{\"a\":\r\n [1,\n\"b\\n\"]}";
        let line = one_line(text.to_owned());
        assert_eq!(line, "{\"a\":   [1, \"b\\n\"]}");
        let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(value(&line), value(text));
    }

    #[test]
    fn members_are_sorted_at_every_depth_and_items_are_not() {
        let value = json!({"b": [{"d": 1, "c": 2}, 3], "a": {"z": null, "y": "x"}});
        let sorted = serde_json::to_string(&Sorted(&value)).expect("JSON");
        assert_eq!(sorted, r#"{"a":{"y":"x","z":null},"b":[{"c":2,"d":1},3]}"#);
    }
}
