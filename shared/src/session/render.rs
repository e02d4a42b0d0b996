//! Renders a model request as a pure function of rows.
//!
//! A worker that has the session cached, one that loads it, one that takes a send over, and a
//! preview all pass the same rows to [`render`], so they get the same request. Nothing here reads a
//! clock or a store.
//!
//! The order is: tools, system prompt, folds, messages, tail. Anything that may differ between
//! sends goes into the tail. So the requests of two consecutive sends share a prefix, up to the end
//! of the first one's history, which the provider can serve from its prompt cache.

mod media;
mod older;

use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use self::media::{fade, readable};
use crate::agent::prompt::assemble;
use crate::agent::{AgentSpec, ContextSpec, MAX_TOKENS_DEFAULT, OutputSpec, SendOptions};
use crate::id::{SendId, SessionId};
use crate::message::{ContentPart, Message, NewMessage, Role};
use crate::model::{InBackground, ModelFacts, Request, ToolSpec};
use crate::session::fold::Fold;
use crate::session::projection::Projection;
use crate::session::window::Window;
use crate::skill::catalogue;
use crate::time::Timestamp;

/// The instruction to a model whose answer was cut off.
const GO_ON: &str = "Your answer reached its token limit and was cut. Go on exactly where it stops: \
                     repeat nothing of it, and say nothing about the cut.";

/// What asks for an answer that is any JSON object.
const ANY_OBJECT: &str = "Your final answer is one JSON object and nothing else: no explanation, no \
                          Markdown.";

/// The inputs of a request.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The model.
    pub model: Reader<'a>,
    /// The session; its requests share a prefix.
    pub session: SessionId,
    /// The running send; messages of any other send belong to a finished one.
    pub send: SendId,
    /// The agent's version that the send is pinned to.
    pub agent: &'a AgentSpec,
    /// The send's options.
    pub options: &'a SendOptions,
    /// The round of the send, from 0.
    pub round: u32,
    /// The tools on offer, in order.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The conversation.
    pub said: Conversation<'a>,
    /// What is shown after the last message, in this order.
    pub tail: Vec<TailPart<'a>>,
    /// The schema that the answer must fit.
    pub output: Option<&'a Arc<OutputSpec>>,
}

/// The model that reads a request.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    /// Its name as its provider knows it.
    pub name: String,
    /// Its known properties.
    pub facts: &'a ModelFacts,
    /// Whether the transport can have the provider enforce an output schema.
    pub native_schema: bool,
    /// The audio media types that the transport supports.
    pub sounds: &'a [&'a str],
}

/// The conversation that a request shows.
#[derive(Debug, Clone)]
pub struct Conversation<'a> {
    /// The folds that replace the messages before the window, oldest first.
    pub folds: &'a [Arc<Fold>],
    /// The digests that replace the window's first sends, oldest first.
    pub projections: &'a [Arc<Projection>],
    /// The rest of the active window; see [`following`].
    pub messages: Vec<Arc<Message>>,
    /// The last message of the running send whose results count as old; 0 if none do.
    pub aged_to: i64,
    /// The part of the answer received so far, if the answer was cut off and is to be continued.
    pub partial: Option<&'a [ContentPart]>,
}

/// A part of the tail, which is shown after the last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailPart<'a> {
    /// Text by the system itself.
    System(&'a str),
    /// Text by a model, or that a model read: enclosed in tags that it cannot close, so that it is
    /// not taken for the user's words.
    Data {
        /// The tag.
        tag: &'a str,
        /// The text.
        text: &'a str,
    },
}

/// Renders the request of a round.
pub fn render(inputs: Inputs<'_>) -> Request {
    let Inputs {
        model, said, agent, ..
    } = inputs;
    let tools = inputs.tools.iter();
    let tools = tools.map(|tool| (tool.name.as_str(), tool.description.as_str()));
    let system = assemble(agent, inputs.options.system_prompt.as_deref(), tools);
    let folds = said.folds.iter();
    let mut messages: Vec<_> = folds.map(|fold| Arc::new(recap(fold))).collect();
    let (older, settled) = older::older(
        said.projections,
        said.messages,
        (inputs.send, said.aged_to),
        &agent.context,
    );
    let folds = messages.len();
    messages.extend(older);
    if let Some(keep) = agent.context.images.keep {
        fade(&mut messages, keep as usize);
    }
    readable(&mut messages, model.facts.takes, model.sounds);
    let mut request = Request {
        model: model.name,
        system,
        messages,
        settled: folds + settled.now,
        settled_before: settled.before.map(|before| folds + before),
        tail: None,
        cache_key: Some(inputs.session.to_string()),
        background: InBackground::No,
        window: Some(model.facts.window),
        max_tokens: answer_max(agent, model.facts),
        temperature: agent.temperature,
        top_p: agent.top_p,
        stop: agent.stop.clone(),
        reasoning_effort: agent.reasoning_effort,
        thinking_tokens: agent
            .thinking
            .as_ref()
            .map(|thinking| thinking.budget_tokens),
        adaptive: model.facts.adaptive,
        images_max_edge: agent.context.images.max_edge,
        tools: inputs.tools,
        tool_choice: agent
            .tool_choice
            .as_ref()
            .map(|choice| choice.in_round(inputs.round))
            .unwrap_or_default(),
        parallel_tool_calls: agent.parallel_tool_calls,
        json_object: false,
        model_options: model_options(agent),
        output: None,
    };
    request.drop_lost_choice();
    if let Some(skills) = catalogue(&agent.skills) {
        paragraph(&mut request.system, &skills);
    }
    for part in &inputs.tail {
        match part {
            TailPart::System(text) => paragraph(&mut request.tail, text),
            TailPart::Data { tag, text } => paragraph(&mut request.tail, &fenced(tag, "", text)),
        }
    }
    if let Some(partial) = said.partial {
        go_on(&mut request, partial);
    }
    if inputs.output.is_some_and(|output| output.any_object) {
        // Providers that have a mode for it want the text to ask for JSON as well.
        request.json_object = true;
        let place = if inputs.options.output_schema.is_some() {
            &mut request.tail
        } else {
            &mut request.system
        };
        paragraph(place, ANY_OBJECT);
    } else if let Some(output) = inputs.output {
        let is_sends = inputs.options.output_schema.is_some();
        let enforced = model.facts.enforces_schema(model.native_schema);
        shape(&mut request, output, enforced, is_sends);
        if model.native_schema && !enforced {
            // The transport would pass the schema on, and this model's provider would refuse it.
            request.output = None;
        }
    }
    request
}

