//! Finds JSON values in the text of a model.

use serde_json::Value;

use crate::llm::json;

/// Maximum number of values examined in one text: prose has few brackets, and a flood is no answer.
const VALUES_MAX: usize = 16;

/// How many characters of the start of an unclosed value a fault shows.
const SHOWN_CHARS: usize = 40;

/// The JSON values of a text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The whole text if it is JSON; otherwise the contents of its code blocks; otherwise the
    /// values in its prose. Never a part of a broken value.
    pub(crate) values: Vec<Value>,
    /// What is wrong with the first piece that was meant to be JSON but is not.
    pub(crate) broken: Option<String>,
}

/// Finds the JSON values of a text.
pub(crate) fn find(text: &str) -> Found {
    let mut found = Found::default();
    if let Some(value) = json::parse(text) {
        found.values.push(value);
        return found;
    }
    for block in blocks(text) {
        match json::parse(block) {
            Some(value) => found.values.push(value),
            None => found.scan(block),
        }
    }
    if found.values.is_empty() && found.broken.is_none() {
        found.scan(text);
    }
    found.values.truncate(VALUES_MAX);
    found
}

impl Found {
    /// Adds the outermost objects and arrays of a text.
    fn scan(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find(['{', '[']) {
            rest = &rest[at..];
            if !begins_value(rest) {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = end_of(rest) else {
                // Values inside it are parts of it; taking one of them would return a fragment.
                let shown: String = rest.chars().take(SHOWN_CHARS).collect();
                self.breaks(format!("what begins with {shown:?} is not closed"));
                return;
            };
            let (value, more) = rest.split_at(end);
            match read(value) {
                Ok(value) => self.values.push(value),
                Err(fault) => self.breaks(fault),
            }
            rest = more;
        }
    }

    fn breaks(&mut self, fault: String) {
        self.broken.get_or_insert(fault);
    }
}

/// Parses a value; on failure tries again without comments and other common additions.
fn read(text: &str) -> Result<Value, String> {
    match json::parse(text).or_else(|| json::parse(&tidy(text))) {
        Some(value) => Ok(value),
        None => match serde_json::from_str::<Value>(text) {
            Ok(value) => Ok(value),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// The contents of fenced code blocks. A fence is at the start of a line, where no JSON string can
/// contain one. An unclosed block extends to the end.
fn blocks(text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begins = at;
        at += line.len();
        let line = line.trim();
        match open {
            None => open = fence(line).map(|fence| (fence, at)),
            Some((fence, from)) => {
                let same = line.trim_start_matches(&fence[..1]).is_empty();
                if same && line.len() >= fence.len() {
                    blocks.push(&text[from..begins]);
                    open = None;
                }
            }
        }
    }
    blocks.extend(open.map(|(_, from)| &text[from..]));
    blocks
}

fn fence(line: &str) -> Option<&str> {
    ["`", "~"].into_iter().find_map(|mark| {
        let after = line.trim_start_matches(mark);
        let fence = &line[..line.len() - after.len()];
        (fence.len() >= 3 && !after.contains(mark)).then_some(fence)
    })
}

/// Whether a bracket starts JSON rather than prose.
fn begins_value(text: &str) -> bool {
    let (bracket, rest) = text.split_at(1);
    let rest = rest.trim_start();
    let words = ["true", "false", "null", "True", "False", "None"];
    if rest.starts_with("//") || rest.starts_with("/*") {
        return true;
    }
    if bracket == "{" {
        return rest.starts_with(['"', '}']);
    }
    rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '"' | '-' | '{' | '[' | ']'))
        || words.iter().any(|word| rest.starts_with(word))
}

/// The end of the value that `text` begins with.
fn end_of(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    for (kind, token) in Tokens(text) {
        at += token.len();
        match kind {
            Kind::Open => depth += 1,
            Kind::Close if depth == 1 => return Some(at),
            Kind::Close => depth -= 1,
            Kind::Text | Kind::Comma | Kind::Comment | Kind::Word | Kind::Other => {}
        }
    }
    None
}

/// The value without comments and trailing commas, and with Python's literals replaced by JSON's.
/// Strings are left unchanged.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    let mut comma = None;
    for (kind, token) in Tokens(text) {
        match kind {
            Kind::Comma => {
                comma = Some(tidied.len());
                tidied.push(',');
                continue;
            }
            Kind::Comment => {
                tidied.push(' ');
                continue;
            }
            Kind::Other if token.trim().is_empty() => {
                tidied.push_str(token);
                continue;
            }
            Kind::Close => {
                if let Some(at) = comma {
                    tidied.remove(at);
                }
                tidied.push_str(token);
            }
            Kind::Word => tidied.push_str(match token {
                "True" => "true",
                "False" => "false",
                "None" => "null",
                word => word,
            }),
            Kind::Open | Kind::Text | Kind::Other => tidied.push_str(token),
        }
        comma = None;
    }
    tidied
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Close,
    Comma,
    /// A string including its quotes.
    Text,
    Comment,
    Word,
    /// Whitespace, or one other character.
    Other,
}

