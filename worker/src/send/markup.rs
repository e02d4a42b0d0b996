//! What models write as text although it is none: their thoughts, and calls of tools.

use mainspring_shared::message::ContentPart;

use crate::llm::Reply;
use crate::tool::Offers;

/// Tags that a thought is between, at the beginning of an answer.
const THOUGHTS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];

/// How chat templates of well-known models begin a call.
const CALLS: [&str; 9] = [
    "<tool_call>",
    "<|tool_call",
    "<|tool\u{2581}call",
    "<function_call>",
    "<function=",
    "<invoke name=",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "to=functions.",
];

/// The name of a call is at most this many bytes behind its beginning.
const NAME_WITHIN: usize = 400;

/// Makes a thought at the beginning of an answer's text what it is: reasoning, which is neither
/// shown as the answer nor searched for values.
pub(super) fn part_thoughts(reply: &mut Reply) {
    let first = reply
        .content
        .iter()
        .position(|part| matches!(part, ContentPart::Text { text } if !text.trim().is_empty()));
    let Some(at) = first else { return };
    let ContentPart::Text { text } = &mut reply.content[at] else {
        return;
    };
    let begins = text.trim_start();
    let thought = THOUGHTS.iter().find_map(|(open, close)| {
        let inside = begins.strip_prefix(open)?;
        inside.split_once(close)
    });
    let Some((thought, rest)) = thought else {
        return;
    };
    let (thought, rest) = (thought.trim().to_owned(), rest.trim_start().to_owned());
    *text = rest;
    let reasoning = ContentPart::Reasoning {
        text: thought,
        signature: None,
        origin: None,
    };
    reply.content.insert(at, reasoning);
    for call in &mut reply.tool_calls {
        // Calls behind the part that was split are behind one part more.
        call.after = call
            .after
            .map(|after| after + u32::from(after as usize > at));
    }
}

/// The offered tool that a text calls in the markup of a chat template, at the beginning of a line.
pub(super) fn called<'o>(text: &str, offers: &'o Offers) -> Option<&'o str> {
    CALLS.iter().find_map(|mark| {
        text.match_indices(mark).find_map(|(at, _)| {
            let line = text[..at].rsplit('\n').next().unwrap_or_default();
            if !line.trim().is_empty() && !mark.starts_with("to=") {
                return None;
            }
            let behind = &text[at + mark.len()..];
            let mut end = behind.len().min(NAME_WITHIN);
            while !behind.is_char_boundary(end) {
                end -= 1;
            }
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
            let mut words = behind[..end].split(|c| !is_name(c));
            words.find_map(|word| offers.get(word).map(|offer| offer.spec.name.as_str()))
        })
    })
}

#[cfg(test)]
mod tests {
    use mainspring_shared::message::{ToolCall, plain_text};
    use mainspring_shared::usage::Usage;
    use serde_json::json;

    use super::*;
    use crate::llm::Finish;

    fn reply(text: &str) -> Reply {
        Reply {
            content: vec![ContentPart::text(text)],
            tool_calls: vec![ToolCall {
                after: Some(1),
                ..ToolCall::new("c", "t", json!({}))
            }],
            finish: Finish::Stop,
            usage: Usage::default(),
            model: String::new(),
        }
    }

    #[test]
    fn a_thought_at_the_beginning_is_reasoning() {
        let mut said = reply("\n<think>maybe {\"a\":1}?</think>\n{\"a\":2}");
        part_thoughts(&mut said);
        assert_eq!(plain_text(&said.content), "{\"a\":2}");
        let ContentPart::Reasoning { text, .. } = &said.content[0] else {
            panic!("reasoning");
        };
        assert_eq!(text, "maybe {\"a\":1}?");
        assert_eq!(said.tool_calls[0].after, Some(2));
    }

    #[test]
    fn what_only_mentions_a_thought_stays_text() {
        for text in [
            "use <think>x</think>",
            "<think>never closed",
            "</think> x",
            "",
        ] {
            let mut said = reply(text);
            part_thoughts(&mut said);
            assert_eq!(said, reply(text));
        }
    }
}
