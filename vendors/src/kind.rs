//! What a member may be: `int>=1`, `number 0..2`, `string<=64|null`, or one of a list.

use serde::Deserialize;
use serde_json::Value;

/// A set of values.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Written")]
pub struct Kind(Vec<Choice>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    OneOf(Vec<Value>),
}

#[derive(Debug, Clone)]
enum Choice {
    Any,
    Null,
    Bool,
    Object,
    Text(Range),
    Int(Range),
    Number(Range),
    List(Range),
    Literal(Value),
}

#[derive(Debug, Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn holds(self, number: f64) -> bool {
        number >= self.low && number <= self.high
    }
}

impl TryFrom<Written> for Kind {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::OneOf(values) => Ok(Self(values.into_iter().map(Choice::Literal).collect())),
            Written::Text(text) => text
                .split('|')
                .map(choice)
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

fn choice(text: &str) -> Result<Choice, String> {
    let text = text.trim();
    let word: String = text.chars().take_while(char::is_ascii_alphabetic).collect();
    let range = range(text[word.len()..].trim())?;
    match word.as_str() {
        "any" => Ok(Choice::Any),
        "null" => Ok(Choice::Null),
        "bool" => Ok(Choice::Bool),
        "object" => Ok(Choice::Object),
        "string" => Ok(Choice::Text(range)),
        "int" => Ok(Choice::Int(range)),
        "number" => Ok(Choice::Number(range)),
        "list" => Ok(Choice::List(range)),
        _ => Err(format!("`{text}` is not a kind of value")),
    }
}

fn range(text: &str) -> Result<Range, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .map_err(|_| format!("`{text}` is not a number"))
    };
    let whole = Range {
        low: f64::NEG_INFINITY,
        high: f64::INFINITY,
    };
    if text.is_empty() {
        Ok(whole)
    } else if let Some(low) = text.strip_prefix(">=") {
        Ok(Range {
            low: number(low)?,
            ..whole
        })
    } else if let Some(high) = text.strip_prefix("<=") {
        Ok(Range {
            high: number(high)?,
            ..whole
        })
    } else if let Some((low, high)) = text.split_once("..") {
        Ok(Range {
            low: number(low)?,
            high: number(high)?,
        })
    } else {
        Err(format!("`{text}` is not a range"))
    }
}

impl Kind {
    /// Whether a value is of this kind.
    pub fn takes(&self, value: &Value) -> bool {
        self.0.iter().any(|choice| choice.takes(value))
    }
}

impl Choice {
    fn takes(&self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Null => value.is_null(),
            Self::Bool => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::Text(range) => value
                .as_str()
                .is_some_and(|text| range.holds(text.chars().count() as f64)),
            Self::Int(range) => value
                .as_i64()
                .is_some_and(|number| range.holds(number as f64)),
            Self::Number(range) => value.as_f64().is_some_and(|number| range.holds(number)),
            Self::List(range) => value
                .as_array()
                .is_some_and(|list| range.holds(list.len() as f64)),
            Self::Literal(literal) => literal == value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_takes_what_its_text_says() {
        let kind = Kind::try_from(Written::Text("int>=1 | string 2..3|null".to_owned())).unwrap();
        for value in [json!(1), json!("ab"), json!(null)] {
            assert!(kind.takes(&value), "{value}");
        }
        for value in [json!(0), json!(1.5), json!("a"), json!("abcd"), json!({})] {
            assert!(!kind.takes(&value), "{value}");
        }
    }

    #[test]
    fn a_kind_nobody_knows_is_an_error() {
        assert!(Kind::try_from(Written::Text("float".to_owned())).is_err());
        assert!(Kind::try_from(Written::Text("int>=x".to_owned())).is_err());
    }
}
