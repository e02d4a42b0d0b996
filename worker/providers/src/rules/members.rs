//! The members of the rules, and what each of them can say.

use std::fmt;

use mainspring_shared::agent::ReasoningEffort;
use serde::{Deserialize, Serialize};

/// Declares the rules twice: total, with a default for each member, and as somebody says them, with every member
/// optional.
macro_rules! members {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $default:expr;)+) => {
        /// What an endpoint accepts for one model, what it gives, and what it wants back.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct Rules {
            $($(#[$doc])+ pub $name: $type,)+
        }

        impl Default for Rules {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Rules {
            /// Replaces whatever `said` says.
            pub fn lay(&mut self, said: &Said) {
                $(if let Some(value) = &said.$name { self.$name = value.clone(); })+
            }
        }

        /// Some of the members of [`Rules`]: an entry of the table, or what an operator overrides.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[non_exhaustive]
        pub struct Said {
            /// The model that this one is like: the table is read as if that were its name. Only for a single model,
            /// whose name tells nothing.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub like: Option<String>,
            $(
                #[doc = concat!("See [`Rules::", stringify!($name), "`].")]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )+
        }

        impl Said {
            /// The names of all members.
            pub const MEMBERS: &[&str] = &["like", $(stringify!($name),)+];

            /// Replaces whatever `said` says.
            pub fn lay(&mut self, said: &Self) {
                if said.like.is_some() { self.like.clone_from(&said.like); }
                $(if said.$name.is_some() { self.$name.clone_from(&said.$name); })+
            }
        }
    };
}

members! {
    /// The member that limits the tokens of an answer.
    output_limit: OutputLimit = OutputLimit::MaxTokens;
    /// Whether prompt and limit are added up against the window, so that a limit that is too high is refused.
    limit_counts_prompt: bool = false;
    /// The role of the system prompt.
    system: SystemRole = SystemRole::System;
    /// Whether `temperature` is accepted.
    temperature: Sampling = Sampling::Any;
    /// The lowest `temperature`; a lower one is raised to it.
    temperature_min: f64 = 0.0;
    /// The highest `temperature`; a higher one is lowered to it.
    temperature_max: f64 = 2.0;
    /// Whether `top_p` is accepted.
    top_p: Sampling = Sampling::Any;
    /// Whether `temperature` and `top_p` may both be given; otherwise `top_p` is left out.
    both_samplings: bool = true;
    /// Whether texts that end an answer are accepted.
    stop: bool = true;
    /// The efforts that are accepted; another one is replaced with the nearest. With none, the member is never sent.
    efforts: Vec<ReasoningEffort> = EFFORTS.to_vec();
    /// The member that turns thinking on and off, besides the effort.
    thinking_switch: ThinkingSwitch = ThinkingSwitch::None;
    /// The member in which reasoning goes back.
    reasoning_back: ReasoningBack = ReasoningBack::AsItCame;
    /// The turns with which it goes back.
    reasoning_when: ReasoningWhen = ReasoningWhen::Always;
    /// Whether turns without reasoning must have the member, empty.
    reasoning_empty: bool = false;
    /// What must be the same for an attachment, or a call's own id, to go back.
    attached_back: AttachedBack = AttachedBack::Host;
    /// The members of a message or call that it attaches and wants back, besides reasoning.
    attachments: Vec<String> = ["extra_content", "reasoning_details"].map(str::to_owned).to_vec();
    /// What calls get which lack the signature that the model attaches to its own.
    unsigned_calls: UnsignedCalls = UnsignedCalls::AsTheyAre;
    /// The form that ids of calls must have which the endpoint didn't give.
    call_ids: CallIds = CallIds::Any;
    /// The length of such ids at most.
    call_ids_max: usize = 64;
    /// Whether a message of the user may follow results of tools directly.
    user_after_tool: bool = true;
    /// What stands for the text of an answer that only has calls.
    content_beside_calls: ContentBesideCalls = ContentBesideCalls::Null;
    /// What stands for a message or result without text; it is sent as it is if this is empty.
    empty_text: String = "[empty]".to_owned();
    /// The dialect of JSON Schema for the arguments of tools.
    schema: SchemaDialect = SchemaDialect::OpenAi;
    /// The characters of a tool's description at most.
    tool_description_max: usize = 65_536;
    /// The number of tools at most; further ones are left out.
    tools_max: usize = 65_536;
    /// Whether tools and a schema of the answer may be given together.
    schema_with_tools: bool = true;
    /// How it can be held to a form of its answer.
    response_format: ResponseFormat = ResponseFormat::JsonSchema;
    /// Whether it can be held to a JSON object of any form.
    json_object: bool = true;
    /// Whether requests with tools must go to the Responses API of the same address.
    tools_at_responses: ToolsAtResponses = ToolsAtResponses::Never;
    /// The ways to choose a tool that are accepted, besides leaving it to the model.
    tool_choice: Vec<ToolChoiceWord> =
        vec![ToolChoiceWord::None, ToolChoiceWord::Required, ToolChoiceWord::Named];
    /// Whether a tool may be demanded while the model thinks.
    forced_while_thinking: bool = true;
    /// Whether `parallel_tool_calls` is accepted.
    parallel_tool_calls: bool = true;
    /// The bytes of a picture at most, as Base64.
    picture_bytes_max: usize = 20 * 1024 * 1024;
    /// The media types of pictures that are accepted.
    picture_kinds: Vec<String> =
        ["image/png", "image/jpeg", "image/gif", "image/webp"].map(str::to_owned).to_vec();
    /// Whether pictures may be given by their address.
    picture_urls: bool = true;
    /// How PDF files are given.
    pdf: Pdf = Pdf::File;
    /// Whether audio is accepted.
    audio: bool = true;
    /// Whether `stream_options` is accepted; without it, usage must come by itself.
    stream_options: bool = true;
    /// Whether `prompt_cache_key` is accepted.
    prompt_cache_key: bool = false;
    /// Whether the Responses API may be asked for encrypted reasoning.
    encrypted_reasoning: bool = true;
    /// How the Messages API is asked to think.
    thinking: ThinkingForm = ThinkingForm::Budget;
    /// How the Messages API is told not to think.
    thinking_off: ThinkingOff = ThinkingOff::LeftOut;
    /// Whether thinking is bound to everything before it.
    thinking_bound: bool = false;
    /// Whether it may be told to drop such thinking where what was before it has changed.
    drop_block: bool = false;
    /// Whether thoughts are only counted in the total.
    thoughts_only_in_total: bool = false;
    /// Whether streams may end without a reason.
    end_without_reason: bool = false;
}

/// All efforts.
pub(super) const EFFORTS: [ReasoningEffort; 7] = [
    ReasoningEffort::None,
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::XHigh,
    ReasoningEffort::Max,
];

/// Declares an enum whose variants are words of the table.
macro_rules! words {
    ($($(#[$doc:meta])+ $name:ident { $($(#[$variant_doc:meta])+ $variant:ident = $word:literal,)+ })+) => {
        $(
            $(#[$doc])+
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
            pub enum $name {
                $($(#[$variant_doc])+ #[serde(rename = $word)] $variant,)+
            }

            impl $name {
                /// The words for the variants.
                pub const WORDS: &[&str] = &[$($word),+];

                /// The word.
                pub const fn as_str(self) -> &'static str {
                    match self { $(Self::$variant => $word,)+ }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.as_str())
                }
            }
        )+
    };
}

words! {
    /// The member that limits the tokens of an answer.
    OutputLimit {
        /// `max_tokens`.
        MaxTokens = "max_tokens",
        /// `max_completion_tokens`.
        MaxCompletionTokens = "max_completion_tokens",
    }
    /// The role of the system prompt.
    SystemRole {
        /// `system`.
        System = "system",
        /// `developer`.
        Developer = "developer",
        /// There is none: it stands before the first message of the user.
        User = "user",
    }
    /// Whether a sampling parameter is accepted. One that only accepts its default is left out.
    Sampling {
        /// It is.
        Any = "any",
        /// It isn't.
        None = "none",
        /// Only if the effort is `none`, in so many words.
        WithoutEffort = "without_effort",
    }
    /// A member that turns thinking on and off.
    ThinkingSwitch {
        /// There is none.
        None = "none",
        /// `thinking: {"type": "enabled"}` or `disabled`.
        Thinking = "thinking",
        /// `enable_thinking`.
        EnableThinking = "enable_thinking",
    }
    /// The member in which reasoning goes back. Reasoning only goes back to the host that gave it.
    ReasoningBack {
        /// It doesn't.
        None = "none",
        /// `reasoning_content`.
        ReasoningContent = "reasoning_content",
        /// `reasoning`.
        Reasoning = "reasoning",
        /// `reasoning_details`, unchanged; `reasoning` if there are none.
        ReasoningDetails = "reasoning_details",
        /// Parts of the content of type `thinking`.
        Parts = "parts",
        /// The one that it came in.
        AsItCame = "as_it_came",
    }
    /// The turns with which reasoning goes back.
    ReasoningWhen {
        /// All.
        Always = "always",
        /// Those with calls.
        WithCalls = "with_calls",
    }
    /// What must be the same for an attachment to go back.
    AttachedBack {
        /// Protocol and host.
        Host = "host",
        /// The model, too.
        HostAndModel = "host_and_model",
        /// Nothing goes back.
        Nothing = "nothing",
    }
    /// What calls get which lack a signature.
    UnsignedCalls {
        /// Nothing.
        AsTheyAre = "as_they_are",
        /// The signature that Google documents for calls of other models.
        GoogleDummy = "google_dummy",
    }
    /// The form of ids of calls.
    CallIds {
        /// Letters, digits, `_` and `-`.
        Any = "any",
        /// Nine letters and digits.
        Nine = "nine",
        /// `functions.NAME:N`, where N counts the calls of the conversation.
        Functions = "functions",
    }
    /// What stands for the text of an answer that only has calls.
    ContentBesideCalls {
        /// `null`.
        Null = "null",
        /// An empty text.
        EmptyText = "empty_text",
    }
    /// A dialect of JSON Schema.
    SchemaDialect {
        /// All of JSON Schema.
        Plain = "plain",
        /// OpenAI's chat completions: an object without combinators at its root.
        OpenAi = "openai",
        /// OpenAI's Responses: also without `oneOf`.
        OpenAiResponses = "openai_responses",
        /// Messages: like OpenAI's, with names of members in a small alphabet.
        Anthropic = "anthropic",
        /// Gemini: a subset of OpenAPI.
        Gemini = "gemini",
        /// Moonshot's: each node has a type or alternatives, not both.
        Kimi = "kimi",
    }
    /// How a model can be held to a form of its answer.
    ResponseFormat {
        /// To a schema.
        JsonSchema = "json_schema",
        /// To an object.
        JsonObject = "json_object",
        /// Not at all.
        None = "none",
    }
    /// Whether requests with tools must go to the Responses API.
    ToolsAtResponses {
        /// They need not.
        Never = "never",
        /// Unless the effort is `none`, in so many words.
        UnlessEffortNone = "unless_effort_none",
        /// They must.
        Always = "always",
    }
    /// A way to choose a tool.
    ToolChoiceWord {
        /// `none`.
        None = "none",
        /// `required`.
        Required = "required",
        /// `any`, for the same.
        Any = "any",
        /// By its name.
        Named = "named",
    }
    /// How PDF files are given.
    Pdf {
        /// As a part of type `file`.
        File = "file",
        /// As a part of type `document_url`.
        DocumentUrl = "document_url",
        /// Not at all.
        None = "none",
    }
    /// How the Messages API is asked to think.
    ThinkingForm {
        /// With a number of tokens.
        Budget = "budget",
        /// With an effort; the model decides.
        Adaptive = "adaptive",
        /// Not at all.
        None = "none",
    }
    /// How the Messages API is told not to think.
    ThinkingOff {
        /// By leaving `thinking` out.
        LeftOut = "left_out",
        /// With `disabled`.
        Disabled = "disabled",
        /// With `between_tools`.
        BetweenTools = "between_tools",
        /// It always thinks.
        Impossible = "impossible",
    }
}

impl Rules {
    /// Whether the endpoint itself holds an answer to a schema, given whether the request has tools.
    pub fn enforces_schema(&self, tools: bool) -> bool {
        self.response_format == ResponseFormat::JsonSchema && (self.schema_with_tools || !tools)
    }

    /// The accepted effort that is nearest to `wanted`; `None` if the member is to be left out. An effort other than
    /// `none` never becomes `none`.
    pub fn effort(&self, wanted: ReasoningEffort) -> Option<ReasoningEffort> {
        let place = |effort: ReasoningEffort| EFFORTS.iter().position(|each| *each == effort);
        let is_none = |effort: ReasoningEffort| effort == ReasoningEffort::None;
        if self.efforts.contains(&wanted) {
            return Some(wanted);
        }
        let wanted = place(wanted)?;
        let thinking = self.efforts.iter().copied().filter(|each| !is_none(*each));
        // Of two that are equally near, the smaller one.
        thinking.min_by_key(|each| place(*each).map(|at| (at.abs_diff(wanted), at)))
    }

    /// Whether the tools of a request must go to the Responses API, given the effort that it asks for.
    pub fn needs_responses(&self, effort: Option<ReasoningEffort>) -> bool {
        let sent = effort.and_then(|effort| self.effort(effort));
        match self.tools_at_responses {
            ToolsAtResponses::Never => false,
            ToolsAtResponses::UnlessEffortNone => sent != Some(ReasoningEffort::None),
            ToolsAtResponses::Always => true,
        }
    }

    /// The `temperature` to send.
    pub fn temperature(&self, wanted: Option<f64>, effort: Option<ReasoningEffort>) -> Option<f64> {
        let wanted = wanted.filter(|_| self.temperature.accepts(effort))?;
        // Not `clamp`, which panics if an operator's bounds are the wrong way round.
        Some(wanted.max(self.temperature_min).min(self.temperature_max))
    }

    /// The `top_p` to send besides this `temperature`.
    pub fn top_p(
        &self,
        wanted: Option<f64>,
        temperature: Option<f64>,
        effort: Option<ReasoningEffort>,
    ) -> Option<f64> {
        let alone = self.both_samplings || temperature.is_none();
        wanted.filter(|_| alone && self.top_p.accepts(effort))
    }
}

impl Sampling {
    /// Whether the parameter is accepted if this effort is sent.
    fn accepts(self, effort: Option<ReasoningEffort>) -> bool {
        match self {
            Self::Any => true,
            Self::None => false,
            Self::WithoutEffort => effort == Some(ReasoningEffort::None),
        }
    }
}
