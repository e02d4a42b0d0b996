//! A conversation at a terminal, which `script` provides.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::commands::program::{Serving, binary, json};

/// Long enough for a slow machine; a test that takes this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// A terminal that runs a chat.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// Output that has been shown but not consumed.
    shown: String,
}

impl Terminal {
    fn chat(server: &str) -> Self {
        let program = format!("{} chat", binary().display());
        let mut child = Command::new("script")
            .args(["-qfec", &program, "/dev/null"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("MAINSPRING_SERVER", server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is there");
        let keys = child.stdin.take().expect("piped");
        let mut stdout = child.stdout.take().expect("piped");
        let (pieces, output) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 1_024];
            while let Ok(read @ 1..) = stdout.read(&mut piece) {
                if pieces.send(piece[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            keys,
            output,
            shown: String::new(),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it is read");
        self.keys.flush().expect("it is read");
    }

    /// Waits until this is shown, and consumes and returns everything up to it.
    fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let piece = self.output.recv_timeout(PATIENCE);
            let piece = piece.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&piece));
            // Whether pasted text is marked is told around each line that is read.
            for mark in ["\x1b[?2004h", "\x1b[?2004l"] {
                self.shown = self.shown.replace(mark, "");
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn lines_are_edited_and_brought_back_and_those_typed_meanwhile_wait_for_their_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let mut terminal = Terminal::chat(&dev.url);
    terminal.until("> ");
    // Cursor left, then insert a letter.
    terminal.press("helo\x1b[Dl\r");
    terminal.until("\nhello\r\n");
    terminal.until("> ");
    terminal.press("\x1b[A\r");
    terminal.until("\nhello\r\n");
    terminal.until("> ");
    terminal.press("!stream 30x100ms slow and more of it\r");
    // The answer has started to arrive.
    terminal.until("\n!stream ");
    terminal.press("while it comes\n");
    terminal.until("[is sent after this answer]");
    terminal.until("\nwhile it comes\r\n");
    terminal.until("> ");
    // End of input.
    terminal.press("\x04");
    let end = terminal.until("continues");
    let session = end.split_whitespace().find(|word| word.starts_with("ses_"));
    let session = session.expect("it is named").trim_end_matches('`');
    let messages = json(&dev.url, &["sessions", "messages", session]);
    let said: Vec<&Value> = messages
        .as_array()
        .expect("a list")
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| &message["content"][0]["text"])
        .collect();
    assert_eq!(
        said,
        [
            "hello",
            "hello",
            "!stream 30x100ms slow and more of it",
            "while it comes"
        ]
    );
    let status = terminal.child.wait().expect("ends");
    assert!(status.success(), "{status}");
}
