//! A line editor for the terminal.

use std::io;

use console::{Key, Term, measure_text_width};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::input::PROMPT;

/// Maximum number of lines in the history.
const EARLIER_MAX: usize = 1_000;

/// Assumed width of a terminal that does not report its own.
const COLUMNS: u16 = 80;

/// What makes a terminal mark what is pasted, and what ends that.
const PASTES_MARKED: &str = "\x1b[?2004h";
const PASTES_UNMARKED: &str = "\x1b[?2004l";

/// How the end of a line within a message is shown.
const LINE_END: char = '\u{23ce}';

/// Reads lines with editing and a history.
#[derive(Debug)]
pub(super) struct Editor {
    term: Term,
    earlier: Vec<String>,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self {
            term: Term::stdout(),
            earlier: Vec::new(),
        }
    }

    /// Reads a line that starts with this text; `None` if the user ends the input.
    pub(super) fn line(&mut self, begun: &str) -> io::Result<Option<String>> {
        let mut draft = Draft::new(begun, self.earlier.len());
        let _raw = Raw::begin(&self.term)?;
        let ended = loop {
            self.show(&draft)?;
            let key = match self.term.read_key_raw() {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Key::CtrlC,
                key => key?,
            };
            if let Some(ended) = draft.press(&key, &self.earlier) {
                break ended;
            }
        };
        self.term.write_line("")?;
        let Ended::Line = ended else {
            return Ok(None);
        };
        let line: String = draft.text.into_iter().collect();
        if !line.trim().is_empty() && self.earlier.last() != Some(&line) {
            self.earlier.push(line.clone());
            let over = self.earlier.len().saturating_sub(EARLIER_MAX);
            self.earlier.drain(..over);
        }
        Ok(Some(line))
    }

    fn show(&self, draft: &Draft) -> io::Result<()> {
        let (_, columns) = self.term.size_checked().unwrap_or((0, COLUMNS));
        let (before, behind) = draft.view(usize::from(columns).saturating_sub(PROMPT.len() + 1));
        self.term.clear_line()?;
        self.term.write_str(&format!("{PROMPT}{before}{behind}"))?;
        self.term.move_cursor_left(measure_text_width(&behind))
    }
}

/// A terminal in raw mode, from before the prompt is shown until the line is complete. Otherwise,
/// between two key reads, it would turn Ctrl-D into an end mark that cannot be read afterwards, and
/// echo keys itself.
struct Raw<'t> {
    term: &'t Term,
    before: Termios,
}

impl<'t> Raw<'t> {
    fn begin(term: &'t Term) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        raw.output_modes = before.output_modes;
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        let begun = Self { term, before };
        term.write_str(PASTES_MARKED)?;
        Ok(begun)
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing else to do.
        let _ = self.term.write_str(PASTES_UNMARKED);
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// How the editing of a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The line is complete.
    Line,
    /// The input has ended.
    Input,
}

/// A line being edited.
#[derive(Debug)]
struct Draft {
    text: Vec<char>,
    /// Cursor position: the number of characters before it.
    at: usize,
    /// Index of the history line being edited; equal to the history's length for the new line.
    place: usize,
    /// The new line, saved while a history line is being edited.
    kept: Vec<char>,
    /// Whether text is being pasted, whose line ends are part of the message.
    pastes: bool,
    /// The rest of a mark around pasted text, of which the terminal's reader knows only the beginning.
    mark: Mark,
}

/// How much of the mark `ESC [ 2 0 0 ~` or `ESC [ 2 0 1 ~` has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    /// All but the last digit and `~`.
    Begun,
    /// All but `~`.
    Digit,
}

impl Draft {
    fn new(begun: &str, earlier: usize) -> Self {
        let text: Vec<char> = begun.chars().filter(|c| !c.is_control()).collect();
        Self {
            at: text.len(),
            text,
            place: earlier,
            kept: Vec::new(),
            pastes: false,
            mark: Mark::None,
        }
    }

    /// Takes the keys of a mark around pasted text. Returns true if this one belongs to it.
    fn marks(&mut self, key: &Key) -> bool {
        let (next, is_mark) = match (self.mark, key) {
            (_, Key::UnknownEscSeq(begun)) if begun[..] == ['[', '2', '0'] => (Mark::Begun, true),
            (Mark::Begun, Key::Char(digit @ ('0' | '1'))) => {
                self.pastes = *digit == '0';
                (Mark::Digit, true)
            }
            (Mark::Digit, Key::Char('~')) => (Mark::None, true),
            _ => (Mark::None, false),
        };
        self.mark = next;
        is_mark
    }

