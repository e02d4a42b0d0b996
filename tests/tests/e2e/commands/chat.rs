//! A conversation at a terminal.

use serde_json::Value;

use crate::commands::program::{Serving, json};
use crate::commands::terminal::Terminal;

#[test]
fn lines_are_edited_and_brought_back_and_those_typed_meanwhile_wait_for_their_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let dev = Serving::dev(folder.path(), &[]);
    let mut terminal = Terminal::run(&dev.url, "mainspring chat");
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
