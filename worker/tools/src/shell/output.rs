//! Buffers a command's output as it arrives: only head and tail are kept, however long it is.

use std::collections::VecDeque;

/// The beginning and the end of a stream of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    left_out: u64,
}

impl Kept {
    /// Keeps at most `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            head: Vec::new(),
            head_max: max / 2,
            tail: VecDeque::new(),
            tail_max: max - max / 2,
            left_out: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.head_max - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let passed = rest.len().saturating_sub(self.tail_max);
        self.tail.extend(&rest[passed..]);
        let over = self.tail.len().saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.left_out += (passed + over) as u64;
    }

    /// The kept output as text, without terminal escape sequences.
    pub(crate) fn text(mut self) -> String {
        let tail = self.tail.make_contiguous();
        if self.left_out == 0 {
            self.head.extend_from_slice(tail);
            return plain(&String::from_utf8_lossy(&self.head));
        }
        format!(
            "{}\n[… {} bytes left out …]\n{}",
            plain(&String::from_utf8_lossy(&self.head)),
            self.left_out,
            plain(&String::from_utf8_lossy(tail))
        )
    }
}

/// The text without the escape sequences that move cursors and set colours.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            // A control sequence ends with a byte from `@` to `~`.
            Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
            // A terminal command ends with BEL or with ESC \.
            Some(']' | 'P' | '_' | '^') => loop {
                match chars.next() {
                    None | Some('\u{7}') => break,
                    Some('\u{1b}') => {
                        chars.next_if_eq(&'\\');
                        break;
                    }
                    Some(_) => {}
                }
            },
            Some('(' | ')' | '*' | '+' | '#' | '%') => {
                chars.next();
            }
            Some(_) | None => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_in_any_pieces() {
        let all: Vec<u8> = (0..100).map(|n| b'a' + n % 26).collect();
        for size in [1, 3, 7, 50, 100] {
            let mut kept = Kept::new(20);
            all.chunks(size).for_each(|piece| kept.push(piece));
            let head = String::from_utf8_lossy(&all[..10]);
            let tail = String::from_utf8_lossy(&all[90..]);
            assert_eq!(
                kept.text(),
                format!("{head}\n[… 80 bytes left out …]\n{tail}"),
                "{size}"
            );
        }
        let mut kept = Kept::new(20);
        kept.push(b"exactly ");
        kept.push(b"twenty bytes");
        assert_eq!(kept.text(), "exactly twenty bytes");
    }

    #[test]
    fn memory_does_not_grow_with_the_output() {
        let mut kept = Kept::new(1 << 10);
        for _ in 0..10_000 {
            kept.push(&[b'x'; 4 << 10]);
        }
        assert!(kept.head.capacity() + kept.tail.capacity() < 16 << 10);
    }

    #[test]
    fn colours_and_titles_are_left_out() {
        assert_eq!(
            plain("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}字\u{1b}]8;;x\u{1b}\\link\u{1b}(B."),
            "red 字link."
        );
        assert_eq!(plain("cut \u{1b}["), "cut ");
    }
}
