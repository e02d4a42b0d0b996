//! JSON of answers in which arguments keep the text that the model wrote.
//!
//! Arguments come as the text of JSON, or as a value among the others of an answer. What is read as a [`Value`] has
//! lost how its numbers were written, so the text of such a value is kept beside it, where it says more.

use std::fmt;

use mainspring_worker::llm::json;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The members that hold the arguments of a call.
const HOLDERS: [&str; 2] = ["input", "arguments"];

/// Begins the name of the member with the text of another. No vendor's member begins so.
const TEXT_OF: char = '\0';

/// Reads JSON.
pub(crate) fn parse(text: &str) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Reading.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// The text of a member that holds arguments, if its value does not say it whole.
pub(crate) fn text<'v>(holder: &'v Value, member: &str) -> Option<&'v str> {
    holder.get(format!("{TEXT_OF}{member}"))?.as_str()
}

/// Whether the member with this name is the text of another.
pub(crate) fn is_text(name: &str) -> bool {
    name.starts_with(TEXT_OF)
}

/// The value as it came, without the texts.
pub(crate) fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| !is_text(name));
            Value::Object(members.map(|(name, value)| (name, plain(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

struct Reading;

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if HOLDERS.contains(&name.as_str()) {
                let raw: Box<RawValue> = map.next_value()?;
                hold(&mut members, name, raw.get()).map_err(A::Error::custom)?;
            } else {
                let value = map.next_value_seed(Self)?;
                members.insert(name, value);
            }
        }
        Ok(Value::Object(members))
    }
}

/// Adds a member that may hold arguments.
fn hold(members: &mut Map<String, Value>, name: String, text: &str) -> serde_json::Result<()> {
    if !text.starts_with('{') {
        // A text, or the list of an echoed request.
        members.insert(name, parse(text)?);
        return Ok(());
    }
    // A number or half of a character that no value can hold is for whoever reads the text.
    let value = json::parse(text).unwrap_or_else(|| Value::Object(Map::new()));
    let own = value.to_string();
    if own != text {
        members.insert(format!("{TEXT_OF}{name}"), text.into());
    }
    members.insert(name, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_keep_the_text_that_their_value_does_not_say() {
        let read = parse(r#"[{"input": {"b": 1.50, "a": {"input": {}}}, "id": 1}]"#).expect("JSON");
        assert_eq!(
            text(&read[0], "input"),
            Some(r#"{"b": 1.50, "a": {"input": {}}}"#)
        );
        assert_eq!(
            plain(read),
            json!([{"input": {"b": 1.5, "a": {"input": {}}}, "id": 1}])
        );
        let read = parse(r#"{"arguments":{"b":1,"a":"x"}}"#).expect("JSON");
        assert_eq!(text(&read, "arguments"), None);
        assert_eq!(read, json!({"arguments": {"b": 1, "a": "x"}}));
    }

    #[test]
    fn what_no_value_can_hold_is_a_text_only() {
        for (arguments, value) in [
            (r#"{"n":1e400}"#, json!({})),
            (r#"{"s":"\ud83d"}"#, json!({"s": "\u{fffd}"})),
        ] {
            let read = parse(&format!(r#"{{"input":{arguments}}}"#)).expect("JSON");
            assert_eq!(text(&read, "input"), Some(arguments));
            assert_eq!(plain(read), json!({ "input": value }));
        }
    }

    #[test]
    fn everything_else_is_read_as_ever() {
        for text in [
            r#"{"arguments":"{\"a\": 1}","input":[{"type":"x"}],"n":[1,-1,1.5,18446744073709551615]}"#,
            "null",
            r#"["\u00e9",true,{}]"#,
        ] {
            let expected: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(parse(text).expect("JSON"), expected);
        }
        for text in ["{", "1 2", r#"{"input":}"#, r#"{"s":"\ud83d"}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
