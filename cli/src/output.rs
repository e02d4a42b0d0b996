//! Writes data to stdout and everything else to stderr.

mod when;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use mainspring_runtime::SystemClock;
use mainspring_shared::time::{Clock, Timestamp};
use serde_json::Value;

use crate::args::Format;
use crate::failure::{Exit, Failure};

/// Writes text to stdout as it is. If the reader has closed the pipe, it fails without a message.
pub(crate) fn raw(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// The same for bytes that need not be text.
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

/// Writes a message that is not data to stderr.
pub(crate) fn note(text: &str) {
    // If stderr is closed there is nobody to report to.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Shows the warnings in a server's response.
pub(crate) fn warnings(made: &Value) {
    for warning in made["warnings"].as_array().into_iter().flatten() {
        if let (Some(at), Some(detail)) = (warning["pointer"].as_str(), warning["detail"].as_str())
        {
            note(&harmless(&format!("warning: agent{at}: {detail}")));
        }
    }
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Width of the terminal in characters, if stdout is one.
pub(crate) fn width() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns))
}

/// Height of the terminal in lines, if stdout is one.
pub(crate) fn height() -> Option<usize> {
    let (rows, _) = console::Term::stdout().size_checked()?;
    Some(usize::from(rows))
}

/// Untrusted text made safe to show: a terminal obeys control characters, so all of them are
/// removed except line breaks and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

/// A column: its header and the path of its value.
pub(crate) type Column = (&'static str, &'static str);

/// Prints a list of objects. A table shows times relative to now; JSON shows them unchanged.
pub(crate) fn list(format: Format, columns: &[Column], rows: &[Value]) -> Result<(), Failure> {
    match format {
        Format::Json => line(&pretty(&Value::Array(rows.to_vec()))),
        Format::Jsonl => rows.iter().try_for_each(|row| line(&compact(row))),
        Format::Table => {
            line(&table(columns, rows))?;
            if rows.is_empty() {
                note("(nothing)");
            }
            Ok(())
        }
    }
}

/// A list of objects as a table with a header. Nothing in it is obeyed by a terminal.
pub(crate) fn table(columns: &[Column], rows: &[Value]) -> String {
    let mut table = plain_table();
    table.set_header(columns.iter().map(|(head, _)| *head));
    let now = now();
    for row in rows {
        table.add_row(columns.iter().map(|(_, path)| cell(row, path, now)));
    }
    trimmed(&table)
}

/// One object as a line of its own, without a header.
pub(crate) fn words(columns: &[Column], row: &Value) -> String {
    let now = now();
    let cells = columns.iter().map(|(_, path)| cell(row, path, now));
    cells.collect::<Vec<_>>().join("  ")
}

/// Prints one object; as a table, one line per member.
pub(crate) fn object(format: Format, value: &Value) -> Result<(), Failure> {
    match format {
        Format::Json => line(&pretty(value)),
        Format::Jsonl => line(&compact(value)),
        Format::Table => {
            let mut table = plain_table();
            let now = now();
            for (name, member) in value.as_object().into_iter().flatten() {
                if !member.is_null() {
                    table.add_row([name.clone(), told(name, member, now)]);
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

/// The time of this machine's clock, which is accurate enough for relative times.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}

/// A member of an object that is shown as a whole.
fn told(name: &str, member: &Value, now: Timestamp) -> String {
    let shown = show(member);
    match when::relative(member, now).filter(|_| when::is_time(name)) {
        Some(relative) => format!("{shown} ({relative})"),
        None => shown,
    }
}

fn cell(row: &Value, path: &str, now: Timestamp) -> String {
    // One line per row, of a reasonable width.
    let found = path.split('.').fold(row, |value, name| match value {
        // In a list, the name is an item's index.
        Value::Array(_) => name.parse().map_or(&Value::Null, |n: usize| &value[n]),
        _ => &value[name],
    });
    // `next` is the list of a timer's next fire times.
    let of_time = when::is_time(path) || path.starts_with("next.");
    let relative = when::relative(found, now).filter(|_| of_time);
    let text = relative.unwrap_or_else(|| show(found));
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
        // JSON escapes only some control characters.
        other => harmless(&other.to_string()),
    }
}

fn pretty(value: &Value) -> String {
    escaped(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// JSON on one line.
pub(crate) fn compact(value: &Value) -> String {
    escaped(&value.to_string())
}

/// The same JSON without the control characters that it allows in strings, which a terminal may obey.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() && c != '\n' {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text
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
    fn json_says_the_same_without_what_a_terminal_obeys() {
        let value = json!({ "a": "b\u{9b}2J\u{7f}\u{1b}c\n" });
        for text in [pretty(&value), compact(&value)] {
            let obeyed = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(obeyed, None, "{text}");
            let read: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(read, value);
        }
        assert_eq!(show(&value), r#"{"a":"b2J\u001bc\n"}"#);
    }

    #[test]
    fn people_are_told_times_from_now_on() {
        let now = Timestamp(1_700_000_000_000);
        let row = json!({
            "created_at": now.after(std::time::Duration::from_mins(5)),
            "next": [Timestamp(now.0 - 30_000)],
            "name": Timestamp(now.0).to_string(),
        });
        assert_eq!(cell(&row, "created_at", now), "in 5m");
        assert_eq!(cell(&row, "next.0", now), "30s ago");
        assert_eq!(cell(&row, "name", now), Timestamp(now.0).to_string());
        let whole = told("created_at", &row["created_at"], now);
        assert_eq!(whole, "2023-11-14T22:18:20.000Z (in 5m)");
    }

    #[test]
    fn a_cell_is_one_line_of_a_bearable_width() {
        let cell = |row: &Value, path: &str| cell(row, path, Timestamp(0));
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
