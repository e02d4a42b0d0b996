//! Reads what LangGraph's serializer wrote, as data.
//!
//! Objects are the arguments that they would be built of, with the name of their class in [`CLASS`]. Nothing is built
//! of them, and pickles are refused.

use rmpv::Value as Packed;
use serde_json::{Map, Number, Value};

use crate::error::Error;
use crate::parts::taken;

/// The member with the name of the class that an object is of.
pub(super) const CLASS: &str = "__class__";

/// How deep values may be nested, extensions included.
const DEPTH_MAX: usize = 64;

/// Reads a value of this type.
pub(super) fn read(kind: &str, bytes: &[u8]) -> Result<Value, Error> {
    match kind {
        "json" => serde_json::from_slice(bytes)
            .map(plain)
            .map_err(|_| Error::shape("its JSON cannot be read")),
        "msgpack" => unpacked(bytes, DEPTH_MAX),
        "null" => Ok(Value::Null),
        "pickle" => Err(Error::shape(
            "it is a pickle of Python's: that could execute anything, and is not read",
        )),
        _ if kind.contains('+') => Err(Error::shape(format!(
            "it is encrypted ({kind}), and is not read"
        ))),
        _ => Err(Error::shape(format!("its type {kind} is not known"))),
    }
}

fn unpacked(mut bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let deep = || Error::shape("its values are nested too deeply");
    let depth = depth.checked_sub(1).ok_or_else(deep)?;
    let packed =
        rmpv::decode::read_value_with_max_depth(&mut bytes, depth).map_err(
            |error| match error {
                rmpv::decode::Error::DepthLimitExceeded => deep(),
                _ => Error::shape("its MessagePack cannot be read"),
            },
        )?;
    value(packed, depth)
}

fn value(packed: Packed, depth: usize) -> Result<Value, Error> {
    Ok(match packed {
        Packed::Nil => Value::Null,
        Packed::Boolean(truth) => Value::Bool(truth),
        Packed::Integer(number) => {
            let number = number
                .as_i64()
                .map(Number::from)
                .or(number.as_u64().map(Number::from));
            number.map_or(Value::Null, Value::Number)
        }
        Packed::F32(number) => {
            Number::from_f64(f64::from(number)).map_or(Value::Null, Value::Number)
        }
        Packed::F64(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        Packed::String(text) => {
            Value::String(String::from_utf8_lossy(text.as_bytes()).into_owned())
        }
        Packed::Binary(bytes) => Value::String(format!("({} bytes)", bytes.len())),
        Packed::Array(values) => {
            let values = values.into_iter().map(|one| value(one, depth));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        Packed::Map(members) => {
            let members = members.into_iter().map(|(name, one)| {
                let name = match value(name, depth)? {
                    Value::String(name) => name,
                    other => other.to_string(),
                };
                Ok((name, value(one, depth)?))
            });
            Value::Object(members.collect::<Result<_, Error>>()?)
        }
        Packed::Ext(code, bytes) => extension(code, &bytes, depth)?,
    })
}

/// An object: `(module, class, arguments, …)`.
fn extension(code: i8, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let mut inner = unpacked(bytes, depth)?;
    match code {
        // One argument, several, those by name, and one of a method: of times, sets, enumerations and the like.
        0 | 1 | 3 => Ok(taken(&mut inner, 2)),
        2 | 4 | 5 => {
            let class = taken(&mut inner, 1);
            match taken(&mut inner, 2) {
                Value::Object(mut members) => {
                    members.insert(CLASS.to_owned(), class);
                    Ok(Value::Object(members))
                }
                other => Ok(other),
            }
        }
        6 => Ok(Value::String("(an array of numbers)".to_owned())),
        7 => Err(Error::shape("it is of a DeltaChannel, which is not read")),
        _ => Err(Error::shape(format!(
            "its extension {code} of MessagePack is not known"
        ))),
    }
}

/// JSON with LangChain's objects as other objects: `{lc, type: "constructor", id, kwargs}`.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(plain).collect()),
        Value::Object(mut members) => {
            let is_object = members.contains_key("lc") && members.contains_key("kwargs");
            if !is_object {
                let members = members.into_iter().map(|(name, one)| (name, plain(one)));
                return Value::Object(members.collect());
            }
            let class = match members.remove("id") {
                Some(Value::Array(mut path)) => path.pop(),
                _ => None,
            };
            let mut kwargs = match members.remove("kwargs").map(plain) {
                Some(Value::Object(kwargs)) => kwargs,
                _ => Map::new(),
            };
            kwargs.insert(CLASS.to_owned(), class.unwrap_or_default());
            Value::Object(kwargs)
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn packed(value: &Packed) -> Vec<u8> {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, value).expect("written");
        bytes
    }

    fn object(code: i8, parts: Vec<Packed>) -> Packed {
        Packed::Ext(code, packed(&Packed::Array(parts)))
    }

    #[test]
    fn an_object_of_another_shape_is_nothing_and_no_panic() {
        for code in 0..6 {
            for inner in [
                Packed::Nil,
                Packed::from(7),
                Packed::Array(vec!["a".into()]),
            ] {
                let odd = Packed::Ext(code, packed(&inner));
                let read = read("msgpack", &packed(&odd)).expect("read");
                assert_eq!(read, Value::Null, "{code} {inner}");
            }
        }
    }

    #[test]
    fn objects_are_their_arguments_and_their_class() {
        let kwargs = Packed::Map(vec![("content".into(), "hello".into())]);
        let parts = vec![
            "langchain_core.messages.human".into(),
            "HumanMessage".into(),
            kwargs,
        ];
        let list = Packed::Array(vec![object(5, parts)]);
        let read = read("msgpack", &packed(&list)).expect("read");
        assert_eq!(
            read,
            json!([{"content": "hello", "__class__": "HumanMessage"}])
        );
        let time = vec![
            "datetime".into(),
            "datetime".into(),
            "2030-01-01".into(),
            "x".into(),
        ];
        let read = super::read("msgpack", &packed(&object(3, time))).expect("read");
        assert_eq!(read, json!("2030-01-01"));
    }

    #[test]
    fn json_of_older_versions_reads_the_same() {
        let text = json!([{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
            "kwargs": {"content": "hi", "type": "ai"}}]);
        let read = read("json", text.to_string().as_bytes()).expect("read");
        assert_eq!(
            read,
            json!([{"content": "hi", "type": "ai", "__class__": "AIMessage"}])
        );
    }

    #[test]
    fn what_could_execute_something_or_never_end_is_refused() {
        let refused =
            |kind: &str, bytes: &[u8]| read(kind, bytes).expect_err("refused").to_string();
        assert!(refused("pickle", b"\x80\x04.").contains("pickle"));
        assert!(refused("msgpack+aes", b"").contains("encrypted"));
        assert!(refused("what", b"").contains("what"));
        // An extension in an extension, and so on, and a list in a list.
        let mut deep = Packed::Nil;
        for _ in 0..DEPTH_MAX * 2 {
            deep = object(0, vec!["m".into(), "c".into(), deep]);
        }
        assert!(refused("msgpack", &packed(&deep)).contains("deeply"));
        assert!(refused("msgpack", &vec![0x91; 1 << 20]).contains("deeply"));
        // A length that nothing follows.
        assert!(refused("msgpack", &[0xdd, 0xff, 0xff, 0xff, 0xff]).contains("cannot be read"));
        assert!(refused("json", &vec![b'['; 1 << 20]).contains("cannot be read"));
    }
}
