//! Wraps text between words as it arrives in pieces.

/// Text on its way to a terminal. A word is held back until it is complete.
#[derive(Debug, Default)]
pub(super) struct Wrap {
    /// Characters per line; `None` does not wrap.
    width: Option<usize>,
    column: usize,
    word: String,
}

impl Wrap {
    pub(super) fn new(width: Option<usize>) -> Self {
        Self {
            width: width.filter(|width| *width > 0),
            ..Self::default()
        }
    }

    /// Adds a piece; returns what can be shown so far.
    pub(super) fn push(&mut self, text: &str) -> String {
        if self.width.is_none() {
            self.column = text.rsplit('\n').next().map_or(0, str::len);
            return text.to_owned();
        }
        let mut out = String::new();
        for c in text.chars() {
            if c.is_whitespace() {
                self.place(&mut out);
                self.space(c, &mut out);
            } else {
                self.word.push(c);
            }
        }
        out
    }

    /// Returns what is still held back.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.place(&mut out);
        self.column = 0;
        out
    }

    fn place(&mut self, out: &mut String) {
        let word = std::mem::take(&mut self.word);
        let length = word.chars().count();
        let width = self.width.unwrap_or(usize::MAX);
        if length > 0 && self.column > 0 && self.column + length > width {
            // The preceding space is at the end of the line, where it is invisible.
            out.push('\n');
            self.column = 0;
        }
        out.push_str(&word);
        self.column += length;
    }

    fn space(&mut self, c: char, out: &mut String) {
        let width = self.width.unwrap_or(usize::MAX);
        if c == '\n' {
            self.column = 0;
        } else if self.column >= width {
            return;
        } else {
            self.column += 1;
        }
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(width: usize, pieces: &[&str]) -> String {
        let mut wrap = Wrap::new(Some(width));
        let mut out: String = pieces.iter().map(|piece| wrap.push(piece)).collect();
        out.push_str(&wrap.finish());
        out
    }

    #[test]
    fn lines_break_between_words_however_the_text_is_cut() {
        let text = "one two three four\nfive  six";
        let expected = "one two \nthree \nfour\nfive  six";
        assert_eq!(wrapped(9, &[text]), expected);
        for size in 1..text.len() {
            let pieces: Vec<&str> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).expect("ASCII"))
                .collect();
            assert_eq!(wrapped(9, &pieces), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_word_longer_than_a_line_and_every_other_word_stays_whole() {
        let long = "x".repeat(30);
        assert_eq!(wrapped(10, &["a ", &long, " b"]), format!("a \n{long}\nb"));
        let mut wrap = Wrap::new(None);
        assert_eq!(wrap.push("a b"), "a b");
    }
}
