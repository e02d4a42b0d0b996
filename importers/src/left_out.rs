//! What of a source has no counterpart, by name.

use std::collections::BTreeMap;

/// The most names that are counted apart; the rest is counted together.
const NAMES_MAX: usize = 200;

/// Longest name that is kept, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Counts of what was left out or kept in another form, by name. Names may come from the source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut(BTreeMap<String, u64>);

impl LeftOut {
    pub(crate) fn add(&mut self, name: &str) {
        self.add_many(name, 1);
    }

    /// Counts several.
    pub fn add_many(&mut self, name: &str, count: u64) {
        if count == 0 {
            return;
        }
        let mut name: String = name.chars().take(NAME_CHARS_MAX).collect();
        if self.0.len() >= NAMES_MAX && !self.0.contains_key(&name) {
            "others".clone_into(&mut name);
        }
        *self.0.entry(name).or_default() += count;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.add_many(name, *count);
        }
    }

    /// The names with their counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_source_are_bounded_in_number_and_length() {
        let mut left = LeftOut::default();
        for n in 0..NAMES_MAX + 50 {
            left.add(&format!("name {n} {}", "x".repeat(1_000)));
        }
        assert_eq!(left.0.len(), NAMES_MAX + 1);
        assert_eq!(left.0["others"], 50);
        assert!(
            left.iter()
                .all(|(name, _)| name.chars().count() <= NAME_CHARS_MAX)
        );
    }
}
