//! Finds and replaces a text in another whose line endings may differ.

use std::fmt::Write as _;

use crate::files::text::line_end;
use mainspring_worker::tool::ToolError;

/// Maximum number of lines reported for an ambiguous text.
const LINES_SAID_MAX: usize = 5;

/// Maximum number of places that are looked for to say that a text is ambiguous.
const PLACES_MAX: usize = 100;

/// Why nothing was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not occur; `alike` is the line of a text that only looks like it.
    Missing { alike: Option<usize> },
    /// It occurs more than once; the lines at which it starts, of the first [`PLACES_MAX`].
    Ambiguous { lines: Vec<usize> },
}

impl Fault {
    pub(crate) fn said_of(&self, given: &str) -> ToolError {
        ToolError::reply(match self {
            Self::Missing { alike: None } => format!("old_text is not in {given}"),
            Self::Missing { alike: Some(line) } => format!(
                "old_text is not in {given}, but at line {line} is a text that differs from it \
                 only in quotes, dashes or spaces: repeat it just as it is there"
            ),
            Self::Ambiguous { lines } => {
                let least = if lines.len() < PLACES_MAX {
                    ""
                } else {
                    "at least "
                };
                let mut said = format!(
                    "old_text is in {given} {least}{} times, at lines ",
                    lines.len()
                );
                for (n, line) in lines.iter().take(LINES_SAID_MAX).enumerate() {
                    let comma = if n == 0 { "" } else { ", " };
                    let _ = write!(said, "{comma}{line}");
                }
                if lines.len() > LINES_SAID_MAX {
                    said.push_str(", …");
                }
                said.push_str(": give more of the lines around it, or set replace_all");
                said
            }
        })
    }
}

/// Replaces `old` by `new` and returns the text and the number of replacements. LF and CRLF match
/// each other; lines that are not replaced keep their endings, new ones get the most common ending.
pub(crate) fn replace(
    text: &str,
    old: &str,
    new: &str,
    all: bool,
) -> Result<(String, usize), Fault> {
    let plain = Plain::of(text);
    let old = old.replace("\r\n", "\n");
    let places: Vec<usize> = if all {
        plain.text.match_indices(&old).map(|(at, _)| at).collect()
    } else {
        every(&plain.text, &old)
    };
    if places.is_empty() {
        let alike = alike(&plain.text, &old);
        return Err(Fault::Missing { alike });
    }
    if !all && places.len() > 1 {
        let lines = places.iter().map(|at| line_of(&plain.text, *at)).collect();
        return Err(Fault::Ambiguous { lines });
    }
    let new = new.replace("\r\n", "\n").replace('\n', line_end(text));
    let mut result = String::with_capacity(text.len() + places.len() * new.len());
    let mut kept = 0;
    for at in &places {
        result.push_str(&text[kept..plain.origin(*at)]);
        result.push_str(&new);
        kept = plain.origin(at + old.len());
    }
    result.push_str(&text[kept..]);
    Ok((result, places.len()))
}

/// A text normalized to LF, with a mapping back to the original.
#[derive(Debug)]
struct Plain {
    text: String,
    /// The positions in `text` where a CR was removed, in order.
    left_out: Vec<usize>,
}

impl Plain {
    fn of(text: &str) -> Self {
        let mut plain = String::with_capacity(text.len());
        let mut left_out = Vec::new();
        let mut lines = text.split("\r\n").peekable();
        while let Some(line) = lines.next() {
            plain.push_str(line);
            if lines.peek().is_some() {
                left_out.push(plain.len());
                plain.push('\n');
            }
        }
        Self {
            text: plain,
            left_out,
        }
    }

    /// The position in the original of a position in the text; for a CRLF, before its CR.
    fn origin(&self, at: usize) -> usize {
        at + self.left_out.partition_point(|left_out| *left_out < at)
    }
}

/// The first positions where `old` starts, including overlapping occurrences. Only so many, since
/// each costs as much as `old` is long.
fn every(text: &str, old: &str) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    while places.len() < PLACES_MAX
        && let Some(at) = text[from..].find(old)
    {
        places.push(from + at);
        let first = text[from + at..].chars().next();
        from += at + first.map_or(1, char::len_utf8);
    }
    places
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The line of a text that differs only in how quotes, dashes and spaces are written.
fn alike(text: &str, old: &str) -> Option<usize> {
    // Simplifying does not change the line breaks.
    let text = simple(text);
    let at = text.find(&simple(old))?;
    Some(line_of(&text, at))
}

fn simple(text: &str) -> String {
    let chars = text.chars().map(|c| match c {
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\t' => ' ',
        c => c,
    });
    chars.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_place_is_replaced_and_nothing_else_changes() {
        let text = "a\r\nb\nc\r\nd\r\n";
        let replaced = replace(text, "b\nc", "x\ny", false);
        assert_eq!(replaced, Ok(("a\r\nx\r\ny\r\nd\r\n".to_owned(), 1)));
        // An `old` that ends within a CRLF removes all of it, or none.
        assert_eq!(replace("a\r\nb", "a\n", "", false), Ok(("b".to_owned(), 1)));
        assert_eq!(
            replace("a\r\nb", "a", "", false),
            Ok(("\r\nb".to_owned(), 1))
        );
    }

    #[test]
    fn more_than_one_place_is_an_error_unless_all_are_meant() {
        let text = "x\nabab ab\nab\n";
        assert_eq!(
            replace(text, "ab", "c", false),
            Err(Fault::Ambiguous {
                lines: vec![2, 2, 2, 3]
            })
        );
        assert_eq!(
            replace(text, "ab", "c", true),
            Ok(("x\ncc c\nc\n".to_owned(), 4))
        );
        // Overlapping occurrences are ambiguous, too.
        assert!(matches!(
            replace("aaa", "aa", "b", false),
            Err(Fault::Ambiguous { .. })
        ));
    }

    #[test]
    fn a_text_that_is_nearly_everywhere_is_looked_for_some_times_only() {
        let text = "a\n".repeat(200_000);
        let old = "a\n".repeat(100_000);
        let Err(Fault::Ambiguous { lines }) = replace(&text, &old, "", false) else {
            panic!("it is ambiguous");
        };
        assert_eq!(lines.len(), PLACES_MAX);
        let said = format!("{:?}", Fault::Ambiguous { lines }.said_of("f"));
        assert!(said.contains("at least 100 times"), "{said}");
    }

    #[test]
    fn a_text_that_only_looks_the_same_is_pointed_at() {
        let fault = replace("one\nsay \u{201c}hi\u{201d}\n", "say \"hi\"", "", false);
        assert_eq!(fault, Err(Fault::Missing { alike: Some(2) }));
        let fault = replace("字\n字\u{3000}字", "字 字", "", false);
        assert_eq!(fault, Err(Fault::Missing { alike: Some(2) }));
        let fault = replace("one", "two", "", false);
        assert_eq!(fault, Err(Fault::Missing { alike: None }));
    }

    proptest! {
        #[test]
        fn what_is_around_stays_byte_for_byte(
            before in "[a字\r\n]{0,12}",
            old in "[xy\n]{1,6}",
            after in "[a字\r\n]{0,12}",
        ) {
            prop_assume!(!before.ends_with('\r') && old.contains(['x', 'y']));
            let text = format!("{before}{old}{after}");
            let Ok((result, 1)) = replace(&text, &old, "<>", false) else {
                // Surrounding newlines may make it ambiguous; then nothing was changed.
                return Ok(());
            };
            prop_assert_eq!(result, format!("{before}<>{after}"));
        }
    }
}
