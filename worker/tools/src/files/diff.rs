//! The diff of two texts, as shown to a model.

use std::time::Duration;

use similar::TextDiff;

use crate::files::text::cut;

/// Context lines around each change.
const CONTEXT_LINES: usize = 3;

/// Characters shown of a diff.
const CHARS_MAX: usize = 20_000;

/// How long to search for a minimal diff before settling for a larger one.
const TIME_MAX: Duration = Duration::from_millis(500);

/// The diff as unified hunks.
pub(crate) fn unified(path: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::configure().timeout(TIME_MAX).diff_lines(old, new);
    let text = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(path, path)
        .to_string();
    match cut(&text, CHARS_MAX) {
        (text, 0) => text.to_owned(),
        (text, more) => format!("{text}\n[… {more} more characters of changes]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_with_the_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = old.replace("5\n", "five\n");
        assert_eq!(
            unified("f", old, &new),
            "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
    }

    #[test]
    fn a_large_one_is_cut() {
        let (old, new) = ("a\n".repeat(40_000), "b\n".repeat(40_000));
        assert!(unified("f", &old, &new).ends_with("more characters of changes]"));
    }
}
