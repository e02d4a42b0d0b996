//! A terminal, which `script` provides.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::commands::program::binary;

/// Long enough for a slow machine; a test that takes this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// A terminal that runs a command.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// Output that has been shown but not consumed.
    shown: String,
}

impl Terminal {
    /// Runs a command of the shell, for which `mainspring` is the program under test.
    pub(crate) fn run(server: &str, command: &str) -> Self {
        let binary = binary();
        let folder = binary.parent().expect("a folder").display();
        let mut child = Command::new("script")
            .args(["-qfec", command, "/dev/null"])
            .env_clear()
            .env("PATH", format!("{folder}:/usr/bin:/bin"))
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

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it is read");
        self.keys.flush().expect("it is read");
    }

    /// Waits until this is shown, and consumes and returns everything up to it.
    pub(crate) fn until(&mut self, text: &str) -> String {
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