/// The members that the agent's author adds to requests.
fn model_options(agent: &AgentSpec) -> Option<Arc<Map<String, Value>>> {
    let options = agent.model_options.as_ref()?;
    (!options.0.is_empty()).then(|| Arc::new((*options.0).clone()))
}

/// The token limit of an answer: the agent's limit, capped by the model's.
pub fn answer_max(agent: &AgentSpec, facts: &ModelFacts) -> u32 {
    let wanted = agent.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT);
    let can = facts.output_max.and_then(|max| u32::try_from(max).ok());
    wanted.min(can.unwrap_or(u32::MAX))
}

/// The active window from this `seq` on, followed by messages that are not in the transcript yet,
/// as they will be once the next step has stored them.
///
/// If the beginning of the send is folded, its input is put in front again, so that the model sees
/// what it is working on.
pub fn following(
    window: &Window,
    from: i64,
    unsaid: &[NewMessage],
    (send, at, input): (SendId, Timestamp, &[ContentPart]),
) -> Vec<Arc<Message>> {
    let extra = unsaid.iter().zip(window.next_seq()..);
    let extra = extra.map(|(message, seq)| message.clone().at(seq, send, at, 0));
    let mut messages = window.active_with(from, extra);
    let first = messages.first();
    // Folds end after whole rounds: if the send's first message here is an answer, its input is folded.
    if let Some(first) = first.filter(|it| it.send_id == send && it.role == Role::Assistant) {
        let asked = NewMessage::user(input.to_vec(), 0).at(first.seq - 1, send, at, 0);
        messages.insert(0, Arc::new(asked));
    }
    messages
}

/// Whether a window holds everything that is shown from this `seq` on while this send runs.
///
/// If not, its messages must be read: it holds projections of sends that are not shown as digests,
/// or that are shown only in part.
pub fn has_all(window: &Window, from: i64, send: SendId, context: &ContextSpec) -> bool {
    let projections = window.projections(from).len();
    if window.cuts(from) {
        return false;
    }
    projections == 0 || older::are_digested(projections, window.active(from), send, context)
}

/// The messages of the running send, up to `last`, at each of which one more block of its results
/// is shortened once they count as old, in order.
///
/// `projections` is the number of projections shown before the messages. `running` is the send and
/// its last message whose results count as old already.
pub fn forgetting_steps(
    projections: usize,
    messages: &[Arc<Message>],
    running: (SendId, i64),
    last: i64,
    context: &ContextSpec,
) -> Vec<i64> {
    older::steps(projections, messages, running, last, context)
}

/// The message that shows a fold in place of the messages it replaces. Its send is nil, and its time is when the fold
/// was made: what was said before that followed other messages.
fn recap(fold: &Fold) -> Message {
    let range = format!(" messages=\"{}-{}\"", fold.from_seq, fold.to_seq);
    let text = fenced("summary", &range, &fold.text);
    let said = NewMessage::user(vec![ContentPart::text(text)], 0);
    said.at(fold.from_seq, SendId(Uuid::nil()), fold.created_at, 0)
}

/// Shows the model the beginning of its answer and asks it to continue.
fn go_on(request: &mut Request, said: &[ContentPart]) {
    let Some(last) = request.messages.last().cloned() else {
        return;
    };
    let said = NewMessage {
        role: Role::Assistant,
        ..NewMessage::user(said.to_vec(), last.round)
    };
    let ask = NewMessage::user(vec![ContentPart::text(GO_ON)], last.round);
    for (message, seq) in [said, ask].into_iter().zip(last.seq + 1..) {
        let message = message.at(seq, last.send_id, last.created_at, last.epoch);
        request.messages.push(Arc::new(message));
    }
}

/// Asks for an answer that fits this schema. If the provider does not enforce it, the model is
/// told: before the messages if the schema is the agent's, since that does not change between sends.
fn shape(request: &mut Request, output: &Arc<OutputSpec>, enforced: bool, is_sends: bool) {
    request.output = Some(Arc::clone(output));
    if enforced {
        return;
    }
    let told = format!(
        "Your final answer is one JSON value and nothing else: no explanation, no Markdown. It fits \
         this JSON Schema:\n{}",
        output.schema
    );
    let place = if is_sends {
        &mut request.tail
    } else {
        &mut request.system
    };
    paragraph(place, &told);
}

/// Encloses a text in tags that it cannot close.
fn fenced(tag: &str, attributes: &str, text: &str) -> String {
    let text = text.replace(&format!("</{tag}"), &format!("<\u{200b}/{tag}"));
    format!("<{tag}{attributes}>\n{text}\n</{tag}>")
}

/// Adds a paragraph.
fn paragraph(text: &mut Option<String>, more: &str) {
    let text = text.get_or_insert_default();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests;
