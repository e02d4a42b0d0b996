//! A terminal's screen, and the keys pressed meanwhile. Both are given back as they were.

use std::io;

use mainspring_runtime::Environment;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::net::unix::pipe;

use super::fitted;
use crate::failure::Failure;
use crate::output;

/// Turns to the other screen, where nothing that was printed is lost, and hides the cursor; and back.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";

/// Keys that end a view: q, Ctrl-C and Ctrl-D.
const ENDS: [u8; 4] = [b'q', b'Q', 3, 4];

/// Whether stdout is a terminal whose cursor can be moved.
pub(in crate::commands) fn is_possible() -> bool {
    let environment = Environment::read();
    let term = environment.get("TERM");
    output::is_terminal() && term.is_some_and(|term| term != "dumb")
}

/// The screen of a terminal, until it is dropped.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    pub(super) fn begin() -> Result<Self, Failure> {
        output::raw(BEGIN)?;
        Ok(Self(()))
    }

    /// Replaces what is shown, in one write so that it does not flicker.
    pub(super) fn paint(&self, lines: &[String]) -> Result<(), Failure> {
        let Self(()) = self;
        let height = output::height().unwrap_or(usize::MAX);
        // The last column stays empty: a terminal erases it along with what is right of it.
        let width = output::width().map(|width| width.saturating_sub(1));
        let shown = &lines[..lines.len().min(height)];
        let lines = fitted(shown, width).join("\x1b[K\n");
        output::raw(&format!("\x1b[H{lines}\x1b[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing else to do.
        let _ = output::raw(END);
    }
}

/// The keys of the person at the terminal, without echo, until it is dropped.
#[derive(Debug)]
pub(in crate::commands) struct Keys {
    terminal: pipe::Receiver,
    before: Termios,
}

impl Keys {
    /// `None` if nobody is there.
    pub(super) fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        // Opened again, for non-blocking reads.
        let mut terminal = pipe::OpenOptions::new();
        let terminal = terminal.unchecked(true).open_receiver("/dev/tty").ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        raw.output_modes = before.output_modes;
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw).ok()?;
        Some(Self { terminal, before })
    }

    /// Resolves once a key ends the view, or the terminal is gone.
    pub(super) async fn end(&mut self) {
        loop {
            let mut pressed = [0; 64];
            if self.terminal.readable().await.is_err() {
                return;
            }
            match self.terminal.try_read(&mut pressed) {
                Ok(read) if read == 0 || pressed[..read].iter().any(|key| ENDS.contains(key)) => {
                    return;
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing else to do.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}
