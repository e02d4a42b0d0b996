//! What is left of content before it is told to a backend of traces: bounded, and without what looks like a key.

use serde_json::Value;

/// Characters of one text.
const TEXT_CHARS_MAX: usize = 2_000;

/// Items of one list.
const ITEMS_MAX: usize = 50;

/// Bytes of all of it.
const BYTES_MAX: usize = 64 << 10;

/// What stands for what is not told.
const HIDDEN: &str = "***";

/// What the names of members contain that hold secrets. `token` alone would hide counts.
const NAMES: [&str; 15] = [
    "api_key",
    "api-key",
    "apikey",
    "authorization",
    "bearer",
    "password",
    "passwd",
    "secret",
    "access_key",
    "private_key",
    "access_token",
    "refresh_token",
    "auth_token",
    "id_token",
    "cookie",
];

/// What keys begin with, and how long they are at least.
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

/// A value as JSON, bounded and without secrets. Of a list that is too long its end is kept.
pub(super) fn told(value: Value) -> String {
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

/// A value without secrets, its texts and lists bounded.
pub fn redacted(value: Value) -> Value {
    match value {
        Value::String(text) => cut(&scrubbed(&text), TEXT_CHARS_MAX).into(),
        Value::Array(mut items) => {
            let skipped = items.len().saturating_sub(ITEMS_MAX);
            items.drain(..skipped);
            items.into_iter().map(redacted).collect()
        }
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let lower = name.to_lowercase();
                let hides = NAMES.iter().any(|secret| lower.contains(secret));
                let value = if hides {
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

/// A text without its keys, and without what follows the word `Bearer` or stands for a password in a URL.
fn scrubbed(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut after_bearer = false;
    for piece in text.split_inclusive(is_separator) {
        let word = piece.trim_end_matches(is_separator);
        let end = &piece[word.len()..];
        if is_key(word) || (after_bearer && word.len() >= 8) {
            told.push_str(HIDDEN);
        } else {
            told.push_str(&without_password(word));
        }
        told.push_str(end);
        if !word.is_empty() {
            after_bearer = word.eq_ignore_ascii_case("bearer");
        }
    }
    told
}

fn is_separator(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '`' | ',' | ';' | '=' | '(' | ')' | '<' | '>' | '\\'
        )
}

fn is_key(word: &str) -> bool {
    let begins = |(prefix, least): &(&str, usize)| word.len() >= *least && word.starts_with(prefix);
    KEYS.iter().any(begins)
}

/// `scheme://user:password@host` without the password.
fn without_password(word: &str) -> String {
    let found = word.split_once("://").and_then(|(scheme, rest)| {
        let authority = rest.split(['/', '?', '#']).next()?;
        let (login, _) = authority.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        let host = &rest[login.len() + 1..];
        Some(format!("{scheme}://{user}:{HIDDEN}@{host}"))
    });
    found.unwrap_or_else(|| word.to_owned())
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
            "text": "use sk-proj-0123456789abcdef, or Bearer abcdefgh12345 at https://me:pw@a.example/x",
            "url": "postgres://u:hunter2@db/x",
        });
        let told = told(value);
        for secret in ["plain", "\"a\"", "0123456789", "abcdefgh", "pw@", "hunter2"] {
            assert!(!told.contains(secret), "{secret}: {told}");
        }
        for kept in [
            "\"input_tokens\":5",
            "use ***, or Bearer *** at",
            "https://me:***@a.example/x",
        ] {
            assert!(told.contains(kept), "{kept}: {told}");
        }
    }

    #[test]
    fn words_that_only_look_a_little_like_keys_stay() {
        for text in [
            "sk-",
            "ask-me",
            "the bearer of news",
            "eyJ",
            "a://b",
            "mail@a.example",
            "ünï çode",
        ] {
            assert_eq!(scrubbed(text), text);
        }
    }

    #[test]
    fn what_is_long_is_cut_and_says_so() {
        let text = told(json!("é".repeat(3_000)));
        assert!(
            text.ends_with("… [1000 more characters]\""),
            "{}",
            &text[text.len() - 60..]
        );
        let many: Vec<String> = (0..100)
            .map(|n| format!("{n}:{}", "x".repeat(5_000)))
            .collect();
        let text = told(json!(many));
        assert!(
            text.len() <= BYTES_MAX && text.contains("\"99:"),
            "its end is kept"
        );
    }
}
