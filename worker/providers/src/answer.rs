//! What all transports do with the chunks of an answer.

use std::borrow::Cow;

use mainspring_shared::message::{
    Arguments, Attached, CallAttached, ContentPart, Origin, ToolCall, json_weight,
};
use mainspring_shared::usage::Usage;
use serde_json::{Map, Value, json};

use crate::exact;
use crate::http::Endpoint;
use crate::status::ProviderSecrets;
use crate::surrogates;

use mainspring_worker::llm::Error;
use mainspring_worker::llm::{
    Chunk, Finish, Reply, Request, estimate_answer_tokens, estimate_request_tokens, json as texts,
};

/// Maximum bytes of an answer: text, reasoning and calls together. Far above any model's token
/// limit, so only a broken provider reaches it.
pub(super) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How much a tool call counts towards the limit before its first byte.
const CALL_BYTES: usize = 256;

/// Maximum characters kept of a provider-specific finish reason.
const REASON_CHARS_MAX: usize = 64;

/// Where an answer comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// The secrets that the provider was sent, to be removed from what it says.
    pub(super) told: &'a ProviderSecrets,
    /// The protocol's name in the configuration.
    pub(super) protocol: &'static str,
    pub(super) host: &'a str,
}

impl Source<'_> {
    /// The origin of what a model of this source gives.
    pub(super) fn origin(&self, model: &str, member: Option<&str>) -> Origin {
        Origin {
            protocol: self.protocol.to_owned(),
            host: self.host.to_owned(),
            model: model.to_owned(),
            member: member.map(str::to_owned),
        }
    }
}

/// Passes chunks on to the listener, and counts them towards the limit.
pub(super) struct ChunkSink<'a> {
    on_chunk: &'a mut (dyn FnMut(Chunk<'_>) + Send),
    left: usize,
    /// Whether the event being read contains halves of surrogate pairs.
    halves: bool,
    /// Whether any event contained one; only then a text may wait for a half.
    may_wait: bool,
}

impl<'a> ChunkSink<'a> {
    pub(super) fn new(on_chunk: &'a mut (dyn FnMut(Chunk<'_>) + Send)) -> Self {
        Self {
            on_chunk,
            left: ANSWER_BYTES_MAX,
            halves: false,
            may_wait: false,
        }
    }

    /// Reads an event.
    pub(super) fn parse(&mut self, data: &str) -> Option<Value> {
        self.halves = false;
        if let Ok(value) = exact::parse(data) {
            return Some(value);
        }
        let marked = surrogates::marked(data);
        self.halves = matches!(marked, Cow::Owned(_));
        self.may_wait |= self.halves;
        self.halves.then(|| exact::parse(&marked).ok())?
    }

    /// Whether the event that was read last has halves of characters.
    pub(super) const fn has_halves(&self) -> bool {
        self.halves
    }

    /// Appends a piece without halves of characters; the first of two may have ended the text's last piece. Returns
    /// what is new to a listener.
    fn append<'p>(&mut self, text: &mut String, piece: &'p str) -> Result<Cow<'p, str>, Error> {
        let held = if self.may_wait && !piece.is_empty() {
            surrogates::take_held(text)
        } else {
            None
        };
        let piece = texts::clean(piece);
        let (new, waits) = if self.halves && (held.is_some() || surrogates::may_hold(&piece)) {
            let (whole, waits) = surrogates::joined(held, &piece);
            (Cow::Owned(whole), waits)
        } else if held.is_some() {
            // Nothing in the piece is a half.
            let whole = format!("{}{piece}", char::REPLACEMENT_CHARACTER);
            (Cow::Owned(whole), None)
        } else {
            (piece, None)
        };
        self.charge(new.len())?;
        text.push_str(&new);
        if let Some(unit) = waits {
            surrogates::hold(text, unit);
        }
        Ok(new)
    }

    /// Appends a chunk of text.
    pub(super) fn text(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        let new = self.append(text, piece)?;
        if !new.is_empty() {
            (self.on_chunk)(Chunk::Text(&new));
        }
        Ok(())
    }

    /// Appends a chunk of reasoning.
    pub(super) fn reasoning(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        let new = self.append(text, piece)?;
        if !new.is_empty() {
            (self.on_chunk)(Chunk::Reasoning(&new));
        }
        Ok(())
    }

    /// Reports the provider's id of a background answer.
    pub(super) fn background(&mut self, id: &str) {
        (self.on_chunk)(Chunk::Background(id));
    }

    /// Appends a part of a call's arguments.
    pub(super) fn arguments(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        if !piece.is_empty() {
            (self.on_chunk)(Chunk::Hidden(piece));
        }
        self.silent(text, piece)
    }

    /// Reports what the provider has counted so far.
    pub(super) fn counted(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            (self.on_chunk)(Chunk::Counted(usage));
        }
    }

    /// Appends data that is not streamed, such as a signature.
    pub(super) fn silent(&mut self, text: &mut String, piece: &str) -> Result<(), Error> {
        if self.may_wait {
            return self.append(text, piece).map(drop);
        }
        self.charge(piece.len())?;
        text.push_str(piece);
        Ok(())
    }

    /// Counts data that is kept as it came.
    pub(super) fn keeps(&mut self, value: &Value) -> Result<(), Error> {
        self.charge(CALL_BYTES + json_weight(value))
    }

    /// Data that came whole, to be kept: halves of characters in it have no others to wait for.
    pub(super) fn kept(&mut self, value: &Value) -> Result<Value, Error> {
        self.keeps(value)?;
        let value = exact::plain(value.clone());
        Ok(if self.halves {
            surrogates::whole(value)
        } else {
            value
        })
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
    arguments: impl Into<Arguments>,
) -> ToolCall {
    let id = if id.is_empty() {
        format!("call_{place}")
    } else {
        texts::clean(id).into_owned()
    };
    ToolCall::new(id, texts::clean(name).into_owned(), arguments)
}

