//! Words for people about JSON that could not be read.
//!
//! The errors of serde name Rust's types. Whoever shows one to someone outside says it in the words of JSON instead.

use crate::words::nearest;

/// How many known names a message lists.
const NAMED_MAX: usize = 30;

/// What is wrong with a value that could not be read, from the text of serde's error. A text that is none of serde's
/// own is returned as it is, without its line and column.
pub fn plain(error: &str) -> String {
    let said = match error.rsplit_once(" at line ") {
        Some((said, place)) if place.contains(" column ") => said,
        Some(_) | None => error,
    };
    for rule in [wrong, length, variant, field] {
        if let Some(words) = rule(said) {
            return words;
        }
    }
    match said {
        "number out of range" => "is a number beyond all that can be read".to_owned(),
        _ if said.starts_with("data did not match any variant") => {
            "has none of the possible forms".to_owned()
        }
        _ => said.to_owned(),
    }
}

/// A name that is none of the known ones: what was probably meant, else all of them.
pub fn instead<'n>(wrong: &str, known: impl Iterator<Item = &'n str> + Clone) -> Option<String> {
    let extends = |name: &&str| name.split('_').any(|word| word == wrong);
    let near = nearest(wrong, known.clone());
    if let Some(near) = near.or_else(|| known.clone().find(extends)) {
        return Some(format!("did you mean {near:?}?"));
    }
    let count = known.clone().count();
    if count == 0 {
        return None;
    }
    let more = if count > NAMED_MAX { ", …" } else { "" };
    let names: Vec<_> = known.take(NAMED_MAX).collect();
    Some(format!("there are: {}{more}", names.join(", ")))
}

/// `invalid type: …, expected …` and `invalid value: …, expected …`.
fn wrong(said: &str) -> Option<String> {
    let kinds = ["invalid type: ", "invalid value: "];
    let rest = kinds.iter().find_map(|kind| said.strip_prefix(kind))?;
    let (found, expected) = rest.split_once(", expected ")?;
    Some(format!(
        "must be {}, not {}",
        wanted(expected),
        given(found)
    ))
}

/// `invalid length 3, expected …`.
fn length(said: &str) -> Option<String> {
    let rest = said.strip_prefix("invalid length ")?;
    let (count, expected) = rest.split_once(", expected ")?;
    Some(format!(
        "has {count} elements, but must be {}",
        wanted(expected)
    ))
}

/// ``unknown variant `x`, expected one of `a`, `b` ``.
fn variant(said: &str) -> Option<String> {
    let rest = said.strip_prefix("unknown variant `")?;
    let (wrong, known) = rest.split_once("`, ")?;
    let known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
    let near = nearest(wrong, known.iter().copied());
    let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
    let quoted: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
    let known = match quoted.as_slice() {
        [] => return Some(format!("must not be {wrong:?}")),
        [one] => one.clone(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    };
    Some(format!("must be {known}, not {wrong:?}{near}"))
}

/// ``unknown field `x`, expected …``, ``missing field `x` `` and ``duplicate field `x` ``. The caller's place names the
/// member.
fn field(said: &str) -> Option<String> {
    if let Some(rest) = said.strip_prefix("unknown field `") {
        let (wrong, known) = rest.split_once('`')?;
        let known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
        let instead = instead(wrong, known.iter().copied());
        let instead = instead.map_or(String::new(), |instead| format!(": {instead}"));
        return Some(format!("{UNKNOWN}{instead}"));
    }
    let is = |prefix: &str| said.starts_with(prefix) && said.ends_with('`');
    if is("missing field `") {
        return Some("is missing".to_owned());
    }
    is("duplicate field `").then(|| "is given twice".to_owned())
}

/// What is said of a member that is not known. It may be followed by `: ` and what was probably meant.
pub const UNKNOWN: &str = "is an unknown field";

/// What was expected, in words of JSON.
fn wanted(expected: &str) -> String {
    let plain = match expected {
        "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number of 0 or more",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" | "a character" => "a text",
        "a sequence" | "a tuple" => "a list",
        "a map" => "an object",
        "unit" => "null",
        "a variant identifier" | "variant identifier" | "variant of enum" => "a name",
        "any valid JSON value" => "JSON",
        _ => return structure(expected),
    };
    plain.to_owned()
}

/// Expectations that name a type.
fn structure(expected: &str) -> String {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| expected.starts_with(prefix));
    if begins(&["a nonzero u"]) {
        return "a whole number of 1 or more".to_owned();
    }
    if begins(&["tuple struct ", "a tuple of ", "tuple "])
        || expected.contains("elements in sequence")
    {
        return "a list".to_owned();
    }
    if begins(&[
        "struct ",
        "internally tagged enum ",
        "adjacently tagged enum ",
    ]) {
        return "an object".to_owned();
    }
    if begins(&["enum ", "string or map"]) {
        return "a name, or an object".to_owned();
    }
    if begins(&["unit struct "]) {
        return "null".to_owned();
    }
    expected.to_owned()
}

