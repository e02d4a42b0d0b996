//! Data on stdout, everything else on stderr.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::args::Format;
use crate::failure::{Exit, Failure};

/// Writes text to stdout as it is. Whoever reads it may have seen enough: that is no failure.
pub(crate) fn raw(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// The same for what need not be text.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::silent(Exit::Failure))
        }
        Err(error) => Err(Failure::new(Exit::Failure, format!("stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Writes a line to stdout.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    raw(&format!("{text}\n"))
}

/// Says something that is not data.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether someone looks at stdout.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Characters of a line where someone looks at stdout.
pub(crate) fn width() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns))
}

/// Text from elsewhere, safe to show: a terminal obeys control characters, so it gets none but
/// line breaks and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

/// A column: its head and where its value is found.
pub(crate) type Column = (&'static str, &'static str);

/// Prints a list of objects.
pub(crate) fn list(format: Format, columns: &[Column], rows: &[Value]) -> Result<(), Failure> {
    match format {
        Format::Json => line(&pretty(&Value::Array(rows.to_vec()))),
        Format::Jsonl => rows.iter().try_for_each(|row| line(&row.to_string())),
        Format::Table => {
            let mut table = plain_table();
            table.set_header(columns.iter().map(|(head, _)| *head));
            for row in rows {
                table.add_row(columns.iter().map(|(_, path)| cell(row, path)));
            }
            line(&trimmed(&table))?;
            if rows.is_empty() {
                note("(nothing)");
            }
            Ok(())
        }
    }
}

/// Prints one object; as a table, a line for each of its members.
pub(crate) fn object(format: Format, value: &Value) -> Result<(), Failure> {
    match format {
        Format::Json => line(&pretty(value)),
        Format::Jsonl => line(&value.to_string()),
        Format::Table => {
            let mut table = plain_table();
            for (name, member) in value.as_object().into_iter().flatten() {
                if !member.is_null() {
                    table.add_row([name.clone(), show(member)]);
                }
            }
            line(&trimmed(&table))
        }
    }
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn trimmed(table: &Table) -> String {
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

fn cell(row: &Value, path: &str) -> String {
    // One line per row, of a bearable width.
    let found = path.split('.').fold(row, |value, name| match value {
        // Of a list, the number of an item.
        Value::Array(_) => name.parse().map_or(&Value::Null, |n: usize| &value[n]),
        _ => &value[name],
    });
    let text = show(found);
    let text = text.replace(['\n', '\t'], " ");
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => harmless(text),
        other => other.to_string(),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        assert_eq!(
            harmless("a\u{1b}[2Jb\r\u{7}\tc\n\u{9b}31m"),
            "a[2Jb\tc\n31m"
        );
    }

    #[test]
    fn a_cell_is_one_line_of_a_bearable_width() {
        let row =
            json!({ "error": { "message": "é".repeat(80) + "\n" }, "n": 3, "next": ["soon"] });
        assert_eq!(cell(&row, "next.0"), "soon");
        assert_eq!(
            (cell(&row, "next.1"), cell(&row, "next.x")),
            ("-".into(), "-".into())
        );
        assert_eq!(cell(&row, "error.message"), format!("{}…", "é".repeat(60)));
        assert_eq!(cell(&row, "n"), "3");
        assert_eq!(cell(&row, "missing.member"), "-");
    }
}
