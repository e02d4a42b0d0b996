//! The transcript in the form that providers require: every call is directly followed by exactly
//! one result.
//!
//! The store guarantees this for what it stores. But a window may be cut in between, and a session
//! may have been imported. A provider refuses such a request as a whole, so whatever does not fit
//! is left out here, and missing results are replaced with a placeholder.

mod ids;

use std::borrow::Cow;
use std::sync::Arc;

use mainspring_shared::message::{ContentPart, Message, Role, ToolCall, plain_text};
use mainspring_worker::llm::Error;

pub(super) use self::ids::Receiver;

/// The only kind of file, besides text, that providers accept.
pub(super) const PDF: &str = "application/pdf";

/// How images of these types begin in base64.
const IMAGE_STARTS: [(&str, &str); 3] = [
    ("image/gif", "R0lGOD"),
    ("image/jpeg", "/9j/"),
    ("image/png", "iVBORw0KGg"),
];

/// The type of an image by its first bytes, or else what it is called: providers refuse an image that is another one
/// than it says, and with it every later request.
pub(super) fn image_type<'a>(called: &'a str, base64: &str) -> &'a str {
    let mut starts = IMAGE_STARTS.iter();
    if let Some((kind, _)) = starts.find(|(_, start)| base64.starts_with(start)) {
        return kind;
    }
    // The four bytes between are the size.
    let is_webp = base64.starts_with("UklGR") && base64.get(12..16) == Some("RUJQ");
    if is_webp { "image/webp" } else { called }
}

/// The error for a file that no provider accepts.
pub(super) fn not_taken(name: &str, media_type: &str) -> Error {
    Error::InvalidRequest {
        message: format!(
            "the model takes files of text and {PDF}, not {name:?}, which is {media_type}"
        ),
    }
}

/// Placeholder for a result that the window lacks.
const NO_RESULT: &str = "[the result of this call is not available]";

/// The longest name that all providers accept.
const NAME_CHARS_MAX: usize = 64;

/// One turn of the conversation.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    User {
        text: Cow<'a, str>,
        message: &'a Message,
    },
    Assistant {
        text: Cow<'a, str>,
        message: &'a Message,
    },
    /// Directly after the assistant's turn with the calls: one result per call, in the order of the
    /// calls.
    Results(Vec<ToolResult<'a>>),
}

impl Turn<'_> {
    /// If `message` belongs to this turn, the number of results after it in the turn.
    pub(super) fn behind(&self, message: &Message) -> Option<usize> {
        match self {
            Self::User { message: own, .. } | Self::Assistant { message: own, .. } => {
                std::ptr::eq(*own, message).then_some(0)
            }
            Self::Results(results) => results.iter().rev().position(|result| {
                let own = result.message;
                own.is_some_and(|own| std::ptr::eq(own, message))
            }),
        }
    }
}

/// The result of one call.
#[derive(Debug)]
pub(super) struct ToolResult<'a> {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests name results by it"))]
    pub(super) call: &'a ToolCall,
    pub(super) text: Cow<'a, str>,
    /// `None` if it is a placeholder for a result that the window lacks.
    pub(super) message: Option<&'a Message>,
}

/// Whether a message contains more than text.
pub(super) fn has_media(message: &Message) -> bool {
    message.content.iter().any(|part| match part {
        ContentPart::Image { .. } | ContentPart::File { .. } => true,
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => false,
    })
}

/// The text of a text file, with its name.
pub(super) fn file_text(name: &str, text: &str) -> String {
    format!("[file {name}]\n{text}")
}

/// Puts messages into the order that providers accept. Assistant turns without text and calls are
/// left out: reasoning alone is no turn.
pub(super) fn turns(messages: &[Arc<Message>]) -> Vec<Turn<'_>> {
    turns_with(messages, &|_| false)
}

/// The same, but assistant turns stay that have something else of which `attached` says that it goes back.
pub(super) fn turns_with<'a>(
    messages: &'a [Arc<Message>],
    attached: &dyn Fn(&Message) -> bool,
) -> Vec<Turn<'a>> {
    let mut turns = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        match message.role {
            Role::User => turns.push(Turn::User {
                text: text(message),
                message,
            }),
            // Handled with the message that made the call; a result without a call is left out.
            Role::Tool => {}
            Role::Assistant => {
                let text = text(message);
                let is_empty = text.trim().is_empty() && message.tool_calls.is_empty();
                if is_empty && !attached(message) {
                    continue;
                }
                turns.push(Turn::Assistant { text, message });
                if !message.tool_calls.is_empty() {
                    turns.push(Turn::Results(results(message, &messages[at + 1..])));
                }
            }
        }
    }
    turns
}

