//! Rules for requests that their types cannot express.
//!
//! Whatever passes here can be stored and run. All faults of a request are reported at once.

use mainspring_scheduler::error::{Error, FieldError};
use mainspring_scheduler::services::agents::{AgentAsk, Choice, OptionsAsk, Taken};
use mainspring_shared::agent::{
    AgentSpec, CallSettings, ContextSpec, FALLBACK_MAX, FoldStrategy, IMAGES_EDGE_MAX,
    IMAGES_EDGE_MIN, MAX_TOKENS_DEFAULT, MemorySpec, OnBusy, OutputSpec, Priority, PromptSpec,
    STOP_MAX, SendOptions, THINKING_TOKENS_MIN, ToolChoice,
};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionId;
use mainspring_shared::list::NOTES_MAX_DEFAULT;
use mainspring_shared::memory::Namespace;
use mainspring_shared::message::ContentPart;
use mainspring_shared::session::{METADATA_TOO_LONG, has_room};
use mainspring_shared::stored::Extra;
use mainspring_shared::tool;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::bodies::{NewSessionBody, Options, SessionAsk};
use super::choice::AgentChoice;
use super::idempotency;
use super::input::Input;
use crate::extract::run_blocking;

/// Maximum bytes of a name, a model or another label.
const LABEL_BYTES_MAX: usize = 200;

/// Maximum number of rounds: a send that needs more is in a loop.
const MAX_ROUNDS_MAX: u32 = 10_000;

/// Maximum number of sends kept out of folds: more would not fit any context window.
const KEEP_SENDS_MAX: u32 = 1_000;

/// Maximum number of tokens of one response: more than any model produces.
const MAX_TOKENS_MAX: u32 = 10_000_000;

/// Maximum number of published agents that an agent may be allowed to start.
const ALLOW_AGENTS_MAX: usize = 100;

/// Maximum number of tokens of a budget: the largest integer that every JSON reader represents
/// exactly.
pub(super) const TOKENS_MAX: u64 = (1 << 53) - 1;

/// Maximum for counts that are stored in 32 bits.
pub(super) const COUNT_MAX: u32 = i32::MAX as u32;

/// Collects the faults of a request.
#[derive(Debug, Default)]
pub(super) struct Checks {
    at: String,
    errors: Vec<FieldError>,
    /// How many of the faults are about schedules.
    schedules: usize,
    /// How many of the faults are about workflow specs.
    specs: usize,
}

