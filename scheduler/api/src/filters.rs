//! Filters of lists that the database does not know: the rows are read, and those that do not fit left out.

use std::collections::BTreeMap;

use mainspring_shared::message::texts;
use mainspring_shared::send::SendRecord;
use serde_json::{Map, Value};

use crate::extract::FromText;

/// Bytes of an input or an answer, all parts together, in which a text is looked for.
const LOOKED_AT: usize = 64 * 1024;

/// A text to look for, whatever its case.
#[derive(Debug, Clone)]
pub(crate) struct Wanted(String);

impl FromText for Wanted {
    const EXPECTED: &'static str = "must have 1 to 200 bytes, and no null character";

    fn from_text(text: &str) -> Option<Self> {
        let fits = (1..=200).contains(&text.len()) && !text.contains('\0');
        fits.then(|| Self(text.to_lowercase()))
    }
}

impl Wanted {
    /// Whether a send's input or answer has it.
    pub(crate) fn is_in(&self, send: &SendRecord) -> bool {
        self.is_among(texts(&send.input))
            || self.is_among(send.output_text.iter().map(String::as_str))
    }

    fn is_among<'a>(&self, texts: impl Iterator<Item = &'a str>) -> bool {
        let mut left = LOOKED_AT;
        for text in texts {
            let begin = &text[..text.floor_char_boundary(left)];
            if begin.to_lowercase().contains(&self.0) {
                return true;
            }
            left -= begin.len();
            if begin.len() < text.len() || left == 0 {
                break;
            }
        }
        false
    }
}

/// Whether metadata have these members, with these texts.
pub(crate) fn has_all(
    metadata: Option<&Map<String, Value>>,
    wanted: &BTreeMap<String, String>,
) -> bool {
    let text_of = |name| metadata?.get(name)?.as_str();
    let mut wanted = wanted.iter();
    wanted.all(|(name, text)| text_of(name) == Some(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_have_every_member_that_is_wanted() {
        let metadata = json!({ "team": "x", "kind": "y", "size": 1 });
        let has = |wanted: &[(&str, &str)]| {
            let wanted = wanted
                .iter()
                .map(|(name, text)| ((*name).into(), (*text).into()));
            has_all(metadata.as_object(), &wanted.collect())
        };
        assert!(has_all(None, &BTreeMap::new()));
        assert!(has(&[]) && has(&[("team", "x")]) && has(&[("team", "x"), ("kind", "y")]));
        assert!(!has(&[("team", "y")]) && !has(&[("size", "1")]) && !has(&[("other", "x")]));
    }

    #[test]
    fn a_text_is_looked_for_in_the_beginning_of_all_parts_together() {
        let wanted = Wanted::from_text("Needle").expect("fits");
        let half = "x".repeat(LOOKED_AT / 2);
        let is_among = |texts: &[&str]| wanted.is_among(texts.iter().copied());
        assert!(is_among(&["", "a NEEDLE"]) && is_among(&[&half, "needle"]));
        assert!(!is_among(&[&half, &half, "needle"]));
        assert!(!is_among(&[&format!("{half}{half}needle")]));
        assert!(!is_among(&[&format!("é{half}{half}"), "needle"]));
    }

    #[test]
    fn a_text_to_look_for_is_neither_empty_nor_long() {
        for bad in ["", "a\0", &"x".repeat(201)] {
            assert!(Wanted::from_text(bad).is_none(), "{bad:?}");
        }
        assert!(Wanted::from_text("x").is_some());
    }
}
