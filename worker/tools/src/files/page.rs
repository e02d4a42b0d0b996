//! A page of a text: a range of its lines, numbered.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read};

use crate::files::text::short_line;

/// Characters shown of a line; longer lines are not meant to be read.
const LINE_CHARS_MAX: usize = 2_000;

/// Bytes buffered of a line; enough for that many characters.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The requested page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The first line, from 1.
    pub(crate) first: usize,
    /// Maximum number of lines.
    pub(crate) lines: usize,
    /// Maximum number of characters in total.
    pub(crate) chars: usize,
    /// Maximum bytes to read to reach the first line.
    pub(crate) scan_bytes: u64,
}

/// Some lines of a text.
#[derive(Debug, Default)]
pub(crate) struct Page {
    body: String,
    /// Lines of the text read so far.
    lines: usize,
    /// Lines on the page.
    shown: usize,
    /// Whether the text was read to its end.
    ended: bool,
    /// Whether reading stopped before the first line was reached.
    too_far: bool,
    /// Number of replacement characters that stand for invalid UTF-8.
    broken: usize,
}

/// The first bytes of a file.
pub(crate) fn sample(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut sample = Vec::new();
    file.take(8 << 10).read_to_end(&mut sample)?;
    Ok(sample)
}

impl Page {
    /// Reads a text up to the end of the page.
    pub(crate) fn read(text: impl Read, wanted: &Wanted) -> io::Result<Self> {
        let mut text = BufReader::with_capacity(64 << 10, text);
        let mut page = Self::default();
        let mut chars = 0;
        let mut scanned = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = next_line(&mut text, &mut line)?;
            if read == 0 {
                page.ended = true;
                return Ok(page);
            }
            scanned += read;
            if page.lines + 1 < wanted.first {
                page.lines += 1;
                if scanned > wanted.scan_bytes {
                    page.too_far = true;
                    return Ok(page);
                }
                continue;
            }
            if page.shown == wanted.lines {
                return Ok(page);
            }
            let shown = page.line(&line);
            chars += shown.chars().count();
            // Always show one line, or paging would never make progress.
            if chars > wanted.chars && page.shown > 0 {
                return Ok(page);
            }
            page.body.push_str(&shown);
            page.lines += 1;
            page.shown += 1;
        }
    }

    fn line(&mut self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        // Only an invalid sequence has a length; a character split by the cut of a long line has
        // none.
        if std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some()) {
            self.broken += text.matches(char::REPLACEMENT_CHARACTER).count();
        }
        let number = self.lines + 1;
        let mut text = text.trim_end_matches(['\n', '\r']);
        if number == 1 {
            text = text.trim_start_matches('\u{feff}');
        }
        format!("{number:6}|{}\n", short_line(text, LINE_CHARS_MAX))
    }

    /// The page, preceded by a line that describes it; an error if there is no page.
    pub(crate) fn show(self, given: &str, wanted: &Wanted) -> Result<String, String> {
        if self.too_far {
            return Err(format!(
                "line {} of {given} is more than {} bytes into the file; search it instead",
                wanted.first, wanted.scan_bytes
            ));
        }
        if self.ended && self.lines == 0 {
            return Ok(format!("{given} is empty"));
        }
        if self.shown == 0 {
            return Err(format!("{given} has only {} lines", self.lines));
        }
        let mut head = format!("{given}: lines {}-{}", wanted.first, self.lines);
        if self.ended {
            let _ = write!(head, " of {}", self.lines);
        } else {
            let _ = write!(head, "; continue with offset={}", self.lines + 1);
        }
        if self.broken > 0 {
            let _ = write!(head, " (not UTF-8: {} characters replaced)", self.broken);
        }
        Ok(format!("{head}\n{}", self.body))
    }
}

/// Reads the next line but keeps only its beginning; returns its length in bytes.
fn next_line(text: &mut impl io::BufRead, line: &mut Vec<u8>) -> io::Result<u64> {
    let mut read = text.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)? as u64;
    if read < LINE_BYTES_MAX || line.ends_with(b"\n") {
        return Ok(read);
    }
    loop {
        let held = text.fill_buf()?;
        let end = held.iter().position(|byte| *byte == b'\n');
        let (skip, done) = match end {
            Some(at) => (at + 1, true),
            None => (held.len(), held.is_empty()),
        };
        text.consume(skip);
        read += skip as u64;
        if done {
            return Ok(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted {
        first: 1,
        lines: 100,
        chars: 10_000,
        scan_bytes: 1 << 20,
    };

    fn show(text: &str, wanted: Wanted) -> Result<String, String> {
        let page = Page::read(text.as_bytes(), &wanted).expect("reads");
        page.show("f", &wanted)
    }

    #[test]
    fn lines_are_numbered_and_their_ends_are_not_shown() {
        let shown = show("\u{feff}a\r\nb\n\nd", ALL).expect("shows");
        assert_eq!(
            shown,
            "f: lines 1-4 of 4\n     1|a\n     2|b\n     3|\n     4|d\n"
        );
        assert_eq!(show("", ALL), Ok("f is empty".to_owned()));
    }

    #[test]
    fn pages_by_lines_and_by_characters_leave_no_line_out() {
        let lines: Vec<_> = (1..=50).map(|n| format!("line {n}\n")).collect();
        let text = lines.concat();
        for wanted in [Wanted { lines: 7, ..ALL }, Wanted { chars: 100, ..ALL }] {
            let (mut first, mut seen) = (1, String::new());
            for _ in 0..50 {
                let shown = show(&text, Wanted { first, ..wanted }).expect("shows");
                let (head, body) = shown.split_once('\n').expect("has a head");
                seen.push_str(body);
                let Some((_, next)) = head.split_once("offset=") else {
                    break;
                };
                first = next.parse().expect("is a number");
            }
            let lines: Vec<_> = seen.lines().map(|line| &line[7..]).collect();
            assert_eq!(lines, text.lines().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_lies_behind_the_end_or_too_far_is_said() {
        let wanted = Wanted { first: 9, ..ALL };
        assert_eq!(show("a\nb\n", wanted), Err("f has only 2 lines".to_owned()));
        let near = Wanted {
            first: 900,
            scan_bytes: 20,
            ..ALL
        };
        assert!(show(&"abcdefgh\n".repeat(999), near).is_err());
    }

    #[test]
    fn a_line_without_end_is_cut_and_the_next_one_found() {
        let text = format!("{}\nnext", "字".repeat(200_000));
        let shown = show(&text, ALL).expect("shows");
        assert!(
            shown.contains("more characters]\n     2|next"),
            "{}",
            &shown[shown.len() - 90..]
        );
        assert!(shown.len() < 10_000);
    }
}
