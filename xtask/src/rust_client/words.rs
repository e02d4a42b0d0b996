//! Names and comments of the generated text.

/// Words that are no names in Rust.
const RESERVED: [&str; 5] = ["type", "as", "ref", "loop", "where"];

/// `sendView` and `SendView` as `send_view`.
pub(super) fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// `once_more`, `send.completed` and `listSends` as `OnceMore`, `SendCompleted` and `ListSends`.
pub(super) fn pascal(name: &str) -> String {
    let mut pascal = String::new();
    let mut begins = true;
    for letter in name.chars() {
        if !letter.is_ascii_alphanumeric() {
            begins = true;
        } else if begins {
            pascal.push(letter.to_ascii_uppercase());
            begins = false;
        } else {
            pascal.push(letter);
        }
    }
    pascal
}

/// A member's name in Rust, and whether it is another one than in JSON.
pub(super) fn member(name: &str) -> (String, bool) {
    if RESERVED.contains(&name) {
        (format!("{name}_"), true)
    } else {
        (name.to_owned(), false)
    }
}

/// A description as a comment. Brackets are no links, and `<` no tags.
pub(super) fn comment(text: &str, otherwise: &str) -> String {
    let text = if text.trim().is_empty() {
        otherwise
    } else {
        text
    };
    let mut comment = String::new();
    for line in text.trim().lines() {
        comment.push_str("/// ");
        for (at, part) in line.trim_end().split('`').enumerate() {
            if at > 0 {
                comment.push('`');
            }
            if at % 2 == 0 {
                let part = part.replace('[', "\\[").replace(']', "\\]");
                comment.push_str(&part.replace('<', "\\<"));
            } else {
                comment.push_str(part);
            }
        }
        comment.push('\n');
    }
    comment
}
