//! JSON text that is passed on: without blanks, and with its whole numbers looked at.

use serde_json::Value;

/// A whole number in a JSON text that no integer of 64 bits equals, so that reading it would change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The JSON pointer to it.
    pub pointer: String,
    /// The number as written.
    pub literal: String,
}

/// The digits of the largest integer of 64 bits; numbers with fewer fit.
const DIGITS: usize = 19;

/// What a scan of a JSON text is inside of.
enum Inside {
    Object(String),
    List(usize),
}

/// The first whole number of a valid JSON text that does not fit 64 bits.
pub fn unfit(json: &str) -> Option<Unfit> {
    let bytes = json.as_bytes();
    let has_long = bytes
        .split(|byte| !byte.is_ascii_digit())
        .any(|digits| digits.len() >= DIGITS);
    if !has_long {
        return None;
    }
    let mut inside: Vec<Inside> = Vec::new();
    let mut names = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let from = at;
        at += 1;
        match byte {
            b'"' => {
                at = string_end(bytes, from);
                if let (true, Some(Inside::Object(name))) = (names, inside.last_mut()) {
                    *name = serde_json::from_str(&json[from..at]).unwrap_or_default();
                    names = false;
                }
            }
            b'{' => {
                inside.push(Inside::Object(String::new()));
                names = true;
            }
            b'[' => inside.push(Inside::List(0)),
            b'}' | b']' => {
                inside.pop();
                names = false;
            }
            b',' => match inside.last_mut() {
                Some(Inside::List(place)) => *place += 1,
                Some(Inside::Object(_)) => names = true,
                None => {}
            },
            b'-' | b'0'..=b'9' => {
                let of_number = |byte: &u8| {
                    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
                };
                let len = bytes[from..]
                    .iter()
                    .take_while(|byte| of_number(byte))
                    .count();
                at = from + len;
                let literal = &json[from..at];
                let whole = !literal.contains(['.', 'e', 'E']);
                if whole && literal.parse::<i64>().is_err() && literal.parse::<u64>().is_err() {
                    return Some(Unfit {
                        pointer: pointer(&inside),
                        literal: literal.to_owned(),
                    });
                }
            }
            _ => {}
        }
    }
    None
}

/// The value of a JSON text, unless it is none or reading it would change a whole number.
pub fn value(json: &str) -> Option<Value> {
    let value = serde_json::from_str(json).ok()?;
    unfit(json).is_none().then_some(value)
}

/// A valid JSON text without the blanks between its values; everything else stays as it was written.
pub fn compact(json: &str) -> String {
    let bytes = json.as_bytes();
    let mut compacted = String::with_capacity(json.len());
    let (mut kept, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b' ' | b'\n' | b'\r' | b'\t' => {
                compacted.push_str(&json[kept..at]);
                at += 1;
                kept = at;
            }
            _ => at += 1,
        }
    }
    compacted.push_str(&json[kept..]);
    compacted
}

fn pointer(inside: &[Inside]) -> String {
    let parts = inside.iter().map(|part| match part {
        Inside::Object(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        Inside::List(place) => format!("/{place}"),
    });
    parts.collect()
}

/// The end of the string that begins at `from`.
pub(super) fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_whole_number_beyond_64_bits_is_found_where_it_is() {
        for (json, place) in [
            ("18446744073709551615", None),
            ("-9223372036854775808", None),
            ("18446744073709551616", Some("")),
            ("-9223372036854775809", Some("")),
            (
                r#"{"a/b": [0, {"c": 25000000000000000001}]}"#,
                Some("/a~1b/1/c"),
            ),
            (r#"{"a": {"b": 1}, "c": 25000000000000000001}"#, Some("/c")),
            (r#"{"25000000000000000001": "25000000000000000001"}"#, None),
            (
                r#"{"a": "\"", "b": [[], 25000000000000000001]}"#,
                Some("/b/1"),
            ),
            ("0.12345678901234567890", None),
            ("25000000000000000001e2", None),
        ] {
            let found = unfit(json).map(|unfit| unfit.pointer);
            assert_eq!(found.as_deref(), place, "{json}");
        }
    }

    proptest! {
        #[test]
        fn without_blanks_the_text_says_the_same(
            texts in prop::collection::vec(r#"[a \\"\t{}\[\]:,é]{0,8}"#, 1..6),
            whole in 0..u128::MAX,
        ) {
            let mut written = serde_json::to_string_pretty(&texts).expect("JSON");
            written.insert_str(1, &format!(" {whole} , "));
            let short = compact(&written);
            let mut expected = serde_json::to_string(&texts).expect("JSON");
            expected.insert_str(1, &format!("{whole},"));
            prop_assert_eq!(&short, &expected);
            let read: Value = serde_json::from_str(&short).expect("JSON");
            prop_assert_eq!(&read[texts.len()], &Value::String(texts[texts.len() - 1].clone()));
        }
    }
}