    fn insert(&mut self, c: char) {
        self.text.insert(self.at, c);
        self.at += 1;
    }

    /// Applies a key.
    fn press(&mut self, key: &Key, earlier: &[String]) -> Option<Ended> {
        if self.marks(key) {
            return None;
        }
        match key {
            Key::Enter | Key::Char('\n' | '\r') if self.pastes => self.insert('\n'),
            // Alt-Enter, or a backslash before Enter.
            Key::UnknownEscSeq(alt) if matches!(alt[..], ['\r' | '\n']) => self.insert('\n'),
            Key::Enter if self.text[..self.at].ends_with(&['\\']) => {
                self.text[self.at - 1] = '\n';
            }
            Key::Enter => return Some(Ended::Line),
            Key::CtrlC => return Some(Ended::Input),
            // Ctrl-D ends the input only if the line is empty.
            Key::Char('\u{4}') if self.text.is_empty() => return Some(Ended::Input),
            Key::ArrowLeft | Key::Char('\u{2}') => self.at = self.at.saturating_sub(1),
            Key::ArrowRight | Key::Char('\u{6}') => self.at = self.text.len().min(self.at + 1),
            Key::Home => self.at = 0,
            Key::End => self.at = self.text.len(),
            Key::Backspace => self.delete(self.at.saturating_sub(1), self.at),
            Key::Del | Key::Char('\u{4}') => self.delete(self.at, self.at + 1),
            // Ctrl-U, Ctrl-K and Ctrl-W, as in a shell.
            Key::Char('\u{15}') => self.delete(0, self.at),
            Key::Char('\u{b}') => self.delete(self.at, self.text.len()),
            Key::Char('\u{17}') => self.delete(self.word(), self.at),
            Key::ArrowUp | Key::Char('\u{10}') if self.place > 0 => {
                self.turn_to(self.place - 1, earlier);
            }
            Key::ArrowDown | Key::Char('\u{e}') if self.place < earlier.len() => {
                self.turn_to(self.place + 1, earlier);
            }
            Key::Char(c) if !c.is_control() => self.insert(*c),
            _ => {}
        }
        None
    }

    fn delete(&mut self, from: usize, to: usize) {
        self.text.drain(from..to.min(self.text.len()));
        self.at = from;
    }

    /// The start of the word before the cursor.
    fn word(&self) -> usize {
        let before = &self.text[..self.at];
        let end = before.iter().rposition(|c| !c.is_whitespace());
        let word = &before[..end.map_or(0, |end| end + 1)];
        let gap = word.iter().rposition(|c| c.is_whitespace());
        gap.map_or(0, |gap| gap + 1)
    }

    fn turn_to(&mut self, place: usize, earlier: &[String]) {
        if self.place == earlier.len() {
            self.kept = std::mem::take(&mut self.text);
        }
        self.place = place;
        self.text = match earlier.get(place) {
            Some(line) => line.chars().collect(),
            None => std::mem::take(&mut self.kept),
        };
        self.at = self.text.len();
    }

