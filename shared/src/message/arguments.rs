//! The arguments of a call: their value, and the words in which the model gave them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::numbers::string_end;
use crate::json::{clean, clean_value};

/// How long a number and how large its exponent may be: doubles end before it, and so do the numbers of databases.
const DIGITS_MAX: usize = 400;

/// How deep arguments are read; parsers of JSON refuse more.
const DEPTH_MAX: usize = 127;

/// The arguments of a call.
///
/// Whoever passes them on, to a tool, a policy, a person or back to the model, passes on the model's own
/// [`text`](Self::text): numbers, strings and the order of members stay as they were written. Whoever acts on them reads
/// the value, which says the same. A text of which no value says the same is a string, and [`fault`](Self::fault) says
/// why: nothing is to be done with it.
#[derive(Clone, Default)]
pub struct Arguments {
    value: Value,
    /// The text, unless it is the value's own.
    text: Option<Box<str>>,
}

impl Arguments {
    /// Reads what a model wrote: blank text is the empty object. What is no JSON is a string, and so is what a
    /// database could not store as JSON, or only as something else: that it has a [`fault`](Self::fault) is all that is left
    /// to say of it.
    pub fn read(text: &str) -> Self {
        if text.trim().is_empty() {
            return Value::Object(Map::new()).into();
        }
        match serde_json::from_str(text) {
            Ok(value) => Self::said(value, text),
            Err(_) => Value::String(clean(text).into_owned()).into(),
        }
    }

    /// A value that was read of this text.
    fn said(value: Value, text: &str) -> Self {
        let value = clean_value(value);
        let own = value.to_string();
        if own == text {
            value.into()
        } else if scan(text).is_some() {
            Value::String(text.to_owned()).into()
        } else {
            Self {
                value,
                text: Some(text.trim().into()),
            }
        }
    }

    /// The JSON text, as the model wrote it.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.text {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(self.value.to_string()),
        }
    }

    /// The value. It lacks U+0000, and whole numbers are integers.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Whether the text is another than the value's own.
    pub const fn is_verbatim(&self) -> bool {
        self.text.is_some()
    }

    /// The value alone.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The size of the text in bytes.
    pub fn len(&self) -> usize {
        match (&self.text, &self.value) {
            (Some(text), _) => text.len(),
            (None, Value::String(text)) => text.len(),
            (None, other) => other.to_string().len(),
        }
    }

    /// Whether there is no text, which no model can have written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why a model's words are no value that could be used, in words for the model: they hold U+0000 or half of a
    /// character, which a database cannot store as JSON; a number that no double and no 64-bit integer equals; or a member
    /// that is given twice.
    pub fn fault(&self) -> Option<String> {
        // Where there is a text or another value, the two say the same.
        self.value.as_str().and_then(unreadable)
    }
}

impl Deref for Arguments {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Self { value, text: None }
    }
}

impl From<Map<String, Value>> for Arguments {
    fn from(members: Map<String, Value>) -> Self {
        Value::Object(members).into()
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.text() == other.text()
    }
}

impl PartialEq<Value> for Arguments {
    fn eq(&self, other: &Value) -> bool {
        self.value == *other
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            // It was parsed when it was read, so it is JSON.
            Some(text) => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => raw.serialize(serializer),
                Err(_) => self.value.serialize(serializer),
            },
            None => self.value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let value: Value = serde_json::from_str(text).map_err(serde::de::Error::custom)?;
        Ok(match value {
            // What was no JSON, or a value that is no object.
            Value::String(_) => Self { value, text: None },
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Self::said(value, text),
        })
    }
}

/// Why a text that looks like an object could not be read, if one of its numbers or characters is the reason.
fn unreadable(text: &str) -> Option<String> {
    // It is JSON but for what a value cannot hold.
    serde_json::from_str::<&RawValue>(text).ok()?;
    scan(text).or_else(|| {
        let halves = serde_json::from_str::<Value>(text).is_err();
        halves.then(|| "they contain one half of a surrogate pair".to_owned())
    })
}

/// The first thing in a JSON text that its value cannot say.
fn scan(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    // The names seen in each open object; `None` for an array.
    let mut open: Vec<Option<HashSet<String>>> = Vec::new();
    let mut named = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at);
                let string = &text[at..end];
                if holds_nul(string) {
                    return Some("they contain the character U+0000".to_owned());
                }
                if let Some(Some(names)) = open.last_mut()
                    && !named
                {
                    let name: String = serde_json::from_str(string).ok()?;
                    if names.contains(&name) {
                        return Some(format!("the member {name:?} is given twice"));
                    }
                    names.insert(name);
                    named = true;
                }
                at = end;
                continue;
            }
            b'{' if open.len() < DEPTH_MAX => {
                open.push(Some(HashSet::new()));
                named = false;
            }
            b'[' if open.len() < DEPTH_MAX => open.push(None),
            b'}' | b']' => {
                open.pop();
                // Whatever encloses it has had its name.
                named = true;
            }
            b',' => named = false,
            b'-' | b'0'..=b'9' => {
                let rest = &bytes[at..];
                let len = rest.iter().position(|byte| !is_of_number(*byte));
                let number = &text[at..at + len.unwrap_or(rest.len())];
                if !is_exact(number) {
                    return Some(format!(
                        "the number {number} is not exact in 64 bits: give it as a string, if the tool takes one"
                    ));
                }
                at += number.len();
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Whether a string in quotes holds U+0000, which JSON can only write escaped.
fn holds_nul(string: &str) -> bool {
    let mut rest = string;
    while let Some(at) = rest.find('\\') {
        if rest[at..].starts_with("\\u0000") {
            return true;
        }
        // The escaped character may itself be a backslash.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

/// Whether the number is the same once it was read as an integer of 64 bits or as a double.
fn is_exact(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let exponent = number
        .split_once(['e', 'E'])
        .and_then(|(_, power)| power.parse::<i32>().ok());
    if number.len() > DIGITS_MAX || exponent.is_some_and(|power| power.abs() > DIGITS_MAX as i32) {
        return false;
    }
    let Ok(float) = number.parse::<f64>() else {
        return false;
    };
    float.is_finite() && decimal(number) == decimal(&format!("{float:e}"))
}

/// The digits of a number without zeros at its ends, and the power of ten that they are multiplied by; the sign counts
/// but for zero.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (negative, rest) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (digits, power) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let mut power: i64 = power.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    power = power.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    if trimmed.is_empty() {
        return Some((false, String::new(), 0));
    }
    let zeros = i64::try_from(digits.len() - trimmed.len()).ok()?;
    Some((negative, trimmed.to_owned(), power.checked_add(zeros)?))
}

#[cfg(test)]
mod tests;