fn results<'a>(asking: &'a Message, after: &'a [Arc<Message>]) -> Vec<ToolResult<'a>> {
    let until = after
        .iter()
        .position(|m| m.role == Role::Assistant)
        .unwrap_or(after.len());
    let answers = &after[..until];
    let answer = |call: &ToolCall| {
        answers
            .iter()
            .find(|m| m.role == Role::Tool && m.tool_call_id.as_ref() == Some(&call.id))
    };
    let result = |call| {
        let message = answer(call).map(Arc::as_ref);
        ToolResult {
            call,
            text: message.map_or(Cow::Borrowed(NO_RESULT), text),
            message,
        }
    };
    asking.tool_calls.iter().map(result).collect()
}

/// The message's text; borrowed if it is a single part.
fn text(message: &Message) -> Cow<'_, str> {
    match message.content.as_slice() {
        [ContentPart::Text { text }] => Cow::Borrowed(text),
        parts => Cow::Owned(plain_text(parts)),
    }
}

/// A name or an id in the alphabet that all providers accept: letters, digits, `_` and `-`. Ids
/// come from whichever provider the session had at the time.
pub(super) fn wire_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() {
        Cow::Borrowed("unnamed")
    } else if name.len() <= NAME_CHARS_MAX && name.chars().all(fits) {
        Cow::Borrowed(name)
    } else {
        let fitted = name.chars().map(|c| if fits(c) { c } else { '_' });
        Cow::Owned(fitted.take(NAME_CHARS_MAX).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_shared::id::SendId;
    use mainspring_shared::message::NewMessage;
    use mainspring_shared::time::Timestamp;
    use serde_json::json;

    fn message(role: Role, text: &str, calls: &[&str], answers: Option<&str>) -> Arc<Message> {
        let call = |id: &&str| ToolCall::new(*id, "t", json!({}));
        let new = NewMessage {
            role,
            tool_calls: calls.iter().map(call).collect(),
            tool_call_id: answers.map(Into::into),
            ..NewMessage::user(vec![ContentPart::text(text)], 0)
        };
        Arc::new(new.at(1, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
    }

    fn shape(messages: &[Arc<Message>]) -> Vec<String> {
        let name = |turn: &Turn<'_>| match turn {
            Turn::User { text, .. } => format!("user {text}"),
            Turn::Assistant { text, .. } => format!("assistant {text}"),
            Turn::Results(results) => {
                let each: Vec<_> = results
                    .iter()
                    .map(|r| format!("{}={}", r.call.id, r.text))
                    .collect();
                format!("results {}", each.join(" "))
            }
        };
        turns(messages).iter().map(name).collect()
    }

    #[test]
    fn results_follow_their_calls_in_the_order_of_the_calls() {
        let messages = [
            message(Role::User, "q", &[], None),
            message(Role::Assistant, "", &["a", "b"], None),
            message(Role::Tool, "B", &[], Some("b")),
            message(Role::User, "steer", &[], None),
            message(Role::Tool, "A", &[], Some("a")),
            message(Role::Assistant, "done", &[], None),
        ];
        assert_eq!(
            shape(&messages),
            [
                "user q",
                "assistant ",
                "results a=A b=B",
                "user steer",
                "assistant done"
            ]
        );
    }

    #[test]
    fn a_result_that_nobody_asked_for_is_left_out_and_a_missing_one_is_said_to_be_missing() {
        let messages = [
            message(Role::Tool, "cut off", &[], Some("z")),
            message(Role::Assistant, "x", &["a"], None),
            message(Role::Tool, "other", &[], Some("b")),
            message(Role::Assistant, " ", &[], None),
            message(Role::Tool, "late", &[], Some("a")),
        ];
        assert_eq!(
            shape(&messages),
            ["assistant x", &format!("results a={NO_RESULT}")]
        );
    }

    #[test]
    fn foreign_names_and_ids_are_fitted() {
        assert_eq!(wire_name("call_1-x"), "call_1-x");
        assert_eq!(wire_name("functions.read:0 é"), "functions_read_0__");
        assert_eq!(wire_name(""), "unnamed");
        assert_eq!(wire_name(&"é".repeat(80)).len(), 64);
    }
}