    /// The visible parts before and after the cursor, given this many columns.
    fn view(&self, columns: usize) -> (String, String) {
        let mut room = columns;
        let text: Vec<char> = self
            .text
            .iter()
            .map(|c| if *c == '\n' { LINE_END } else { *c })
            .collect();
        let mut fits = |c: &&char| {
            let width = measure_text_width(&c.to_string());
            let fits = width <= room;
            room = room.saturating_sub(width);
            fits
        };
        let before: Vec<char> = text[..self.at]
            .iter()
            .rev()
            .take_while(&mut fits)
            .copied()
            .collect();
        let behind = text[self.at..].iter().take_while(&mut fits).collect();
        (before.into_iter().rev().collect(), behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line after these keys, with the cursor shown as `|`.
    fn after(keys: &[Key], earlier: &[String]) -> String {
        let mut draft = Draft::new("", earlier.len());
        for key in keys {
            assert_eq!(draft.press(key, earlier), None, "{key:?}");
        }
        draft.text.insert(draft.at, '|');
        draft.text.into_iter().collect()
    }

    fn typed(text: &str) -> Vec<Key> {
        text.chars().map(Key::Char).collect()
    }

    #[test]
    fn keys_do_what_they_are_for() {
        let line = |more: &[Key]| after(&[&typed("say it é"), more].concat(), &[]);
        assert_eq!(line(&[]), "say it é|");
        assert_eq!(line(&[Key::ArrowRight]), "say it é|");
        assert_eq!(line(&[Key::Backspace, Key::Char('x')]), "say it x|");
        assert_eq!(
            line(&[Key::ArrowLeft, Key::ArrowLeft, Key::Del]),
            "say it|é"
        );
        assert_eq!(
            line(&[Key::Home, Key::Backspace, Key::Char('!')]),
            "!|say it é"
        );
        assert_eq!(line(&[Key::Home, Key::ArrowLeft, Key::End]), "say it é|");
        assert_eq!(line(&[Key::Char('\u{17}'), Key::Char('\u{17}')]), "say |");
        assert_eq!(line(&[Key::ArrowLeft, Key::Char('\u{15}')]), "|é");
        assert_eq!(
            line(&[Key::Home, Key::ArrowRight, Key::Char('\u{b}')]),
            "s|"
        );
        assert_eq!(line(&[Key::Home, Key::Char('\u{4}')]), "|ay it é");
        assert_eq!(
            line(&[Key::Tab, Key::Escape, Key::Char('\u{7}')]),
            "say it é|"
        );
    }

    #[test]
    fn a_message_may_have_several_lines() {
        let (slash, alt) = (typed("\\"), Key::UnknownEscSeq(vec!['\r']));
        let by_slash = after(
            &[typed("one"), slash, vec![Key::Enter], typed("two")].concat(),
            &[],
        );
        let by_alt = after(&[typed("one"), vec![alt], typed("two")].concat(), &[]);
        assert_eq!(
            (by_slash.as_str(), by_alt.as_str()),
            ("one\ntwo|", "one\ntwo|")
        );
        let mark = |digit: char| {
            let begun = Key::UnknownEscSeq(vec!['[', '2', '0']);
            vec![begun, Key::Char(digit), Key::Char('~')]
        };
        let pasted = [
            mark('0'),
            typed("0~"),
            vec![Key::Enter],
            typed("b"),
            mark('1'),
            typed("1~"),
        ];
        assert_eq!(after(&pasted.concat(), &[]), "0~\nb1~|");
        let mut draft = Draft::new("", 0);
        for key in pasted.concat() {
            draft.press(&key, &[]);
        }
        assert_eq!(draft.view(9).0, "0~\u{23ce}b1~");
        assert_eq!(draft.press(&Key::Enter, &[]), Some(Ended::Line));
    }

    #[test]
    fn earlier_lines_come_back_and_the_new_one_is_not_lost() {
        let earlier = ["one".to_owned(), "two".to_owned()];
        let line = |more: &[Key]| after(&[&typed("new"), more].concat(), &earlier);
        let (up, down) = (Key::ArrowUp, Key::ArrowDown);
        assert_eq!(line(std::slice::from_ref(&up)), "two|");
        assert_eq!(line(&[up.clone(), up.clone(), up.clone()]), "one|");
        assert_eq!(line(&[up.clone(), up.clone(), down.clone()]), "two|");
        assert_eq!(line(&[up, down.clone(), down.clone()]), "new|");
        assert_eq!(line(&[down]), "new|");
    }

    #[test]
    fn a_line_ends_the_input_only_where_it_is_empty() {
        let mut draft = Draft::new("a\u{7}b", 0);
        assert_eq!(draft.text, ['a', 'b']);
        assert_eq!(draft.press(&Key::Char('\u{4}'), &[]), None);
        assert_eq!(draft.press(&Key::Enter, &[]), Some(Ended::Line));
        assert_eq!(draft.press(&Key::CtrlC, &[]), Some(Ended::Input));
        let ended = Draft::new("", 0).press(&Key::Char('\u{4}'), &[]);
        assert_eq!(ended, Some(Ended::Input));
    }

    #[test]
    fn a_long_line_shows_what_is_around_the_cursor() {
        let mut draft = Draft::new("abcdefgh", 0);
        assert_eq!(draft.view(4), ("efgh".to_owned(), String::new()));
        draft.at = 2;
        assert_eq!(draft.view(4), ("ab".to_owned(), "cd".to_owned()));
        assert_eq!(draft.view(40), ("ab".to_owned(), "cdefgh".to_owned()));
        // Wide characters take two columns.
        let mut draft = Draft::new("日本語", 0);
        assert_eq!(draft.view(5), ("本語".to_owned(), String::new()));
        draft.at = 1;
        assert_eq!(draft.view(4), ("日".to_owned(), "本".to_owned()));
    }
}