/// The tokens of a text; concatenated, they are the text.
struct Tokens<'t>(&'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = (Kind, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0;
        let first = text.chars().next()?;
        let run = |fits: fn(char) -> bool| text.find(|c| !fits(c)).unwrap_or(text.len());
        let (kind, len) = match first {
            '{' | '[' => (Kind::Open, 1),
            '}' | ']' => (Kind::Close, 1),
            ',' => (Kind::Comma, 1),
            '"' => (Kind::Text, string(text)),
            '/' if text.starts_with("//") => (Kind::Comment, text.find('\n').unwrap_or(text.len())),
            '/' if text.starts_with("/*") => {
                let end = text[2..].find("*/").map(|at| at + 4);
                (Kind::Comment, end.unwrap_or(text.len()))
            }
            c if c.is_alphanumeric() => (Kind::Word, run(char::is_alphanumeric)),
            c if c.is_whitespace() => (Kind::Other, run(char::is_whitespace)),
            c => (Kind::Other, c.len_utf8()),
        };
        let (token, rest) = text.split_at(len);
        self.0 = rest;
        Some((kind, token))
    }
}

/// The length of the string that `text` begins with; all of it if it is unclosed.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Vec<Value> {
        find(text).values
    }

    #[test]
    fn the_whole_text_is_taken_where_it_is_json() {
        for (text, value) in [
            (" {\"a\": [1, \"}\"]}\n", json!({"a": [1, "}"]})),
            ("[1, {\"b\": 2}]", json!([1, {"b": 2}])),
            ("42", json!(42)),
            ("-1.5", json!(-1.5)),
            ("\"{not an object}\"", json!("{not an object}")),
            ("null", json!(null)),
            ("true", json!(true)),
        ] {
            assert_eq!(values(text), [value], "{text}");
        }
    }

    #[test]
    fn code_blocks_come_before_prose() {
        let object = json!({"a": "```\nx\n```"});
        for text in [
            "Here:\n```json\n{\"a\": \"```\\nx\\n```\"}\n```\nDone {\"b\": 1}.",
            "```\n{\"a\": \"```\\nx\\n```\"}\n```",
            "  ~~~~ JSON5\n{\"a\": \"```\\nx\\n```\",}\n~~~\n~~~~",
            "```json\nThe answer: {\"a\": \"```\\nx\\n```\"}",
        ] {
            assert_eq!(values(text), std::slice::from_ref(&object), "{text}");
        }
        assert_eq!(values("It is\n```\n7\n```"), [json!(7)]);
        assert_eq!(values("```json {\"a\": 1}```"), [json!({"a": 1})]);
        let two = "```\n{\"a\": 1}\n```\nor\n```\n{\"a\": 2}\n```";
        assert_eq!(values(two), [json!({"a": 1}), json!({"a": 2})]);
    }

    #[test]
    fn prose_around_a_value_is_left_out() {
        for text in [
            "{\"a\": 1} I hope this helps :-}",
            "The 5\" \"disk: {\"a\": 1}",
            "Use {braces} and [links](http://x) \" so: {\"a\": 1}, thanks to \"you",
            "don't worry {\n  // one {\n  \"a\": 1, /* \" */\n}",
        ] {
            assert_eq!(values(text), [json!({"a": 1})], "{text}");
        }
        assert_eq!(
            values("As in [1]: {\"a\": 1}"),
            [json!([1]), json!({"a": 1})]
        );
        assert_eq!(values("So [True, None,]!"), [json!([true, null])]);
    }

    #[test]
    fn strings_are_never_edited() {
        let text = r#"so: {"a": "x, ] // \" {True,} /*", "True": [1,],}"#;
        assert_eq!(
            values(text),
            [json!({"a": "x, ] // \" {True,} /*", "True": [1]})]
        );
    }

    #[test]
    fn what_is_broken_is_said_and_nothing_inside_it_taken() {
        for (text, part) in [
            (r#"{"items": [{"a": 1}, {"a": 2}"#, "not closed"),
            (r#"so {"a": {"b": 1}, oops}"#, "column 17"),
            ("```\n{\"a\" 1}\n```\n{\"a\": 1}", "expected `:`"),
            (r#"{"a": "cut o"#, "not closed"),
            ("{\"a\": \"two\nlines\"}", "control character"),
            ("[1,,2]", "expected value"),
        ] {
            let found = find(text);
            assert_eq!(found.values, Vec::<Value>::new(), "{text}");
            let broken = found.broken.expect("broken");
            assert!(broken.contains(part), "{text}: {broken}");
        }
    }

    #[test]
    fn prose_alone_has_neither_values_nor_faults() {
        for text in [
            "",
            "I cannot say.",
            "use {x} or [y]",
            "the answer is 42",
            "{ x }",
        ] {
            assert_eq!(find(text), Found::default(), "{text}");
        }
    }

    #[test]
    fn a_flood_of_brackets_is_read_in_one_pass() {
        for text in [
            "{[".repeat(200_000),
            "[]".repeat(200_000),
            "{\"".repeat(200_000),
        ] {
            assert!(find(&text).values.len() <= VALUES_MAX);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"(\{|\}|\[|\]|"|\\|,|/|\*|`|~|a|é|1|\n| |True){0,40}"#) {
            let _ = find(&text);
            let joined: String = Tokens(&text).map(|(_, token)| token).collect();
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn a_value_in_prose_is_read_as_it_is(inner in r#"[a-z{}\[\],/"\\é `\n]{0,20}"#) {
            let value = json!({"a": [inner, {"b": null}]});
            let found = find(&format!("Here \"it is:\n{value}\nIs it {{good}}?"));
            prop_assert_eq!(found.values, vec![value]);
        }
    }
}