/// Whether the data of an event say nothing: none, or a comment, which some gateways send on as data.
pub(super) fn is_silent(data: &str) -> bool {
    let data = data.trim_start();
    data.is_empty() || data.starts_with(':')
}

/// The failure for an event that is not JSON: the provider's own words, if it says that it is an error.
pub(super) fn unreadable(event: &str, data: &str, told: &ProviderSecrets) -> Error {
    if event == "error" {
        Endpoint::refusal(told, &Value::String(data.to_owned()))
    } else {
        Error::bad("an event is not JSON")
    }
}

/// What an object says that is an error, if it is one: under `error` at most servers; by its kind at vLLM, up to 0.10;
/// beside an answer without choices at MiniMax, with a status other than 0.
pub(super) fn error_in(value: &Value) -> Option<Cow<'_, Value>> {
    if value.get("error").is_some_and(|error| !error.is_null())
        || value.get("object").and_then(Value::as_str) == Some("error")
    {
        return Some(Cow::Borrowed(value));
    }
    let base = value.get("base_resp")?;
    let code = base
        .get("status_code")?
        .as_i64()
        .filter(|code| *code != 0)?;
    let message = base.get("status_msg").and_then(Value::as_str);
    Some(Cow::Owned(json!({"error": {
        "message": message.unwrap_or("it gave no reason"), "code": code.to_string(),
    }})))
}

/// Replaces a member with its latest value, if it has one.
pub(super) fn replace(
    kept: &mut String,
    said: &str,
    sink: &mut ChunkSink<'_>,
) -> Result<(), Error> {
    if said.is_empty() || said == kept {
        return Ok(());
    }
    kept.clear();
    sink.silent(kept, said)
}

/// A call with what its provider attached to it: its own id, and further members.
pub(super) fn attach(call: &mut ToolCall, origin: Origin, id: &str, members: &Map<String, Value>) {
    if id.is_empty() && members.is_empty() {
        return;
    }
    let json = (!members.is_empty()).then(|| stored(members));
    call.attached = Some(Box::new(CallAttached {
        origin,
        id: (!id.is_empty()).then(|| texts::clean(id).into_owned()),
        json,
    }));
}

/// Something else that a provider gave, at its place among the parts.
pub(super) fn attached(origin: Origin, value: &Value) -> ContentPart {
    ContentPart::Attached(Attached {
        origin: Box::new(origin),
        json: stored(value),
    })
}