/// What was found, in words of JSON.
fn given(found: &str) -> String {
    let value = || found.split('`').nth(1).unwrap_or_default();
    match found {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit value" | "Option value" => "null".to_owned(),
        _ if found.starts_with("string ") => format!("the text {}", &found["string ".len()..]),
        _ if found.starts_with("boolean ") => value().to_owned(),
        _ if found.starts_with("integer ") || found.starts_with("floating point ") => {
            format!("the number {}", value())
        }
        _ if found.starts_with("character ") => format!("the text {:?}", value()),
        _ => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are read")]
    struct Inner {
        usd: Option<f64>,
        tokens: Option<u32>,
        name: Option<String>,
        done: Option<bool>,
        list: Option<Vec<i64>>,
        members: Option<BTreeMap<String, String>>,
        kind: Option<Kind>,
        form: Option<Form>,
        pair: Option<(u8, u8)>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Safe,
        Once,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "type", rename_all = "lowercase")]
    #[expect(dead_code, reason = "only its errors are read")]
    enum Form {
        Url { url: String },
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors are read")]
    struct Outer {
        inner: Inner,
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_json() {
        for (json, words) in [
            (
                r#"{"inner": "0.5"}"#,
                r#"must be an object, not the text "0.5""#,
            ),
            (r#"{"inner": null}"#, "must be an object, not null"),
            ("{}", "is missing"),
            (
                r#"{"inner": {"usd": "0.2"}}"#,
                r#"must be a number, not the text "0.2""#,
            ),
            (
                r#"{"inner": {"tokens": -1}}"#,
                "must be a whole number from 0 to 4294967295, not the number -1",
            ),
            (
                r#"{"inner": {"tokens": 1.5}}"#,
                "must be a whole number from 0 to 4294967295, not the number 1.5",
            ),
            (
                r#"{"inner": {"name": {}}}"#,
                "must be a text, not an object",
            ),
            (
                r#"{"inner": {"done": "yes"}}"#,
                r#"must be true or false, not the text "yes""#,
            ),
            (
                r#"{"inner": {"list": {}}}"#,
                "must be a list, not an object",
            ),
            (
                r#"{"inner": {"members": []}}"#,
                "must be an object, not a list",
            ),
            (
                r#"{"inner": {"kind": "save"}}"#,
                r#"must be "safe" or "once", not "save"; did you mean "safe"?"#,
            ),
            (
                r#"{"inner": {"form": {"type": "file"}}}"#,
                r#"must be "url", not "file""#,
            ),
            (
                r#"{"inner": {"form": 1}}"#,
                "must be an object, not the number 1",
            ),
            (
                r#"{"inner": {"pair": [1]}}"#,
                "has 1 elements, but must be a list",
            ),
            (
                r#"{"inner": {"token": 1}}"#,
                r#"is an unknown field: did you mean "tokens"?"#,
            ),
            (r#"{"inner": {"usd": 1, "usd": 2}}"#, "is given twice"),
            (
                r#"{"inner": {"usd": 1e999}}"#,
                "is a number beyond all that can be read",
            ),
        ] {
            let error = serde_json::from_str::<Outer>(json).expect_err(json);
            assert_eq!(plain(&error.to_string()), words, "{json}: {error}");
        }
    }

    #[test]
    fn a_name_that_is_a_part_of_another_is_found() {
        let known = ["name", "system_prompt", "model"];
        let found = instead("system", known.into_iter());
        assert_eq!(found.as_deref(), Some("did you mean \"system_prompt\"?"));
        let none = instead("zebra", known.into_iter());
        assert_eq!(
            none.as_deref(),
            Some("there are: name, system_prompt, model")
        );
    }

    #[test]
    fn words_of_ours_stay_as_they_are() {
        let said = "a duration is a whole number and a unit";
        assert_eq!(plain(&format!("{said} at line 1 column 9")), said);
    }
}
