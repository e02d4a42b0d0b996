//! Redaction of content before it is exported with traces: it is bounded, and anything that looks
//! like a key is removed.

use std::ops::Range;

use serde_json::Value;

/// Maximum number of characters of one text.
const TEXT_CHARS_MAX: usize = 2_000;

/// Maximum number of items of one list.
const ITEMS_MAX: usize = 50;

/// Maximum size of the whole value in bytes.
const BYTES_MAX: usize = 64 << 10;

/// The replacement for hidden text.
const HIDDEN: &str = "***";

/// Parts of names whose values are secrets, in lower case and without separators between words.
const NAMES: [&str; 13] = [
    "apikey",
    "authorization",
    "bearer",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "accesskey",
    "privatekey",
    "authtoken",
    "idtoken",
    "cookie",
];

/// The names of headers, whose values consist of several words.
const HEADERS: [&str; 2] = ["authorization", "cookie"];

/// Prefixes of keys, with their minimum length.
const KEYS: [(&str, usize); 15] = [
    ("sk-", 16),
    ("sk_", 16),
    ("pk_", 16),
    ("rk_", 16),
    ("whsec_", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("xox", 16),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 30),
    ("eyJ", 40),
];

/// A value as JSON, bounded and without secrets. A list that is too long loses items from its
/// start.
pub(super) fn redacted_json(value: Value) -> String {
    let mut value = redacted(value);
    loop {
        let text = value.to_string();
        if text.len() <= BYTES_MAX {
            return text;
        }
        match &mut value {
            Value::Array(items) if items.len() > 1 => {
                let half = items.len().div_ceil(2);
                items.drain(..half);
            }
            _ => return Value::from(cut(&text, TEXT_CHARS_MAX)).to_string(),
        }
    }
}

/// A value without secrets, with bounded texts and lists. Texts that are JSON are redacted as JSON.
pub fn redacted(value: Value) -> Value {
    match value {
        Value::String(text) => cut(&without_secrets(&text), TEXT_CHARS_MAX).into(),
        Value::Array(mut items) => {
            let skipped = items.len().saturating_sub(ITEMS_MAX);
            items.drain(..skipped);
            items.into_iter().map(redacted).collect()
        }
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let value = if hides(&name, value.is_number()) {
                    HIDDEN.into()
                } else {
                    redacted(value)
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        other => other,
    }
}

/// Whether the value under this name is a secret.
fn hides(name: &str, is_number: bool) -> bool {
    let name = plain(name);
    // A number under such a name is a token count.
    let is_token = name.ends_with("token") && !is_number;
    is_token || NAMES.iter().any(|secret| name.contains(secret))
}

/// Normalizes the spelling of a name: `apiKey`, `api-key` and `API_KEY` become the same.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

fn without_secrets(text: &str) -> String {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        return redacted(value).to_string();
    }
    scrubbed(&without_logins(text))
}

/// A text without the logins in its URLs: passwords, or keys given alone.
fn without_logins(text: &str) -> String {
    const SCHEME_END: &str = "://";
    let ends = |c: char| c.is_whitespace() || "/?#\"`<>\\".contains(c);
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SCHEME_END) {
        let (before, after) = rest.split_at(at + SCHEME_END.len());
        told.push_str(before);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        rest = match authority.rfind('@') {
            Some(login) => {
                told.push_str(HIDDEN);
                &after[login..]
            }
            None => after,
        };
    }
    told.push_str(rest);
    told
}

