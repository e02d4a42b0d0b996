//! How many tokens a text is likely to have, for budgets and for providers that do not say.

use mainspring_shared::message::{ContentPart, FileSource, Message, ToolCall};

use super::Request;

/// Characters that make one token, on the average of English text and code.
const CHARS_PER_TOKEN: u64 = 4;

/// Tokens that frame a message on the wire.
const MESSAGE_TOKENS: u64 = 4;

/// What a picture takes at most: providers scale larger ones down.
const IMAGE_TOKENS: u64 = 1_600;

/// Characters of base64 that make one token of a document: each page is read as text and as a
/// picture.
const DATA_CHARS_PER_TOKEN: u64 = 20;

/// A quarter of the characters; at least 1 unless `text` is empty.
pub fn estimate_tokens(text: &str) -> u64 {
    tokens(text.chars().count() as u64)
}

/// What one message takes: its content, its calls and its frame.
pub fn estimate_message_tokens(message: &Message) -> u64 {
    let calls: u64 = message.tool_calls.iter().map(call_chars).sum();
    MESSAGE_TOKENS + tokens(parts_chars(&message.content) + calls)
}

/// What a whole request takes: system prompt, messages and tools. The shape of the answer counts
/// where it stands in the system prompt.
pub fn estimate_request_tokens(request: &Request) -> u64 {
    let system = request.system.as_deref().map_or(0, estimate_tokens);
    let messages: u64 = request
        .messages
        .iter()
        .map(|m| estimate_message_tokens(m))
        .sum();
    let tools: u64 = request
        .tools
        .iter()
        .map(|t| chars(&t.name) + chars(&t.description) + chars(&t.parameters.to_string()))
        .map(tokens)
        .sum();
    system + messages + tools
}

/// What an answer took.
pub(super) fn answer_tokens(content: &[ContentPart], calls: &[ToolCall]) -> u64 {
    tokens(parts_chars(content) + calls.iter().map(call_chars).sum::<u64>())
}

fn tokens(chars: u64) -> u64 {
    if chars == 0 {
        0
    } else {
        (chars / CHARS_PER_TOKEN).max(1)
    }
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

fn parts_chars(parts: &[ContentPart]) -> u64 {
    let texts = parts.iter().map(|part| match part {
        ContentPart::Text { text } | ContentPart::Reasoning { text, .. } => chars(text),
        ContentPart::Image { .. } => IMAGE_TOKENS * CHARS_PER_TOKEN,
        ContentPart::File { name, source } => {
            let inside = match source {
                FileSource::Text { text } => chars(text),
                FileSource::Base64 { data, .. } => {
                    let tokens = data.len() as u64 / DATA_CHARS_PER_TOKEN;
                    tokens.max(IMAGE_TOKENS) * CHARS_PER_TOKEN
                }
            };
            chars(name) + inside
        }
    });
    texts.sum()
}

fn call_chars(call: &ToolCall) -> u64 {
    chars(&call.id) + chars(&call.name) + chars(&call.arguments.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_four_characters_whatever_their_bytes() {
        for (text, expected) in [
            ("", 0),
            ("a", 1),
            ("abcd", 1),
            ("abcdefgh", 2),
            ("日本語文日本語文", 2),
        ] {
            assert_eq!(estimate_tokens(text), expected, "{text}");
        }
    }
}
