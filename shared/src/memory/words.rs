//! The words by which entries are found.
//!
//! Every store indexes the words that this module extracts from a text, and searches its index for
//! the words of the query, so that the results do not depend on a database's parser. A word is
//! lower case and without a plural `s`; runs of Chinese, Japanese and Korean are split into pairs
//! of characters.

use std::collections::BTreeSet;

use super::namespace::Namespace;
use crate::id::TenantId;

/// Maximum length of a word in characters; the rest is cut off.
const WORD_CHARS_MAX: usize = 40;

/// Shorter words are padded: MySQL's full-text indexes omit them.
const WORD_CHARS_MIN: usize = 3;

/// Maximum number of words of a query; more are ignored.
pub const QUERY_WORDS_MAX: usize = 64;

/// The distinct words of a text, sorted.
pub fn words(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut run = String::new();
    let mut pairs: Vec<char> = Vec::new();
    for c in text.chars().flat_map(char::to_lowercase).chain([' ']) {
        let ideograph = is_ideograph(c);
        if !ideograph && !pairs.is_empty() {
            pair(&mut found, &std::mem::take(&mut pairs));
        }
        if (ideograph || !c.is_alphanumeric()) && !run.is_empty() {
            found.insert(filled(stem(&std::mem::take(&mut run))));
        }
        if ideograph {
            pairs.push(c);
        } else if c.is_alphanumeric() && run.chars().count() < WORD_CHARS_MAX {
            run.push(c);
        }
    }
    found
}

/// The words of a query; only the first ones if there are too many.
pub fn query(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in text.split_whitespace() {
        for word in words(part) {
            if found.len() == QUERY_WORDS_MAX {
                return found;
            }
            found.insert(word);
        }
    }
    found
}

/// The words of an entry as one text for a full-text index, with a word for each level of its
/// namespace, by which an index restricts a query to a namespace.
pub fn indexed(tenant: TenantId, namespace: &Namespace, words: &BTreeSet<String>) -> String {
    let places = namespace.levels().map(|level| place(tenant, level));
    let all: Vec<String> = places.chain(words.iter().cloned()).collect();
    all.join(" ")
}

/// The word that stands for a namespace in a full-text index.
pub fn place(tenant: TenantId, namespace: &str) -> String {
    // FNV-1a. A collision of namespaces costs only time: stores compare the namespace itself, too.
    let bytes = tenant.0.to_le_bytes().into_iter().chain(namespace.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("ns{hash:016x}")
}

fn pair(found: &mut BTreeSet<String>, run: &[char]) {
    if let [alone] = run {
        found.insert(filled(alone.to_string()));
    }
    for two in run.windows(2) {
        found.insert(filled(two.iter().collect()));
    }
}

/// Removes the ending of an English plural, which does little harm to other languages.
fn stem(word: &str) -> String {
    let short = word.chars().count() <= 3;
    if short || !word.is_ascii() {
        return word.to_owned();
    }
    if let Some(base) = word.strip_suffix("ies")
        && !base.ends_with(['a', 'e'])
    {
        return format!("{base}y");
    }
    match word.strip_suffix('s') {
        Some(base) if !base.ends_with(['s', 'u']) => base.to_owned(),
        Some(_) | None => word.to_owned(),
    }
}

fn filled(mut word: String) -> String {
    for _ in word.chars().count()..WORD_CHARS_MIN {
        word.push('_');
    }
    word
}

/// Whether a character is of a script without spaces between words.
fn is_ideograph(c: char) -> bool {
    matches!(c,
        '\u{0e00}'..='\u{0eff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{323af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        words(text).into_iter().collect()
    }

    #[test]
    fn words_are_lower_case_and_singular() {
        assert_eq!(
            of("The dogs' bakeries, GLASS and a 3rd bus!"),
            ["3rd", "a__", "and", "bakery", "bus", "dog", "glass", "the"]
        );
        assert_eq!(
            of("snake_case C3PO \u{dc}ber"),
            ["c3po", "case", "snake", "\u{fc}ber"]
        );
        assert_eq!(of(" \n-"), Vec::<String>::new());
    }

    #[test]
    fn scripts_without_spaces_are_cut_into_pairs() {
        let text = "\u{6771}\u{4eac}\u{90fd} x";
        assert_eq!(of(text), ["x__", "\u{4eac}\u{90fd}_", "\u{6771}\u{4eac}_"]);
        assert_eq!(of("\u{732b}"), ["\u{732b}__"]);
    }

    #[test]
    fn long_words_and_long_questions_are_cut() {
        assert_eq!(of(&"x".repeat(500))[0].len(), WORD_CHARS_MAX);
        let long: Vec<String> = (0..500).map(|n| format!("w{n:03}")).collect();
        let asked = query(&long.join(" "));
        assert_eq!(asked.len(), QUERY_WORDS_MAX);
        assert!(asked.contains("w000") && !asked.contains("w499"));
    }

    #[test]
    fn an_entry_is_indexed_under_every_level_of_its_namespace() {
        let namespace = "user/42".parse().expect("a namespace");
        let text = indexed(TenantId(1), &namespace, &words("tea"));
        let parts: Vec<&str> = text.split(' ').collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[1], place(TenantId(1), "user/42"));
        assert_ne!(place(TenantId(1), "user"), place(TenantId(2), "user"));
    }
}