impl Checks {
    /// Checks for a whole body.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Checks for the part of a body that `at` points to.
    pub(super) fn at(at: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            ..Self::default()
        }
    }

    /// Returns the faults, if any, as one error.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.errors.is_empty() {
            Ok(())
        } else if self.errors.len() == self.schedules {
            Err(Error::invalid_schedule(self.errors))
        } else if self.errors.len() == self.specs {
            Err(Error::with_members(Code::SpecInvalid, self.errors))
        } else {
            Err(Error::invalid_members(self.errors))
        }
    }

    /// Records an invalid schedule. If there are no other faults, the error gets a code of its own.
    pub(super) fn refuse_schedule(&mut self, member: &str, detail: &str) {
        self.schedules += 1;
        self.refuse(member, detail);
    }

    /// Records a fault of a workflow's spec. If there are no other faults, the error gets a code of
    /// its own.
    pub(super) fn refuse_spec(&mut self, member: &str, detail: &str) {
        self.specs += 1;
        self.refuse(member, detail);
    }

    pub(super) fn refuse(&mut self, member: &str, detail: &str) {
        let pointer = self.pointer(member);
        self.errors.push(FieldError {
            pointer,
            detail: detail.to_owned(),
        });
    }

    /// Checks a picture or a file.
    pub(super) fn media(&mut self, member: &str, part: &ContentPart) {
        if let Some(fault) = part.media_fault() {
            self.refuse(&format!("{member}{}", fault.pointer), &fault.detail);
        }
    }

    /// Checks the parts of a message. Returns true if they are not empty.
    pub(super) fn parts(&mut self, member: &str, parts: &[ContentPart]) -> bool {
        let mut empty = true;
        for (place, part) in parts.iter().enumerate() {
            match part {
                ContentPart::Text { text } | ContentPart::Reasoning { text, .. } => {
                    empty &= text.is_empty();
                    if text.contains('\0') {
                        let one = parts.len() == 1;
                        let member = if one {
                            member.to_owned()
                        } else {
                            format!("{member}/{place}/text")
                        };
                        self.refuse(&member, NUL);
                    }
                }
                ContentPart::Digest { .. } => {
                    let member = format!("{member}/{place}/type");
                    self.refuse(&member, "is only allowed in a tool message of an archive");
                }
                ContentPart::Attached(_) => {
                    let member = format!("{member}/{place}/type");
                    self.refuse(
                        &member,
                        "is only allowed in an assistant message of an archive",
                    );
                }
                // A blob is looked up and checked before it is stored.
                ContentPart::Image { .. } | ContentPart::File { .. } if part.blob().is_some() => {
                    empty = false;
                }
                ContentPart::Image { .. } | ContentPart::File { .. } => {
                    empty = false;
                    self.media(&format!("{member}/{place}"), part);
                }
            }
        }
        !empty
    }

    /// Checks the input of a send.
    pub(super) fn input(&mut self, input: &Input) {
        let empty = !self.parts("/input", &input.0);
        if empty {
            self.refuse("/input", "must not be empty");
        }
    }

    /// Checks the agent of a session.
    pub(super) fn agent(&mut self, member: &str, agent: &AgentSpec) {
        self.label(&format!("{member}/name"), agent.name.as_deref());
        self.text(
            &format!("{member}/system_prompt"),
            agent.system_prompt.as_deref(),
        );
        for fault in agent.prompt.iter().flat_map(PromptSpec::faults) {
            self.refuse(&format!("{member}/prompt{}", fault.pointer), &fault.detail);
        }
        if agent.allow_agents.len() > ALLOW_AGENTS_MAX {
            let detail = format!("must have at most {ALLOW_AGENTS_MAX} names");
            self.refuse(&format!("{member}/allow_agents"), &detail);
        }
        self.label(&format!("{member}/model"), agent.model.as_deref());
        for fault in run_blocking(|| tool::check(&agent.tools)) {
            self.refuse(&format!("{member}/tools{}", fault.pointer), &fault.detail);
        }
        self.budget(&format!("{member}/budget"), agent.budget.as_ref());
        self.output(
            &format!("{member}/output_schema"),
            agent.output_schema.as_ref(),
        );
        self.within(
            &format!("{member}/max_rounds"),
            agent.max_rounds,
            MAX_ROUNDS_MAX,
        );
        let last = agent.context.last_messages;
        self.within(
            &format!("{member}/context/last_messages"),
            last,
            i32::MAX as u32,
        );
        self.context(&format!("{member}/context"), &agent.context);
        // Keeping none (0) is allowed.
        let keep = agent.context.images.keep.filter(|keep| *keep > 0);
        let keep_member = format!("{member}/context/images/keep");
        self.within(&keep_member, keep, i32::MAX as u32);
        let edge = agent.context.images.max_edge;
        if edge.is_some_and(|edge| !(IMAGES_EDGE_MIN..=IMAGES_EDGE_MAX).contains(&edge)) {
            self.refuse(
                &format!("{member}/context/images/max_edge"),
                &format!("must be from {IMAGES_EDGE_MIN} to {IMAGES_EDGE_MAX}"),
            );
        }
        self.call_settings(member, &agent.call_settings());
        if let Some(choice) = &agent.tool_choice {
            self.tool_choice(member, choice, agent);
        }
        if agent.stop.len() > STOP_MAX || agent.stop.iter().any(String::is_empty) {
            let detail = format!("must have at most {STOP_MAX} texts, none of them empty");
            self.refuse(&format!("{member}/stop"), &detail);
        }
        if let Some(thinking) = &agent.thinking {
            let most = agent.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT);
            if !(THINKING_TOKENS_MIN..most).contains(&thinking.budget_tokens) {
                let detail = format!("must be from {THINKING_TOKENS_MIN} to less than max_tokens");
                self.refuse(&format!("{member}/thinking/budget_tokens"), &detail);
            }
        }
        if agent.fallback.len() > FALLBACK_MAX {
            let detail = format!("must have at most {FALLBACK_MAX} models");
            self.refuse(&format!("{member}/fallback"), &detail);
        }
        for (at, model) in agent.fallback.iter().enumerate() {
            self.label(&format!("{member}/fallback/{at}"), Some(model));
        }
        let pool = agent.pool.as_deref();
        if let Some(detail) = pool.and_then(|pool| tool::pool_fault(pool, &agent.tools)) {
            self.refuse(&format!("{member}/pool"), &detail);
        }
        let notes_max = agent.notes.as_ref().map(|notes| notes.max);
        self.within(&format!("{member}/notes/max"), notes_max, NOTES_MAX_DEFAULT);
        for (place, detail) in agent.memory.iter().flat_map(MemorySpec::faults) {
            self.refuse(&format!("{member}/memory{place}"), &detail);
        }
        if agent.board.as_deref().is_some_and(|name| !is_board(name)) {
            let detail = "must have 1 to 64 of the characters a-z, A-Z, 0-9, ., - and _, and must not start with ses_";
            self.refuse(&format!("{member}/board"), detail);
        }
    }

    /// Checks how a model is to be called.
    fn call_settings(&mut self, member: &str, settings: &CallSettings) {
        self.within(
            &format!("{member}/max_tokens"),
            settings.max_tokens,
            MAX_TOKENS_MAX,
        );
        for (pointer, detail) in settings.faults() {
            self.refuse(&format!("{member}{pointer}"), &detail);
        }
    }

    /// Checks that an agent may have the tool that its model must call. Only what no worker could
    /// offer is refused.
    fn tool_choice(&mut self, member: &str, choice: &ToolChoice, agent: &AgentSpec) {
        let fault = match choice {
            ToolChoice::Auto | ToolChoice::None => None,
            ToolChoice::Required => agent
                .has_no_tools()
                .then(|| "must not be required: the agent has no tools".to_owned()),
            ToolChoice::Tool(name) => (!agent.may_offer(name))
                .then(|| format!("is {name:?}, which is none of the tools on offer")),
        };
        if let Some(fault) = fault {
            let below = match choice {
                ToolChoice::Tool(_) => "/name",
                ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => "",
            };
            self.refuse(&format!("{member}/tool_choice{below}"), &fault);
        }
    }

    /// Checks how the transcript is folded and shown.
    fn context(&mut self, member: &str, context: &ContextSpec) {
        let fold = &context.fold;
        let is_share = |share: f64| share > 0.0 && share <= 1.0;
        for (name, share) in [("soft", fold.soft), ("hard", fold.hard)] {
            if share.is_some_and(|share| !is_share(share)) {
                self.refuse(
                    &format!("{member}/fold/{name}"),
                    "must be above 0 and at most 1",
                );
            }
        }
        if fold.soft.is_some_and(|soft| soft > fold.hard()) {
            let detail = format!("must be at most hard, which is {}", fold.hard());
            self.refuse(&format!("{member}/fold/soft"), &detail);
        }
        if fold.keep_sends.is_some_and(|keep| keep > KEEP_SENDS_MAX) {
            let detail = format!("must be at most {KEEP_SENDS_MAX}");
            self.refuse(&format!("{member}/fold/keep_sends"), &detail);
        }
        self.label(&format!("{member}/fold/model"), fold.model.as_deref());
        let url = format!("{member}/fold/url");
        match (fold.strategy, fold.url.as_deref()) {
            (FoldStrategy::Http, None) => self.refuse(&url, "is needed with the strategy http"),
            (FoldStrategy::Http, Some(text)) => {
                if let Some(detail) = tool::url_fault(text) {
                    self.refuse(&url, &detail);
                }
            }
            (_, Some(_)) => self.refuse(&url, "is for the strategy http only"),
            (_, None) => {}
        }
        for name in context.tools.keys() {
            if name.is_empty() || name.len() > LABEL_BYTES_MAX || name.contains('\0') {
                self.refuse(&format!("{member}/tools"), "names must have 1 to 200 bytes");
            }
        }
    }

    fn budget(&mut self, member: &str, budget: Option<&Budget>) {
        for (name, detail) in budget.iter().flat_map(|budget| budget.faults()) {
            let slash = if name.is_empty() { "" } else { "/" };
            self.refuse(&format!("{member}{slash}{name}"), detail);
        }
        let tokens = budget.and_then(|budget| budget.tokens);
        if tokens.is_some_and(|tokens| tokens > TOKENS_MAX) {
            let detail = format!("must be at most {TOKENS_MAX}");
            self.refuse(&format!("{member}/tokens"), &detail);
        }
        let rounds = budget.and_then(|budget| budget.rounds);
        if rounds.is_some_and(|rounds| rounds > COUNT_MAX) {
            let detail = format!("must be at most {COUNT_MAX}");
            self.refuse(&format!("{member}/rounds"), &detail);
        }
    }

    /// Checks a session to create.
    pub(super) fn session(&mut self, member: &str, body: NewSessionBody) -> SessionAsk {
        let AgentChoice(agent) = body.agent.unwrap_or_default();
        let metadata = body.metadata.unwrap_or_default();
        if let Choice::Inline(agent) = &agent {
            self.own_agent(&format!("{member}/agent"), agent);
        }
        self.metadata(&format!("{member}/metadata"), &metadata);
        if let Choice::Inline(spec) = &agent
            && let Some(memory) = spec
                .memory
                .as_ref()
                .filter(|memory| memory.faults().is_empty())
        {
            // The session's id is not known yet, but every id fits.
            let any = SessionId(Uuid::nil());
            if let Err(fault) = Namespace::render(&memory.namespace, &metadata, any) {
                let pointer = format!("{member}/agent/memory/namespace");
                self.refuse(&pointer, &format!("has no value for this session: {fault}"));
            }
        }
        let taken = Taken {
            at: self.pointer(member),
            agent,
            variables: body.variables.unwrap_or_default(),
        };
        if body
            .key
            .as_deref()
            .is_some_and(|key| !idempotency::is_key(key))
        {
            let detail = "must have 1 to 255 visible ASCII characters";
            self.refuse(&format!("{member}/key"), detail);
        }
        SessionAsk {
            taken,
            metadata,
            name: body.key,
        }
    }

    /// Checks an agent that comes with a request and is not bound to a session yet.
    pub(super) fn own_agent(&mut self, member: &str, agent: &AgentSpec) {
        if agent.bound.is_some() {
            let detail = "is an unknown field, which no request has";
            self.refuse(&format!("{member}/bound"), detail);
        }
        self.agent(member, agent);
    }

    /// The pointer to a member of the checked part, within the whole body.
    pub(super) fn pointer(&self, member: &str) -> String {
        format!("{}{member}", self.at)
    }

    /// Checks the metadata of a session.
    pub(super) fn metadata(&mut self, member: &str, metadata: &Map<String, Value>) {
        if !has_room(metadata) {
            self.refuse(member, METADATA_TOO_LONG);
        }
        for (name, value) in metadata {
            if name.contains('\0') || has_nul(value) {
                let mut pointer = member.to_owned();
                super::extract::push(&mut pointer, &name.replace('\0', "\u{fffd}"));
                self.refuse(&pointer, NUL);
            }
        }
    }

    /// Checks the options of a send.
    pub(super) fn options(&mut self, options: Option<Options>) -> OptionsAsk {
        let Some(mut options) = options else {
            return OptionsAsk::default();
        };
        let variables = options.variables.take();
        if options.agent.is_none() && variables.is_some() {
            self.refuse("/options/variables", "requires `agent`");
        }
        let agent = options.agent.take().map(|agent| AgentAsk {
            at: self.pointer("/options"),
            agent,
            variables: variables.unwrap_or_default(),
        });
        OptionsAsk {
            options: self.own_options(options),
            agent,
        }
    }

    /// Checks the options that need no stored data.
    fn own_options(&mut self, options: Options) -> SendOptions {
        self.label("/options/model", options.model.as_deref());
        self.text("/options/system_prompt", options.system_prompt.as_deref());
        self.within("/options/max_rounds", options.max_rounds, MAX_ROUNDS_MAX);
        for (place, name) in options.tools.iter().flatten().enumerate() {
            self.label(&format!("/options/tools/{place}"), Some(name));
        }
        self.budget("/options/budget", options.budget.as_ref());
        if let Some(metadata) = &options.metadata {
            self.metadata("/options/metadata", metadata);
        }
        self.output("/options/output_schema", options.output_schema.as_ref());
        if let (Some(ToolChoice::Tool(name)), Some(only)) = (&options.tool_choice, &options.tools)
            && !only.contains(name)
        {
            let detail = format!("is {name:?}, which is none of the tools on offer");
            self.refuse("/options/tool_choice/name", &detail);
        }
        if options
            .deadline
            .is_some_and(|deadline| deadline.0.is_zero())
        {
            self.refuse("/options/deadline", "must be greater than 0");
        }
        let on_busy = match options.on_busy.as_deref() {
            None | Some("enqueue") => OnBusy::Enqueue,
            Some("reject") => OnBusy::Reject,
            Some("coalesce") => OnBusy::Coalesce,
            Some("steer") => OnBusy::Steer,
            Some("interrupt") => OnBusy::Interrupt,
            Some(_) => {
                self.refuse(
                    "/options/on_busy",
                    "must be enqueue, coalesce, steer, interrupt or reject",
                );
                OnBusy::Enqueue
            }
        };
        let options = SendOptions {
            model: options.model,
            system_prompt: options.system_prompt,
            tools: options.tools,
            max_rounds: options.max_rounds,
            metadata: options.metadata.filter(|it| !it.is_empty()).map(Box::new),
            priority: options
                .priority
                .map_or(Priority::default(), |priority| priority.0),
            deadline: options.deadline,
            delay: options.delay.filter(|delay| !delay.0.is_zero()),
            on_busy,
            budget: options.budget,
            output_schema: options.output_schema,
            max_tokens: options.max_tokens,
            temperature: options.temperature,
            top_p: options.top_p,
            reasoning_effort: options.reasoning_effort,
            tool_choice: options.tool_choice,
            parallel_tool_calls: options.parallel_tool_calls,
            model_options: options.model_options,
            agent: None,
            fired_by: None,
            ended_run: None,
            openai: None,
            traceparent: None,
            extra: Extra::default(),
        };
        self.call_settings("/options", &options.call_settings());
        options
    }

    /// Checks the output schema.
    fn output(&mut self, member: &str, schema: Option<&Value>) {
        let Some(schema) = schema else {
            return;
        };
        if has_nul(schema) {
            self.refuse(member, NUL);
        } else if let Err(fault) = run_blocking(|| OutputSpec::read(schema)) {
            self.refuse(&format!("{member}{}", fault.pointer), &fault.detail);
        }
    }

    pub(super) fn text(&mut self, member: &str, text: Option<&str>) {
        if text.is_some_and(|text| text.contains('\0')) {
            self.refuse(member, NUL);
        }
    }

    fn label(&mut self, member: &str, text: Option<&str>) {
        self.text(member, text);
        if text.is_some_and(|text| text.is_empty() || text.len() > LABEL_BYTES_MAX) {
            self.refuse(member, "must have 1 to 200 bytes");
        }
    }

    fn within(&mut self, member: &str, number: Option<u32>, max: u32) {
        if number.is_some_and(|number| number == 0 || number > max) {
            self.refuse(member, &format!("must be from 1 to {max}"));
        }
    }
}

/// The message for a text that the database cannot store.
pub(super) const NUL: &str = "must not contain U+0000";

/// Whether a string or a member name in it contains U+0000.
pub(super) fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(k, v)| k.contains('\0') || has_nul(v)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a board may have this name. Session ids are reserved for the sessions' own boards.
fn is_board(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=64).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with("ses_")
}

#[cfg(test)]
mod tests;
