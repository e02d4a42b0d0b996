//! The source of a chat's input lines.

use std::io::{IsTerminal, Write as _};

use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::net::unix::pipe;

use super::editor::Editor;
use crate::failure::{Exit, Failure};
use crate::output;

/// The prompt before a line.
pub(super) const PROMPT: &str = "> ";

/// Bytes read from a terminal at once.
const PIECE: usize = 4_096;

/// The input lines of a chat.
pub(super) struct Input {
    source: Source,
    /// Whether a person is at the terminal.
    attended: bool,
}

enum Source {
    Person(Person),
    Other(Lines<BufReader<Stdin>>),
}

/// A person at a terminal. At the prompt they edit a line; what they type while a response arrives
/// is read as the terminal delivers it. Nothing reads in between, since a reader that is left
/// waiting would steal the editor's keys.
struct Person {
    /// `None` while it is in use.
    editor: Option<Editor>,
    terminal: pipe::Receiver,
    /// The typed part of a line that is not complete yet.
    begun: Vec<u8>,
}

impl Input {
    pub(super) fn new() -> Self {
        let attended = std::io::stdin().is_terminal();
        let person = (attended && output::is_terminal())
            .then(Person::new)
            .flatten();
        let source = match person {
            Some(person) => Source::Person(person),
            None => Source::Other(BufReader::new(tokio::io::stdin()).lines()),
        };
        Self { source, attended }
    }

    pub(super) fn is_attended(&self) -> bool {
        self.attended
    }

    /// Prompts for the next line; `None` at the end of the input, or if the prompt is interrupted.
    pub(super) async fn prompted(&mut self) -> Result<Option<String>, Failure> {
        let attended = self.attended;
        match &mut self.source {
            Source::Person(person) => person.edited().await,
            Source::Other(lines) => {
                if attended {
                    // Not on stdout, because it is not data; not as a note, because it has no line
                    // end.
                    let _ = std::io::stderr().write_all(PROMPT.as_bytes());
                }
                tokio::select! {
                    line = lines.next_line() => line.map_err(|error| unreadable(&error)),
                    _ = tokio::signal::ctrl_c(), if attended => Ok(None),
                }
            }
        }
    }

    /// The next line typed while something else goes on. Cancelling this loses nothing.
    pub(super) async fn typed(&mut self) -> Result<Option<String>, Failure> {
        match &mut self.source {
            Source::Person(person) => person.typed().await,
            Source::Other(lines) => lines.next_line().await,
        }
        .map_err(|error| unreadable(&error))
    }
}

impl Person {
    fn new() -> Option<Self> {
        // Opened again, for non-blocking reads.
        let mut terminal = pipe::OpenOptions::new();
        let terminal = terminal.unchecked(true).open_receiver("/dev/tty").ok()?;
        Some(Self {
            editor: Some(Editor::new()),
            terminal,
            begun: Vec::new(),
        })
    }

    async fn edited(&mut self) -> Result<Option<String>, Failure> {
        let broke = || Failure::new(Exit::Failure, "the line editor failed");
        let mut editor = self.editor.take().ok_or_else(broke)?;
        let begun = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned();
        let edited = tokio::task::spawn_blocking(move || {
            let line = editor.line(&begun);
            (editor, line)
        });
        let (editor, line) = edited.await.map_err(|_| broke())?;
        self.editor = Some(editor);
        line.map_err(|error| unreadable(&error))
    }

    async fn typed(&mut self) -> std::io::Result<Option<String>> {
        loop {
            if let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.begun.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            self.terminal.readable().await?;
            let mut piece = [0; PIECE];
            match self.terminal.try_read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(read) => self.begun.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failure, format!("stdin: {error}"))
}
