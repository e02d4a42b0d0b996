//! Lenient reading of JSON written by models.

use std::borrow::Cow;

use serde_json::Value;

pub use mainspring_shared::json::{clean, clean_value};

/// Parses JSON whose strings may contain lone surrogates, which become U+FFFD.
pub fn parse(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(_) => match without_lone_surrogates(text) {
            Cow::Owned(repaired) => serde_json::from_str(&repaired).ok(),
            Cow::Borrowed(_) => None,
        },
    }
}

/// Replaces `\uD800` to `\uDFFF` where the other half is missing.
fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let Some(unit) = escaped_unit(&text[at..]) else {
            // Another escape: skip the escaped character, which may itself be a backslash.
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let paired = (0xD800..0xDC00).contains(&unit)
            && escaped_unit(&text[at + 6..]).is_some_and(|low| (0xDC00..0xE000).contains(&low));
        if paired {
            at += 12;
            continue;
        }
        if (0xD800..0xE000).contains(&unit) {
            repaired.push_str(&text[kept..at]);
            repaired.push_str("\\ufffd");
            kept = at + 6;
        }
        at += 6;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    repaired.push_str(&text[kept..]);
    Cow::Owned(repaired)
}

fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn half_a_surrogate_pair_reads_as_the_replacement_character() {
        for (text, expected) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\ude00b""#, "\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\\ud83d \ud83dx""#, "\\ud83d \u{fffd}x"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
        ] {
            assert_eq!(parse(text), Some(json!(expected)), "{text}");
        }
        assert_eq!(parse(r#"{"a": \ud83d"#), None);
    }

    #[test]
    fn whole_numbers_have_one_form() {
        assert_eq!(
            clean_value(json!([1.0, 1e2, -0.0, 1.5, 1e30])).to_string(),
            "[1,100,0,1.5,1e+30]"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"(\\|u|d8|d|0|3|"|é|\{|x){0,30}"#) {
            let _ = parse(&text);
            let quoted = format!("\"{text}\"");
            let _ = parse(&quoted);
        }
    }
}
