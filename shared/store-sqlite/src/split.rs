//! Splitting a text into its statements.

/// Splits one of this program's texts into statements, without their semicolons. A comment belongs
/// to the statement after it. Semicolons in comments or quotes do not end a statement. Triggers are
/// not supported.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let (mut start, mut is_empty) = (0, true);
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '-' if chars.peek().is_some_and(|(_, next)| *next == '-') => {
                while chars.next_if(|(_, next)| *next != '\n').is_some() {}
            }
            // A doubled quote ends one string and starts another.
            '\'' | '"' => {
                is_empty = false;
                while chars.next_if(|(_, next)| *next != char).is_some() {}
                chars.next();
            }
            ';' => {
                if !is_empty {
                    statements.push(text[start..at].trim());
                }
                (start, is_empty) = (at + 1, true);
            }
            _ => is_empty &= char.is_whitespace(),
        }
    }
    if !is_empty {
        statements.push(text[start..].trim());
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_end_statements_but_in_comments_and_quotes() {
        for (text, expected) in [
            ("", vec![]),
            (" ;\n; -- nothing; here\n", vec![]),
            ("SELECT 1", vec!["SELECT 1"]),
            ("BEGIN; SELECT $1;\n", vec!["BEGIN", "SELECT $1"]),
            (
                "-- one; or two\nSELECT ';', 'it''s; ', \"a;b\" - 1; -- the end\nSELECT 2 -- last;",
                vec![
                    "-- one; or two\nSELECT ';', 'it''s; ', \"a;b\" - 1",
                    "-- the end\nSELECT 2 -- last;",
                ],
            ),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }
}
