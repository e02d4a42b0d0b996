//! What all transports do with the chunks of an answer.

use mainspring_shared::message::{ContentPart, ToolCall};
use mainspring_shared::usage::Usage;

use mainspring_worker::llm::Error;
use mainspring_worker::llm::{
    Chunk, Finish, Reply, Request, estimate_answer_tokens, estimate_request_tokens, json,
};

/// Maximum bytes of an answer: text, reasoning and calls together. Far above any model's token
/// limit, so only a broken provider reaches it.
pub(super) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How much a tool call counts towards the limit before its first byte.
const CALL_BYTES: usize = 256;

/// Maximum characters kept of a provider-specific finish reason.
const REASON_CHARS_MAX: usize = 64;

/// Passes chunks on to the listener, and counts them towards the limit.
pub(super) struct ChunkSink<'a> {
    on_chunk: &'a mut (dyn FnMut(Chunk<'_>) + Send),
    left: usize,
}

impl<'a> ChunkSink<'a> {
    pub(super) fn new(on_chunk: &'a mut (dyn FnMut(Chunk<'_>) + Send)) -> Self {
        Self {
            on_chunk,
            left: ANSWER_BYTES_MAX,
        }
    }

    /// Appends a chunk of text.
    pub(super) fn text(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        if !piece.is_empty() {
            let piece = json::clean(piece);
            self.charge(piece.len())?;
            text.push_str(&piece);
            (self.on_chunk)(Chunk::Text(&piece));
        }
        Ok(())
    }

    /// Appends a chunk of reasoning.
    pub(super) fn reasoning(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        if !piece.is_empty() {
            let piece = json::clean(piece);
            self.charge(piece.len())?;
            text.push_str(&piece);
            (self.on_chunk)(Chunk::Reasoning(&piece));
        }
        Ok(())
    }

    /// Reports the provider's id of a background answer.
    pub(super) fn background(&mut self, id: &str) {
        (self.on_chunk)(Chunk::Background(id));
    }

    /// Appends data that is not streamed: a signature, or a part of arguments.
    pub(super) fn silent(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        self.charge(piece.len())?;
        text.push_str(piece);
        Ok(())
    }

    /// Counts a new call or block.
    pub(super) fn block(&mut self) -> Result<(), Error> {
        self.charge(CALL_BYTES)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(too_large)?;
        Ok(())
    }
}

/// The error for an answer that exceeds the limit.
pub(super) fn too_large() -> Error {
    Error::bad(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"))
}

/// A complete call, at index `place` of the reply.
pub(super) fn tool_call(
    place: usize,
    id: &str,
    name: &str,
    arguments: serde_json::Value,
) -> ToolCall {
    let id = if id.is_empty() {
        format!("call_{place}")
    } else {
        json::clean(id).into_owned()
    };
    ToolCall::new(id, json::clean(name).into_owned(), arguments)
}

/// A finish reason that has no variant of its own.
pub(super) fn other(reason: &str) -> Finish {
    Finish::Other(json::clean(reason).chars().take(REASON_CHARS_MAX).collect())
}

/// Assembles the reply.
pub(super) fn reply(
    request: &Request,
    content: Vec<ContentPart>,
    tool_calls: Vec<ToolCall>,
    finish: Finish,
    usage: Option<Usage>,
    model: Option<String>,
) -> Reply {
    let mut usage = usage.unwrap_or_default();
    let said = estimate_answer_tokens(&content, &tool_calls);
    // Every request has tokens, and so has every text; a provider that reports 0 has not counted.
    if usage.input_tokens == 0 {
        usage.input_tokens = estimate_request_tokens(request);
        usage.estimated = true;
    }
    if usage.output_tokens == 0 && said > 0 {
        usage.output_tokens = said;
        usage.estimated = true;
    }
    let model = model.unwrap_or_else(|| request.model.clone());
    Reply {
        content,
        tool_calls,
        finish,
        usage,
        model,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn request() -> Request {
        Request {
            model: "m".to_owned(),
            system: Some("Be brief, whatever you are asked.".to_owned()),
            messages: Vec::new(),
            max_tokens: 16,
            ..Request::default()
        }
    }

    #[test]
    fn a_count_of_nothing_is_no_count() {
        let request = request();
        let usage = |said: Usage| {
            let content = vec![ContentPart::text("an answer of some words")];
            reply(
                &request,
                content,
                Vec::new(),
                Finish::Stop,
                Some(said),
                None,
            )
            .usage
        };
        let estimated = usage(Usage::default());
        assert!(estimated.estimated && estimated.input_tokens > 0 && estimated.output_tokens > 0);
        let counted = Usage {
            input_tokens: 9,
            output_tokens: 5,
            ..Usage::default()
        };
        assert_eq!(usage(counted), counted);
        let half = usage(Usage {
            output_tokens: 0,
            ..counted
        });
        assert!(half.estimated && half.input_tokens == 9 && half.output_tokens > 0);
    }
}
