//! What every transport does with the pieces of an answer.

use mainspring_shared::message::{ContentPart, ToolCall};
use mainspring_shared::usage::Usage;

use mainspring_worker::llm::Error;
use mainspring_worker::llm::{
    Chunk, Finish, Reply, Request, estimate_answer_tokens, estimate_request_tokens, json,
};

/// The most bytes that an answer may have, text, reasoning and calls together. Far above what any
/// model's bound on tokens allows, so only something broken reaches it.
pub(super) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a tool call counts against the bound before its first byte.
const CALL_BYTES: usize = 256;

/// A provider's own word for why an answer ended is kept up to here.
const REASON_CHARS_MAX: usize = 64;

/// Where the pieces go: to whoever listens, and against the bound.
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

    /// Appends a piece of text.
    pub(super) fn text(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        if !piece.is_empty() {
            let piece = json::clean(piece);
            self.charge(piece.len())?;
            text.push_str(&piece);
            (self.on_chunk)(Chunk::Text(&piece));
        }
        Ok(())
    }

    /// Appends a piece of reasoning.
    pub(super) fn reasoning(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        if !piece.is_empty() {
            let piece = json::clean(piece);
            self.charge(piece.len())?;
            text.push_str(&piece);
            (self.on_chunk)(Chunk::Reasoning(&piece));
        }
        Ok(())
    }

    /// Says what the provider calls an answer that it works on in the background.
    pub(super) fn background(&mut self, id: &str) {
        (self.on_chunk)(Chunk::Background(id));
    }

    /// Appends what nobody listens to: a signature, a piece of arguments.
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

/// An answer beyond every bound.
pub(super) fn too_large() -> Error {
    Error::bad(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"))
}

/// A call as it was gathered, in the reply's place `place`.
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
    ToolCall {
        id,
        name: json::clean(name).into_owned(),
        arguments,
    }
}

/// A reason that has no name here.
pub(super) fn other(reason: &str) -> Finish {
    Finish::Other(json::clean(reason).chars().take(REASON_CHARS_MAX).collect())
}

/// Puts the reply together.
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
    // No request is free of tokens, and no words are: who says so has not counted.
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
            settled: 0,
            settled_before: None,
            background: mainspring_worker::llm::InBackground::No,
            tail: None,
            cache_key: None,
            temperature: None,
            top_p: None,
            stop: Vec::new(),
            reasoning_effort: None,
            thinking_tokens: None,
            adaptive: false,
            images_max_edge: None,
            tools: Vec::new(),
            output: None,
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
