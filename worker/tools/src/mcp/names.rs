//! Maps tool names, which servers choose freely, to names that every provider accepts.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

/// Maximum characters of a name that every provider accepts.
const NAME_CHARS_MAX: usize = 64;

/// Hex digits of the suffix that distinguishes two colliding names.
const SUFFIX_DIGITS: usize = 8;

/// Each remote name once, with the name that models see. The same set of remote names gives the
/// same pairs, in whatever order a server lists them: a name that is already portable is kept, and
/// of two that collide, the alphabetically later one gets a suffix derived from its own remote
/// name.
pub(super) fn portable<'a>(
    prefix: &str,
    remote: impl Iterator<Item = &'a str>,
) -> Vec<(&'a str, String)> {
    let remote: BTreeSet<&str> = remote.collect();
    let (kept, changed): (Vec<_>, Vec<_>) = remote
        .into_iter()
        .map(|remote| (remote, shortened(&cleaned(&format!("{prefix}{remote}")), 0)))
        .partition(|(remote, name)| name.strip_prefix(prefix) == Some(remote));
    let mut taken: BTreeSet<String> = kept.iter().map(|(_, name)| name.clone()).collect();
    let mut named = kept;
    for (remote, name) in changed {
        let name = if taken.contains(&name) {
            let digest = format!("{:x}", Sha256::digest(remote));
            let suffix = &digest[..SUFFIX_DIGITS];
            format!("{}_{suffix}", shortened(&name, SUFFIX_DIGITS + 1))
        } else {
            name
        };
        // Two remote names with the same digest could not be told apart, so only one is kept.
        if taken.insert(name.clone()) {
            named.push((remote, name));
        }
    }
    named.sort();
    named
}

fn cleaned(name: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(clean).collect();
    if name.is_empty() {
        "_".to_owned()
    } else {
        name
    }
}

/// Shortens an ASCII name to leave room for `room` more characters.
fn shortened(name: &str, room: usize) -> String {
    name[..name.len().min(NAME_CHARS_MAX - room)].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(prefix: &str, remote: &[&str]) -> Vec<(String, String)> {
        let named = portable(prefix, remote.iter().copied());
        named.into_iter().map(|(r, n)| (r.to_owned(), n)).collect()
    }

    fn name(prefix: &str, remote: &[&str], of: &str) -> String {
        let all = names(prefix, remote);
        all.into_iter().find(|(r, _)| r == of).expect(of).1
    }

    #[test]
    fn names_are_prefixed_cleaned_and_cut() {
        assert_eq!(name("fs_", &["read"], "read"), "fs_read");
        assert_eq!(name("", &["fs.read/all"], "fs.read/all"), "fs_read_all");
        assert_eq!(name("", &["söt"], "söt"), "s_t");
        assert_eq!(name("", &[""], ""), "_");
        let long = "x".repeat(100);
        assert_eq!(name("p_", &[&long], &long), format!("p_{}", "x".repeat(62)));
    }

    #[test]
    fn of_two_that_collide_the_portable_one_keeps_its_name() {
        let both = ["a.b", "a_b"];
        assert_eq!(name("", &both, "a_b"), "a_b");
        let other = name("", &both, "a.b");
        assert!(
            other.starts_with("a_b_") && other.len() == 4 + SUFFIX_DIGITS,
            "{other}"
        );
        assert_eq!(name("", &["a_b", "a.b", "a/b"], "a.b"), other);
        assert_ne!(name("", &["a_b", "a.b", "a/b"], "a/b"), other);
    }

    #[test]
    fn long_names_that_differ_at_the_end_are_told_apart() {
        let (one, two) = (
            format!("{}1", "x".repeat(90)),
            format!("{}2", "x".repeat(90)),
        );
        let both = [one.as_str(), two.as_str()];
        assert_eq!(name("", &both, &one), "x".repeat(64));
        let second = name("", &both, &two);
        assert!(
            second.len() == 64 && second.starts_with(&"x".repeat(55)),
            "{second}"
        );
    }

    proptest! {
        #[test]
        fn names_are_portable_unique_and_the_same_in_any_order(
            prefix in "[a-z_]{0,40}",
            mut remote in proptest::collection::vec("[a-c./ é]{0,6}|[a-b.]{60,70}", 0..12),
        ) {
            let listed: Vec<&str> = remote.iter().map(String::as_str).collect();
            let named = names(&prefix, &listed);
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            for (remote, name) in &named {
                prop_assert!((1..=64).contains(&name.len()) && name.chars().all(fits), "{remote:?}: {name:?}");
            }
            let distinct: BTreeSet<_> = named.iter().map(|(_, name)| name).collect();
            prop_assert_eq!(distinct.len(), named.len());
            let asked: BTreeSet<_> = listed.iter().collect();
            prop_assert_eq!(asked.len(), named.len());
            remote.reverse();
            let reversed: Vec<&str> = remote.iter().map(String::as_str).collect();
            prop_assert_eq!(names(&prefix, &reversed), named);
        }
    }
}
