//! How many tokens a text is likely to have, for budgets and for providers that do not say.

use crate::message::{ContentPart, FileSource, Message, ToolCall};

use super::Request;

/// Letters of a word that make one token at the least: common words are one token whatever their
/// length, names and code fall to pieces.
const LETTERS_PER_TOKEN: u64 = 3;

/// Tokens that frame a message on the wire.
const MESSAGE_TOKENS: u64 = 4;

/// What a picture takes at most: providers scale larger ones down.
const IMAGE_TOKENS: u64 = 1_600;

/// Characters of base64 that make one token of a document: each page is read as text and as a
/// picture.
const DATA_CHARS_PER_TOKEN: u64 = 20;

/// How many tokens a text has at most, whatever its script: of a word of ASCII letters one for each
/// three, of everything else one for each byte, but for a space before a word. Tokenizers that do not
/// know a script fall back to its bytes.
pub fn estimate_tokens(text: &str) -> u64 {
    let (mut tokens, mut letters, mut space) = (0_u64, 0_u64, false);
    for byte in text.bytes() {
        if byte.is_ascii_alphabetic() {
            letters += 1;
            // A space belongs to the word behind it.
            space = false;
            continue;
        }
        tokens += letters.div_ceil(LETTERS_PER_TOKEN) + u64::from(space);
        letters = 0;
        space = byte == b' ';
        tokens += u64::from(!space);
    }
    tokens + letters.div_ceil(LETTERS_PER_TOKEN) + u64::from(space)
}

/// What one message takes: its content, its calls and its frame.
pub fn estimate_message_tokens(message: &Message) -> u64 {
    let calls: u64 = message.tool_calls.iter().map(call_tokens).sum();
    MESSAGE_TOKENS + parts_tokens(&message.content) + calls
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
    let tail = request.tail.as_deref().map_or(0, estimate_tokens);
    system + messages + tail + estimate_tools_tokens(request)
}

fn estimate_tools_tokens(request: &Request) -> u64 {
    let tools = request.tools.iter().map(|tool| {
        let schema = tool.parameters.to_string();
        let texts = [&tool.name, &tool.description, &schema];
        let texts: u64 = texts.into_iter().map(|text| estimate_tokens(text)).sum();
        MESSAGE_TOKENS + texts
    });
    tools.sum()
}

/// What an answer took.
pub fn estimate_answer_tokens(content: &[ContentPart], calls: &[ToolCall]) -> u64 {
    parts_tokens(content) + calls.iter().map(call_tokens).sum::<u64>()
}

fn parts_tokens(parts: &[ContentPart]) -> u64 {
    let parts = parts.iter().map(|part| match part {
        ContentPart::Text { text } | ContentPart::Reasoning { text, .. } => estimate_tokens(text),
        ContentPart::Image { .. } => IMAGE_TOKENS,
        ContentPart::File { name, source } => {
            let inside = match source {
                FileSource::Text { text } => estimate_tokens(text),
                FileSource::Base64 { data, .. } => {
                    let tokens = data.len() as u64 / DATA_CHARS_PER_TOKEN;
                    tokens.max(IMAGE_TOKENS)
                }
            };
            estimate_tokens(name) + inside
        }
    });
    parts.sum()
}

fn call_tokens(call: &ToolCall) -> u64 {
    estimate_tokens(&call.id)
        + estimate_tokens(&call.name)
        + estimate_tokens(&call.arguments.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_has_no_more_tokens_than_is_said() {
        for (text, expected) in [
            ("", 0),
            ("a", 1),
            ("abcd", 2),
            ("The quick brown fox", 6),
            ("1 + 23", 6),
            ("fn main() {}", 8),
            ("日本語", 9),
            ("привет", 12),
            ("a  b", 3),
            ("    ", 4),
        ] {
            assert_eq!(estimate_tokens(text), expected, "{text:?}");
        }
    }

    /// Counts as a tokenizer does that knows few words: pieces of three letters, with the space
    /// before them; all else by its bytes.
    fn pessimistic(text: &str) -> u64 {
        let bytes = text.as_bytes();
        let (mut tokens, mut at) = (0, 0);
        while at < bytes.len() {
            let begin = at;
            if bytes[at] == b' ' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic) {
                at += 1;
            }
            while at < bytes.len() && at - begin < 4 && bytes[at].is_ascii_alphabetic() {
                let letters = at - begin + usize::from(bytes[begin] != b' ');
                if letters > 3 {
                    break;
                }
                at += 1;
            }
            at = at.max(begin + 1);
            tokens += 1;
        }
        tokens
    }

    proptest! {
        #[test]
        fn no_script_has_more_tokens_than_is_estimated(
            text in "([a-zA-Z ]{0,12}|[0-9 .,{}\"]{0,9}|[\\x{4e00}-\\x{9fff}]{0,8}|\
                     [\\x{ac00}-\\x{d7a3}]{0,8}|[\\x{3040}-\\x{309f}]{0,8}|\
                     [\\x{400}-\\x{4ff} ]{0,12}|[\\x{600}-\\x{6ff} ]{0,12}|\
                     [\\x{900}-\\x{97f}]{0,8}|[\\x{e00}-\\x{e7f}]{0,8}|\
                     [\\x{1f600}-\\x{1f64f}]{0,4}|\n\t){0,12}",
        ) {
            prop_assert!(estimate_tokens(&text) >= pessimistic(&text), "{text:?}");
            // No tokenizer has tokens of less than a byte.
            prop_assert!(estimate_tokens(&text) <= text.len() as u64);
        }
    }
}
