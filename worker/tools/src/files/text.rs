//! Text in files: what counts as text, line endings, byte order marks.

use mainspring_worker::tool::ToolError;

/// The number of bytes examined to decide whether a file is text.
const SAMPLE_BYTES: usize = 8 << 10;

/// The byte order mark that some UTF-8 files start with.
const MARK: &str = "\u{feff}";

/// Whether this is not text. Text may be in any language: only NUL and other control characters
/// count against it.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    if sample.contains(&0) {
        return true;
    }
    let odd = sample.iter().filter(|byte| {
        byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x08 | 0x0c | 0x1b)
    });
    odd.count() * 10 > sample.len()
}

/// A file that can be edited as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Editable<'a> {
    /// The byte order mark at its start, or nothing; edits keep it.
    pub(crate) mark: &'static str,
    /// Everything after the mark.
    pub(crate) text: &'a str,
}

impl<'a> Editable<'a> {
    /// The file as text, provided that writing it back loses nothing.
    pub(crate) fn of(given: &str, bytes: &'a [u8]) -> Result<Self, ToolError> {
        if is_binary(bytes) {
            return Err(ToolError::reply(format!("{given} is not a text file")));
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(ToolError::reply(format!(
                "{given} is not UTF-8: a change here would damage it"
            )));
        };
        Ok(match text.strip_prefix(MARK) {
            Some(text) => Self { mark: MARK, text },
            None => Self { mark: "", text },
        })
    }

    /// The file's content with its text replaced.
    pub(crate) fn with(&self, text: &str) -> String {
        format!("{}{text}", self.mark)
    }
}

/// The most common line ending; LF if there is none.
pub(crate) fn line_end(text: &str) -> &'static str {
    let all = text.matches('\n').count();
    let windows = text.matches("\r\n").count();
    if windows > all - windows {
        "\r\n"
    } else {
        "\n"
    }
}

/// The first `max` characters, and how many characters follow them.
pub(crate) fn cut(text: &str, max: usize) -> (&str, usize) {
    // A text has no more characters than bytes.
    if text.len() <= max {
        return (text, 0);
    }
    match text.char_indices().nth(max) {
        None => (text, 0),
        Some((at, _)) => (&text[..at], text[at..].chars().count()),
    }
}

/// The line cut to `max` characters, with a note if some are left out.
pub(crate) fn short_line(line: &str, max: usize) -> String {
    match cut(line, max) {
        (line, 0) => line.to_owned(),
        (line, more) => format!("{line} [… {more} more characters]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_language_is_text() {
        for text in [
            "這個檔案只有中文字，完全沒有英文字母。",
            "日本語のテキスト",
            "한국어 텍스트",
            "Ελληνικά",
            "",
            "a\tb\r\n",
        ] {
            assert!(!is_binary(text.repeat(900).as_bytes()), "{text}");
        }
        // A character cut by the end of the sample does not count against it.
        assert!(!is_binary(format!("x{}", "字".repeat(9_000)).as_bytes()));
    }

    #[test]
    fn bytes_that_no_one_reads_are_not() {
        assert!(is_binary(b"\x7fELF\x02\x01\x01\0"));
        assert!(is_binary(&[1, 2, 3, 4, b'a', b'b']));
    }

    #[test]
    fn most_lines_decide_on_the_line_end() {
        assert_eq!(line_end("a\r\nb\r\nc\n"), "\r\n");
        assert_eq!(line_end("a\nb\n\r\n"), "\n");
        assert_eq!(line_end("a\n\r\n"), "\n");
        assert_eq!(line_end("none"), "\n");
    }

    #[test]
    fn a_text_that_is_not_utf_8_is_not_changed() {
        assert!(Editable::of("a", b"caf\xe9").is_err());
        let marked = Editable::of("a", "\u{feff}x".as_bytes()).expect("is text");
        assert_eq!((marked.text, marked.with("y").as_str()), ("x", "\u{feff}y"));
    }

    #[test]
    fn lines_are_cut_between_characters() {
        assert_eq!(cut("字字字", 2), ("字字", 1));
        assert_eq!(cut("字字", 2), ("字字", 0));
        assert_eq!(short_line("abcd", 2), "ab [… 2 more characters]");
    }
}