/// JSON has no U+0000 but escaped, so a database can store its text.
fn stored(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Replaces the half of a character whose other half never came.
fn ended(part: &mut ContentPart) {
    if let ContentPart::Text { text } | ContentPart::Reasoning { text, .. } = part
        && surrogates::take_held(text).is_some()
    {
        text.push(char::REPLACEMENT_CHARACTER);
    }
}

/// Forgets the places of calls behind which nothing follows: that is where calls are anyway.
fn placed(content: &[ContentPart], calls: &mut [ToolCall]) {
    for call in calls {
        call.after = call.after.filter(|after| (*after as usize) < content.len());
    }
}

/// What reasons for an answer's end mean, whoever says them, in lower case.
///
/// Public reports and documentation, as of 2026-11: `sensitive`, `network_error` and
/// `model_context_window_exceeded` of Z.ai; `insufficient_system_resource` of DeepSeek; `abort` of vLLM;
/// `malformed_function_call`, `prohibited_content`, `blocklist`, `spii`, `recitation`, `safety` and `max_tokens` of
/// Gemini, also in its own spelling; `model_length` of Mistral; `eos` of Together; `pause_turn` of Anthropic.
const REASONS: &[(&str, Means)] = &[
    ("stop", Means::Done),
    ("tool_calls", Means::Done),
    ("tool_call", Means::Done),
    ("function_call", Means::Done),
    ("tool_use", Means::Done),
    ("end_turn", Means::Done),
    ("stop_sequence", Means::Done),
    ("eos", Means::Done),
    ("eos_token", Means::Done),
    ("completed", Means::Done),
    ("complete", Means::Done),
    ("length", Means::Cut),
    ("max_tokens", Means::Cut),
    ("max_output_tokens", Means::Cut),
    ("max_length", Means::Cut),
    ("model_length", Means::Cut),
    ("model_context_window_exceeded", Means::Cut),
    ("content_filter", Means::Declined),
    ("content_filtered", Means::Declined),
    ("refusal", Means::Declined),
    ("sensitive", Means::Declined),
    ("safety", Means::Declined),
    ("prohibited_content", Means::Declined),
    ("blocklist", Means::Declined),
    ("spii", Means::Declined),
    ("recitation", Means::Declined),
    ("image_safety", Means::Declined),
    ("pause_turn", Means::Paused),
    ("network_error", Means::Failed),
    ("insufficient_system_resource", Means::Failed),
    ("abort", Means::Failed),
    ("aborted", Means::Failed),
    ("cancelled", Means::Failed),
    ("error", Means::Failed),
    ("malformed_function_call", Means::Failed),
    ("unexpected_tool_call", Means::Failed),
    ("too_many_tool_calls", Means::Failed),
];

#[derive(Debug, Clone, Copy)]
enum Means {
    Done,
    Cut,
    Declined,
    Paused,
    Failed,
}

/// Why an answer ended, by what its provider says; without a word it is taken for done.
pub(super) fn finish(reason: Option<&str>, has_calls: bool) -> Finish {
    let done = || {
        if has_calls {
            Finish::ToolCalls
        } else {
            Finish::Stop
        }
    };
    let Some(reason) = reason else {
        return done();
    };
    let lower = reason.to_ascii_lowercase();
    // Gemini names the filter before it: `function_call_filter: MALFORMED_FUNCTION_CALL`.
    let known = lower.rsplit(": ").next().unwrap_or(&lower);
    match REASONS.iter().find(|(name, _)| *name == known) {
        // Not every server sets the reason for calls when it makes them, or makes them when it sets it.
        Some((_, Means::Done)) => done(),
        Some((_, Means::Cut)) => Finish::Length,
        Some((_, Means::Declined)) => Finish::Refused,
        Some((_, Means::Paused)) => Finish::Paused,
        Some((_, Means::Failed)) => Finish::Failed(known.to_owned()),
        None => other(reason),
    }
}

/// A finish reason that has no variant of its own.
fn other(reason: &str) -> Finish {
    Finish::Other(
        texts::clean(reason)
            .chars()
            .take(REASON_CHARS_MAX)
            .collect(),
    )
}

/// Assembles the reply.
pub(super) fn reply(
    request: &Request,
    mut content: Vec<ContentPart>,
    mut tool_calls: Vec<ToolCall>,
    finish: Finish,
    usage: Option<Usage>,
    model: Option<String>,
) -> Reply {
    content.iter_mut().for_each(ended);
    placed(&content, &mut tool_calls);
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
    use std::sync::LazyLock;

    use super::*;

    static TOLD: LazyLock<ProviderSecrets> = LazyLock::new(ProviderSecrets::default);

    pub(crate) fn source() -> Source<'static> {
        Source {
            told: &TOLD,
            protocol: "openai",
            host: "models.example",
        }
    }

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
