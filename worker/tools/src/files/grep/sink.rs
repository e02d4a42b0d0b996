//! Collects the lines that match.

use std::fmt::Write as _;
use std::io;

use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};

use crate::files::text::short_line;
use crate::files::walk::{CutShort, WalkLimits};
use crate::words::counted;

/// Characters shown of a line.
const LINE_CHARS_MAX: usize = 500;

/// Matching lines with their context, across all files.
#[derive(Debug)]
pub(crate) struct Hits {
    text: String,
    count: usize,
    /// Number of files with a match.
    files: usize,
    max: usize,
    /// Text length and match count before the current file, to roll back to if it turns out to be
    /// binary.
    began: (usize, usize),
}

impl Hits {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            text: String::new(),
            count: 0,
            files: 0,
            max,
            began: (0, 0),
        }
    }

    /// Whether the limit on shown lines is reached.
    pub(crate) fn full(&self) -> bool {
        self.count >= self.max
    }

    pub(crate) fn in_file<'a>(&'a mut self, path: &'a str, limits: &'a WalkLimits) -> InFile<'a> {
        self.began = (self.text.len(), self.count);
        InFile {
            hits: self,
            path,
            limits,
        }
    }

    pub(crate) fn end_file(&mut self) {
        self.files += usize::from(self.count > self.began.1);
        self.began = (self.text.len(), self.count);
    }

    /// The number of matches, in words.
    pub(crate) fn counted(&self, pattern: &str) -> String {
        let lines = counted(self.count, "line matches", "lines match");
        let more = if self.full() { "at least " } else { "" };
        let files = counted(self.files, "file", "files");
        format!("{more}{lines} {pattern}, in {files}")
    }

    /// The whole result, in words.
    pub(crate) fn said(&self, pattern: &str, large: usize, cut_short: Option<CutShort>) -> String {
        let mut said = self.text.clone();
        if self.count == 0 {
            let _ = writeln!(said, "no line matches {pattern}");
        }
        if self.full() {
            let _ = writeln!(
                said,
                "[… results truncated: raise the limit or narrow the search]"
            );
        }
        if large > 0 {
            let _ = writeln!(said, "[{large} files were too large to be searched]");
        }
        if let Some(cut_short) = cut_short {
            let _ = writeln!(said, "{}", cut_short.said());
        }
        said
    }

    fn line(&mut self, path: &str, mark: char, number: Option<u64>, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes);
        let line = short_line(line.trim_end_matches(['\n', '\r']), LINE_CHARS_MAX);
        let number = number.unwrap_or(0);
        let _ = writeln!(self.text, "{path}{mark}{number}{mark}{line}");
    }
}

/// Receives what the searcher finds in one file.
#[derive(Debug)]
pub(crate) struct InFile<'a> {
    hits: &'a mut Hits,
    path: &'a str,
    limits: &'a WalkLimits,
}

impl Sink for InFile<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.hits.full() {
            return Ok(false);
        }
        self.hits.count += 1;
        let (number, bytes) = (found.line_number(), found.bytes());
        self.hits.line(self.path, ':', number, bytes);
        Ok(self.limits.reached().is_none())
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> Result<bool, io::Error> {
        let (number, bytes) = (around.line_number(), around.bytes());
        self.hits.line(self.path, '-', number, bytes);
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.hits.text.push_str("--\n");
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        if finish.binary_byte_offset().is_some() {
            // The file is binary, so earlier matches in it are not lines of text either.
            let (text, count) = self.hits.began;
            self.hits.text.truncate(text);
            self.hits.count = count;
        }
        Ok(())
    }
}