/// A text without keys, and without what follows the word `Bearer` or the name of a secret.
fn scrubbed(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_after_bearer = false;
    while let Some(at) = rest.find(is_of_word) {
        let (before, here) = rest.split_at(at);
        told.push_str(before);
        let end = here.find(|c| !is_of_word(c)).unwrap_or(here.len());
        let (word, after) = here.split_at(end);
        if is_key(word) || (is_after_bearer && run(here) >= 8) {
            told.push_str(HIDDEN);
            rest = &here[run(here).max(end)..];
            is_after_bearer = false;
            continue;
        }
        told.push_str(word);
        rest = after;
        if let Some(secret) = named(word, after) {
            told.push_str(&after[..secret.start]);
            told.push_str(HIDDEN);
            rest = &after[secret.end..];
        }
        is_after_bearer = word.eq_ignore_ascii_case("bearer");
    }
    told.push_str(rest);
    told
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_key(word: &str) -> bool {
    let begins = |(prefix, least): &(&str, usize)| word.len() >= *least && word.starts_with(prefix);
    KEYS.iter().any(begins)
}

/// The range of the secret in the text after this word, if the word names one: `NAME=…`, `"NAME":
/// "…"`, `<NAME>…`, `--NAME …`.
fn named(name: &str, after: &str) -> Option<Range<usize>> {
    let blank = [' ', '\t'];
    let closed = after.trim_start_matches(['"', '\'', '`', '\\', ']']);
    let spaced = closed.trim_start_matches(blank);
    let value = spaced.trim_start_matches([':', '=', '>']);
    let is_spaced = spaced.len() < closed.len();
    match &spaced[..spaced.len() - value.len()] {
        "" if name.starts_with("--") && is_spaced => {}
        ">" if !is_spaced => {}
        // A path in program source.
        "" | ">" | "::" => return None,
        _ => {}
    }
    if !hides(name, false) {
        return None;
    }
    let value = value.trim_start_matches(blank);
    let inner = value.trim_start_matches('\\');
    let (inner, length) = match inner.chars().next()? {
        quote @ ('"' | '\'' | '`') => {
            let escapes = value.len() - inner.len();
            (&inner[1..], quoted(&inner[1..], quote, escapes))
        }
        '[' | '{' => (inner, bracketed(inner)),
        _ if is_header(name) => (value, line(value)),
        _ => (value, run(value)),
    };
    let is_number = inner[..length].bytes().all(|byte| byte.is_ascii_digit());
    let from = after.len() - inner.len();
    (length > 0 && hides(name, is_number)).then_some(from..from + length)
}

fn is_header(name: &str) -> bool {
    let name = plain(name);
    HEADERS.iter().any(|header| name.contains(header))
}

/// Length of a quoted text: up to the closing quote, which is escaped at most as often as the
/// opening one.
fn quoted(text: &str, quote: char, escapes: usize) -> usize {
    for (at, _) in text.match_indices(quote) {
        let said = text[..at].trim_end_matches('\\').len();
        if at - said <= escapes {
            return said;
        }
    }
    text.len()
}

/// Length of a list or an object; the rest of the text if it is not closed.
fn bracketed(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' if depth <= 1 => return at + 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the rest of a line or quotation.
fn line(text: &str) -> usize {
    text.find(['\n', '\r', '"', '\'', '`', '\\'])
        .unwrap_or(text.len())
}

/// Length of an unquoted secret, without trailing punctuation.
fn run(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || "\"'`\\&<>".contains(c);
    let all = &text[..text.find(ends).unwrap_or(text.len())];
    all.trim_end_matches([',', ';', '.', ')', ']', '}', ':', '!', '?'])
        .len()
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => {
            let left_out = text[at..].chars().count();
            format!("{}… [{left_out} more characters]", &text[..at])
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_hidden_by_their_names_and_by_their_looks() {
        let value = json!({
            "API_KEY": "plain",
            "headers": [{"Authorization": ["a", "b"]}],
            "input_tokens": 5,
            "next_token": 6,
            "text": "use sk-proj-0123456789abcdef, or Bearer abcdefgh12345 at https://me:pw@a.example/x",
            "url": "postgres://u:hunter2@db/x",
        });
        let told = redacted_json(value);
        for secret in ["plain", "\"a\"", "0123456789", "abcdefgh", "pw@", "hunter2"] {
            assert!(!told.contains(secret), "{secret}: {told}");
        }
        for kept in [
            "\"input_tokens\":5",
            "\"next_token\":6",
            "use ***, or Bearer *** at",
            "https://***@a.example/x",
        ] {
            assert!(told.contains(kept), "{kept}: {told}");
        }
    }

    #[test]
    fn names_hide_members_however_they_are_written() {
        for name in [
            "apiKey",
            "api-key",
            "X-Api-Key",
            "accessKey",
            "secret_access_key",
            "privateKey",
            "accessToken",
            "refresh-token",
            "idToken",
            "token",
            "clientSecret",
            "dbPassword",
            "Set-Cookie",
        ] {
            assert_eq!(redacted(json!({ name: "x" })), json!({ name: "***" }));
        }
        for name in [
            "tokens",
            "maxTokens",
            "key",
            "author",
            "tokenizer",
            "primary_key",
        ] {
            assert_eq!(redacted(json!({ name: "x" })), json!({ name: "x" }));
        }
    }

    #[test]
    fn secrets_are_hidden_in_texts() {
        for (text, told) in [
            // Whatever joins the name and its value.
            ("api_key: x, y", "api_key: ***, y"),
            ("api-key=x y", "api-key=*** y"),
            ("API_KEY = x", "API_KEY = ***"),
            ("the apiKey => x.", "the apiKey => ***."),
            ("'accessToken': 'x', 'n': 1", "'accessToken': '***', 'n': 1"),
            ("password=\"two words\" n", "password=\"***\" n"),
            ("--client-secret x --all", "--client-secret *** --all"),
            ("<password>x</password>", "<password>***</password>"),
            (
                "env[\"DB_PASSWORD\"] = \"x\"",
                "env[\"DB_PASSWORD\"] = \"***\"",
            ),
            ("a?token=x&n=1", "a?token=***&n=1"),
            // Header values consist of several words.
            ("Authorization: Basic x y\nn: 1", "Authorization: ***\nn: 1"),
            ("-H 'Cookie: a=x; b=y' n", "-H 'Cookie: ***' n"),
            // JSON in a text, alone and with other text around it.
            (r#"{"apiKey":"x","n":1}"#, r#"{"apiKey":"***","n":1}"#),
            (r#"[{"\u0061pi_key":"x"}]"#, r#"[{"api_key":"***"}]"#),
            (
                r#"{"a":"{\"secret\":[\"]\",\"x\"]}"}"#,
                r#"{"a":"{\"secret\":\"***\"}"}"#,
            ),
            (
                r#"got {"apiKey":"x","n":1}"#,
                r#"got {"apiKey":"***","n":1}"#,
            ),
            (
                r#"got {"secret": ["x", {"y": 1}], "n": 1}"#,
                r#"got {"secret": ***, "n": 1}"#,
            ),
            (
                r#"got "{\"apiKey\":\"x\",\"n\":1}""#,
                r#"got "{\"apiKey\":\"***\",\"n\":1}""#,
            ),
            (
                r#"got {"password":"x\"y","n":1}"#,
                r#"got {"password":"***","n":1}"#,
            ),
            (r#"cut {"password":"x y"#, r#"cut {"password":"***"#),
            // Logins of URLs.
            ("https://x@a.example/n", "https://***@a.example/n"),
            ("https://x:@a.example", "https://***@a.example"),
            ("redis://:x@a.example:6379", "redis://***@a.example:6379"),
            ("postgres://u:x=y,z'@db/n", "postgres://***@db/n"),
            ("(a://x@b) c://d/@e", "(a://***@b) c://d/@e"),
            // Text that looks like a key, anywhere.
            ("https://a/sk-0123456789abcdef?n", "https://a/***"),
            ("Bearer x/y+z0123=, n", "Bearer ***, n"),
        ] {
            assert_eq!(redacted(json!(text)), json!(told));
            assert_eq!(redacted(json!(told)), json!(told), "once more");
        }
    }

    #[test]
    fn words_that_only_look_a_little_like_secrets_stay() {
        for text in [
            "sk-",
            "ask-me",
            "the bearer of news",
            "eyJ",
            "a://b",
            "mail@a.example",
            "ünï çode: é",
            "the password is secret",
            "use secret::Key;",
            "tokens: 5, token: 12, max_tokens=9",
            "{not JSON}: [1, 2",
            "password:",
        ] {
            assert_eq!(redacted(json!(text)), json!(text));
        }
    }

    #[test]
    fn what_is_long_is_cut_and_says_so() {
        let text = redacted_json(json!("é".repeat(3_000)));
        assert!(
            text.ends_with("… [1000 more characters]\""),
            "{}",
            &text[text.len() - 60..]
        );
        let many: Vec<String> = (0..100)
            .map(|n| format!("{n}:{}", "x".repeat(5_000)))
            .collect();
        let text = redacted_json(json!(many));
        assert!(
            text.len() <= BYTES_MAX && text.contains("\"99:"),
            "its end is kept"
        );
    }
}
