//! What refusals mean, as data.

use std::sync::LazyLock;

use serde::Deserialize;

use super::refusal::Refusal;

/// The meanings, in the order in which they are tried.
const BUILT_IN: &str = include_str!("../refusals.toml");

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let table: Table = toml::from_str(BUILT_IN).expect("a test reads each entry");
    table.meaning
});

/// What a refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Meaning {
    /// The conversation does not fit into the model's window.
    Overflow,
    /// A filter declines the input.
    Filtered,
    /// The account's money is exhausted.
    Unpaid,
    /// Too many requests or tokens for now.
    Throttled,
    /// The limit of a day or a longer time is reached.
    Daily,
    /// The provider has no room at the moment.
    Busy,
    /// The model's answer was no good.
    Sample,
    /// The key is not accepted.
    Key,
    /// The provider does not have the model.
    Gone,
    /// None of the others.
    Part,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    meaning: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    means: Meaning,
    #[serde(default)]
    words: Vec<String>,
    #[serde(default)]
    and: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    code: Vec<String>,
    #[serde(default)]
    param: Vec<String>,
    #[serde(default)]
    status: Vec<u16>,
    #[serde(default)]
    host: Vec<String>,
    /// The vendors whose own it is, wherever the operator names them.
    #[serde(default)]
    vendor: Vec<String>,
    #[expect(dead_code, reason = "for whoever checks whether it still holds")]
    source: String,
    #[expect(dead_code, reason = "for whoever checks whether it still holds")]
    date: String,
}

impl Entry {
    fn holds(&self, status: Option<u16>, refusal: &Refusal) -> bool {
        let of_status = match status {
            None => self.status.is_empty(),
            Some(status) if self.status.is_empty() => (400..500).contains(&status),
            Some(status) => self.status.contains(&status),
        };
        let any = |words: &[String]| words.is_empty() || refusal.has_any(words);
        let fits = |patterns: &[String], text: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| glob(pattern, text))
        };
        of_status
            && (fits(&self.host, refusal.host())
                || self.vendor.iter().any(|vendor| vendor == refusal.vendor()))
            && (self.code.is_empty() || self.code.iter().any(|code| refusal.has_code(code)))
            && fits(&self.param, refusal.param())
            && any(&self.words)
            && any(&self.and)
            && !(refusal.has_any(&self.without))
    }
}

/// What a refusal with this status means; `None` if nobody knows. An error inside an answer has no
/// status.
pub(crate) fn meaning(status: Option<u16>, refusal: &Refusal) -> Option<Meaning> {
    // What was said without a status may belong to any of those that an entry lists.
    let tried = match status {
        Some(_) => vec![status],
        None => vec![None, Some(400), Some(404), Some(429)],
    };
    tried.into_iter().find_map(|status| {
        let entry = ENTRIES.iter().find(|entry| entry.holds(status, refusal));
        entry.map(|entry| entry.means)
    })
}

/// Whether a text fits a pattern, in which `*` stands for anything.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len())
                .filter(|at| text.is_char_boundary(*at))
                .any(|at| glob(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_meaning_can_be_read_and_says_by_what_it_is_known() {
        assert!(ENTRIES.len() > 30);
        let mut table: toml::Table = BUILT_IN.parse().expect("TOML");
        let entries = table.remove("meaning").expect("entries");
        for entry in entries.as_array().expect("a list") {
            let text = entry.to_string();
            let known = ["words", "code", "status"].iter();
            assert!(
                known.into_iter().any(|by| entry.get(by).is_some()),
                "{text}"
            );
            let date = entry["date"].as_str().expect("a date");
            assert!(date.len() == 10 && date.starts_with("202"), "{text}");
            assert!(
                !entry["source"].as_str().expect("a source").is_empty(),
                "{text}"
            );
            for word in entry
                .get("words")
                .and_then(toml::Value::as_array)
                .into_iter()
                .flatten()
            {
                let word = word.as_str().expect("words");
                assert_eq!(word, word.to_ascii_lowercase());
            }
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fits) in [
            ("*z.ai", "api.z.ai", true),
            ("*z.ai", "api.z.ai.example", false),
            ("messages[*].content*", "messages[3].content[0].text", true),
            (
                "messages[*].content*",
                "messages[3].tool_calls[0].id",
                false,
            ),
            ("input", "input", true),
            ("a*b*c", "aXbYbc", true),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }
}
