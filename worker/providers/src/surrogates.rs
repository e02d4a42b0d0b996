//! Halves of surrogate pairs: JSON writes a character outside of the basic plane as two escapes, and some servers cut
//! their deltas between the two.
//!
//! A half becomes a character of its own, from the end of the last private plane, until the piece behind it is known.

use std::borrow::Cow;

use serde_json::Value;

/// The character for the half `\ud800`; that of any other half is as far behind it.
const FIRST: u32 = 0x0010_F800;

/// The first byte of all characters for halves.
const LEAD: u8 = 0xF4;

/// The JSON text with halves of pairs as characters.
pub(super) fn marked(text: &str) -> Cow<'_, str> {
    let mut marked = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let Some(unit) = escaped_unit(&text[at..]) else {
            // Another escape: skip the escaped character, which may itself be a backslash.
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let next = text.get(at + 6..).and_then(escaped_unit);
        if is_high(unit) && next.is_some_and(is_low) {
            at += 12;
            continue;
        }
        if is_high(unit) || is_low(unit) {
            marked.push_str(&text[kept..at]);
            marked.extend(mark(unit));
            kept = at + 6;
        }
        at += 6;
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    marked.push_str(&text[kept..]);
    Cow::Owned(marked)
}

/// Joins the first half that an earlier piece ended with to this piece, and replaces halves that have no other half.
/// Returns the piece, and the half that it ends with.
pub(super) fn joined(held: Option<u16>, piece: &str) -> (String, Option<u16>) {
    let mut text = String::with_capacity(piece.len() + 4);
    let mut high = held;
    for character in piece.chars() {
        let unit = half(character);
        match (high.take(), unit) {
            (Some(first), Some(second)) if is_low(second) => {
                text.push(pair(first, second));
                continue;
            }
            (Some(_), _) => text.push(char::REPLACEMENT_CHARACTER),
            (None, _) => {}
        }
        match unit {
            Some(unit) if is_high(unit) => high = Some(unit),
            Some(_) => text.push(char::REPLACEMENT_CHARACTER),
            None => text.push(character),
        }
    }
    (text, high)
}

/// Lets the text wait for the second half of a character. No text ends in this way by itself: the last code point is
/// no character.
pub(super) fn hold(text: &mut String, unit: u16) {
    text.extend(mark(unit));
    text.push(char::MAX);
}

/// The half that the text waits behind, which it ends with no more.
pub(super) fn take_held(text: &mut String) -> Option<u16> {
    let before = text.strip_suffix(char::MAX)?;
    let (at, last) = before.char_indices().next_back()?;
    let unit = half(last).filter(|unit| is_high(*unit))?;
    text.truncate(at);
    Some(unit)
}

/// The value with halves joined where they meet, and replaced where they do not.
pub(super) fn whole(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let (mut whole, half) = joined(None, &text);
            whole.extend(half.map(|_| char::REPLACEMENT_CHARACTER));
            Value::String(whole)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(whole).collect()),
        Value::Object(members) => {
            let members = members.into_iter();
            Value::Object(members.map(|(name, one)| (name, whole(one))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// Whether the text may contain characters for halves.
pub(super) fn may_hold(text: &str) -> bool {
    text.as_bytes().contains(&LEAD)
}

fn mark(unit: u16) -> Option<char> {
    char::from_u32(FIRST + (u32::from(unit) - 0xD800))
}

fn half(character: char) -> Option<u16> {
    let offset = u32::from(character).checked_sub(FIRST)?;
    u16::try_from(0xD800 + offset).ok()
}

fn pair(first: u16, second: u16) -> char {
    let code = 0x1_0000 + ((u32::from(first) - 0xD800) << 10) + (u32::from(second) - 0xDC00);
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn is_high(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> String {
        serde_json::from_str(&marked(json)).expect("it is JSON")
    }

    #[test]
    fn halves_in_two_pieces_are_one_character() {
        let (first, held) = joined(None, &read(r#""a\ud83d""#));
        assert_eq!((first.as_str(), held), ("a", Some(0xD83D)));
        let (second, held) = joined(held, &read(r#""\ude0bb""#));
        assert_eq!((second.as_str(), held), ("\u{1F60B}b", None));
    }

    #[test]
    fn a_half_without_the_other_is_replaced() {
        let (text, held) = joined(None, &read(r#""a\ude0b\ud83dc\\ud83d""#));
        assert_eq!((text.as_str(), held), ("a\u{fffd}\u{fffd}c\\ud83d", None));
        let (text, held) = joined(Some(0xD83D), "x");
        assert_eq!((text.as_str(), held), ("\u{fffd}x", None));
    }

    #[test]
    fn only_a_text_that_waits_gives_a_half_back() {
        let mut text = "a".to_owned();
        hold(&mut text, 0xD83D);
        assert_eq!(take_held(&mut text), Some(0xD83D));
        assert_eq!(take_held(&mut text), None);
        assert_eq!(text, "a");
        for other in ["", "\u{10FFFF}", "\u{10F83D}", "b\u{10FFFF}"] {
            let mut text = other.to_owned();
            assert_eq!((take_held(&mut text), text.as_str()), (None, other));
        }
    }

    #[test]
    fn whole_pairs_and_other_texts_stay_as_they_are() {
        for text in [r#""\ud83d\ude0b""#, r#""\\ud83d \u00e9""#, "\"\u{1F60B}\""] {
            assert!(matches!(marked(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
