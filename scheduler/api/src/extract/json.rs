//! Parses JSON objects into types, and locates the fault in an invalid document.

use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::message::numbers;
use mainspring_shared::wording::plain;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::{BLOCKING_MIN_BYTES, run_blocking_if};

/// Parses a JSON object. The pointer to a fault begins with `at`.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8], at: &str) -> Result<T, Error> {
    // Serde would also read a struct from a list of its members' values, which nobody intends to
    // send.
    if json.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::invalid(at, "must be an object"));
    }
    run_blocking_if(json.len() > BLOCKING_MIN_BYTES, || {
        serde_json::from_slice(json).or_else(|error| {
            // Invalid JSON stays invalid however its numbers are written, so it is not rewritten.
            let whole = error.is_data().then(|| whole_numbers(json)).flatten();
            match whole {
                Some(json) => serde_json::from_slice(&json).map_err(|_| explain::<T>(&json, at)),
                None => Err(explain::<T>(json, at)),
            }
        })
    })
}

/// Refuses a whole number that reading would change.
pub(super) fn refuse_unfit(json: &[u8]) -> Result<(), Error> {
    let unfit = run_blocking_if(json.len() > BLOCKING_MIN_BYTES, || {
        std::str::from_utf8(json).ok().and_then(numbers::unfit)
    });
    unfit.map_or(Ok(()), |unfit| {
        let literal: String = unfit.literal.chars().take(100).collect();
        let detail = format!("the whole number {literal} does not fit 64 bits: write it as a text");
        Err(Error::invalid(unfit.pointer, detail))
    })
}

/// Rewrites numbers like `2.0` as `2`; none if there are none. JSON Schema treats both as integers,
/// but serde only accepts the second. This works without parsing, so that repeated members are
/// still refused, and changes the value of no number.
fn whole_numbers(json: &[u8]) -> Option<Vec<u8>> {
    if !json.contains(&b'.') {
        return None;
    }
    let mut whole = Vec::with_capacity(json.len());
    let mut rest = json;
    let (mut is_text, mut is_escaped) = (false, false);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if is_escaped {
            is_escaped = false;
        } else if is_text {
            is_escaped = byte == b'\\';
            is_text = byte != b'"';
        } else if byte == b'"' {
            is_text = true;
        } else if byte == b'.' {
            let zeros = behind.iter().take_while(|byte| **byte == b'0').count();
            let next = behind.get(zeros);
            let ends = !next.is_some_and(|next| matches!(next, b'0'..=b'9' | b'e' | b'E'));
            let is_number = whole.last().is_some_and(u8::is_ascii_digit);
            if zeros > 0 && ends && is_number {
                rest = &behind[zeros..];
                continue;
            }
        }
        whole.push(byte);
    }
    (whole.len() < json.len()).then_some(whole)
}

/// Parses again, more slowly, to locate the fault.
fn explain<T: DeserializeOwned>(json: &[u8], at: &str) -> Error {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut reader) else {
        let detail = "the body has trailing data after its JSON value";
        return Error::new(Code::RequestInvalid, detail);
    };
    let mut pointer = at.to_owned();
    for segment in error.path() {
        match segment {
            serde_path_to_error::Segment::Seq { index } => push(&mut pointer, &index.to_string()),
            serde_path_to_error::Segment::Map { key } => push(&mut pointer, key),
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => {}
        }
    }
    let inner = error.into_inner();
    let text = inner.to_string();
    let unread = inner.is_syntax() || inner.is_eof();
    if unread && serde_json::from_slice::<IgnoredAny>(json).is_err() {
        return Error::new(
            Code::RequestInvalid,
            format!("the body is not JSON: {text}"),
        );
    }
    if text.starts_with("recursion limit exceeded") {
        // Where the nesting begins is enough.
        let member = pointer[at.len()..].split('/').nth(1);
        return Error::too_deep(&match member {
            Some(member) => format!("{at}/{member}"),
            None => at.to_owned(),
        });
    }
    // A parser that expects a string and finds another type reports that there is no value.
    if unread && text.starts_with("expected value") {
        return Error::invalid(pointer, "has a value of another type");
    }
    for intro in ["unknown field `", "missing field `", "duplicate field `"] {
        let name = text
            .strip_prefix(intro)
            .and_then(|rest| rest.split('`').next());
        if let Some(name) = name
            && !pointer.ends_with(&format!("/{}", escaped(name)))
        {
            push(&mut pointer, name);
        }
    }
    // The error has a JSON pointer instead of line and column.
    Error::invalid(pointer, plain(&text))
}

/// Appends a member to a JSON pointer.
pub(crate) fn push(pointer: &mut String, member: &str) {
    pointer.push('/');
    pointer.push_str(&escaped(member));
}

fn escaped(member: &str) -> String {
    member.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_may_be_written_with_a_fraction_of_zeros() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Asked {
            n: u32,
            text: String,
            share: f64,
        }

        let asked = |json: &str| parse::<Asked>(json.as_bytes(), "");
        let expected = Asked {
            n: 2911,
            text: r#"1.0 "2.0" \ 3.0"#.into(),
            share: 0.5,
        };
        let json = r#"{"n": 2911.00, "text": "1.0 \"2.0\" \\ 3.0", "share": 0.5}"#;
        assert_eq!(asked(json), Ok(expected));
        for wrong in ["1.5", "1.05", "1.0e1", "1.", "-1.0", "\"1.0\""] {
            let json = format!(r#"{{"n": {wrong}, "text": "", "share": 1.0}}"#);
            assert!(asked(&json).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_long_name_is_refused_with_a_short_answer() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}

        let name = "ä".repeat(100_000);
        let refused = parse::<Nothing>(format!(r#"{{"{name}": 1}}"#).as_bytes(), "");
        let refused = format!("{:?}", refused.expect_err("there is no such member"));
        assert!(refused.contains("unknown field") && refused.len() < 20_000);
    }

    #[test]
    fn a_document_without_such_numbers_is_not_copied() {
        for json in ["{}", r#"{"n": 1.5, "text": "1.0"}"#, "1.0e2", "[.0]"] {
            assert_eq!(whole_numbers(json.as_bytes()), None, "{json}");
        }
    }
}
