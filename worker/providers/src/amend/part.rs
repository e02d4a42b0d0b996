//! What of a request can be left out or written otherwise.

use std::fmt;

use super::tree::Node;

/// The form of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Chat,
    Messages,
    Responses,
}

impl Protocol {
    /// The member with the conversation.
    pub(super) const fn conversation(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Responses => "input",
        }
    }

    /// The type of a part with text that the user says.
    pub(super) const fn text_type(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "text",
            Self::Responses => "input_text",
        }
    }

    pub(super) fn text_part<'a>(self, text: &str) -> Node<'a> {
        Node::texts(&[("type", self.text_type()), ("text", text)])
    }
}

/// How far a tool's schema is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Only what any provider knows.
    Plain,
    /// Any object; the description shows the schema.
    Simplest,
    /// The tool is left out.
    Out,
}

/// A change to all requests to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Amendment {
    /// A member is left out; its path has at most two names.
    Without(String),
    /// The token limit has this name.
    LimitName(&'static str),
    /// The token limit is at most this.
    LimitMax(u64),
    /// The token limit and the request, of so many bytes for a thousand tokens, have at most these
    /// tokens together.
    Together { tokens: u64, bytes: u64 },
    /// The effort is one of these.
    Effort(Vec<&'static str>),
    /// The answer is not streamed.
    Whole,
    /// The model decides how much it thinks.
    Adaptive,
    /// The model does not think while it waits for results of calls before which it did not.
    NoThinkingInLoop,
    /// Messages, parts and calls do not have this member.
    Member(String),
    /// Tools do not have this member.
    ToolMember(String),
    /// Pictures and files with these contents are left out.
    Parts(Vec<u64>),
    /// Reasoning with these contents is left out; how often some was refused.
    Reasoning(Vec<u64>, u32),
    /// No reasoning goes back.
    NoReasoning,
    /// Nothing that was attached to messages and calls goes back.
    NoAttachments,
    /// Every answer of the model has reasoning, if need be an empty one.
    EmptyReasoning,
    /// Calls without a signature get the one that is not checked.
    DummySignatures,
    /// One tool, by its name.
    Tool(String, Cut),
    /// All tools.
    Schemas(Cut),
    /// Descriptions of tools have at most so many characters.
    Descriptions(usize),
    /// No pictures.
    NoPictures,
    /// No files and sounds.
    NoFiles,
    /// Ids have nine letters and digits.
    ShortIds,
    /// An answer stands between the results of tools and the user.
    Bridge,
    /// Messages of one role in a row are one.
    Alternate,
    /// The system prompt is said by the user.
    SystemAsUser,
    /// The user says the last word.
    EndWithUser,
    /// No content is empty.
    NoEmpty,
    /// The schema of the answer is told in words.
    NoSchema,
}

/// The names of the token limit.
pub(super) const LIMITS: [&str; 3] = ["max_completion_tokens", "max_tokens", "max_output_tokens"];

/// The efforts, from least to most.
pub(super) const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Types of parts.
pub(super) const PICTURES: [&str; 3] = ["image_url", "image", "input_image"];
pub(super) const FILES: [&str; 4] = ["file", "document", "input_file", "input_audio"];
pub(super) const REASONING: [&str; 3] = ["thinking", "redacted_thinking", "reasoning"];

/// Members of messages with reasoning.
pub(super) const THOUGHTS: [&str; 5] = [
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
    "reasoning_text",
];

impl Amendment {
    /// The kind, for metrics.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Without(_) => "member",
            Self::LimitName(_) | Self::LimitMax(_) | Self::Together { .. } => "token_limit",
            Self::Effort(_) | Self::Adaptive | Self::NoThinkingInLoop => "effort",
            Self::Whole => "stream",
            Self::Member(_) => "message_member",
            Self::ToolMember(_) | Self::Descriptions(_) => "tool_member",
            Self::Parts(_) => "part",
            Self::Reasoning(..) | Self::NoReasoning | Self::EmptyReasoning => "reasoning",
            Self::NoAttachments | Self::DummySignatures => "attachment",
            Self::Tool(_, Cut::Plain | Cut::Simplest)
            | Self::Schemas(Cut::Plain | Cut::Simplest) => "tool_schema",
            Self::Tool(_, Cut::Out) | Self::Schemas(Cut::Out) => "tool",
            Self::NoPictures => "picture",
            Self::NoFiles => "file",
            Self::ShortIds => "call_id",
            Self::Bridge | Self::Alternate | Self::SystemAsUser | Self::EndWithUser => "order",
            Self::NoEmpty => "empty_content",
            Self::NoSchema => "output_schema",
        }
    }

    /// Whether a later change takes the place of this one, or is added to it.
    pub(super) fn replaced_by(&self, later: &Self) -> bool {
        match (self, later) {
            (Self::Tool(own, _), Self::Tool(other, _)) => own == other,
            (Self::Parts(_), Self::Parts(_))
            | (Self::Reasoning(..), Self::Reasoning(..))
            | (Self::Schemas(_), Self::Schemas(_))
            | (Self::LimitMax(_), Self::LimitMax(_))
            | (Self::Together { .. }, Self::Together { .. })
            | (Self::Effort(_), Self::Effort(_)) => true,
            (own, other) => own == other,
        }
    }
}

impl fmt::Display for Amendment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Without(path) => write!(f, "the member {path:?}"),
            Self::LimitName(name) => write!(f, "the token limit, which it calls {name:?}"),
            Self::LimitMax(most) => write!(f, "the token limit, which may be {most}"),
            Self::Together { tokens, .. } => {
                write!(f, "the token limit, of {tokens} tokens in a minute")
            }
            Self::Effort(_) => f.write_str("the reasoning effort"),
            Self::Whole => f.write_str("the stream"),
            Self::NoThinkingInLoop => f.write_str("thinking between calls"),
            Self::Adaptive => f.write_str("the number of thinking tokens"),
            Self::Member(name) => write!(f, "the member {name:?} of messages"),
            Self::ToolMember(name) => write!(f, "the member {name:?} of tools"),
            Self::Parts(_) => f.write_str("a picture or a file in the conversation"),
            Self::Reasoning(..) | Self::NoReasoning => f.write_str("earlier reasoning"),
            Self::NoAttachments => f.write_str("attachments of earlier answers"),
            Self::EmptyReasoning => f.write_str("answers without reasoning"),
            Self::DummySignatures => f.write_str("calls without a signature"),
            Self::Tool(name, Cut::Out) => write!(f, "the tool {name:?}"),
            Self::Tool(name, Cut::Plain | Cut::Simplest) => {
                write!(f, "the schema of the tool {name:?}")
            }
            Self::Schemas(Cut::Out) => f.write_str("all tools"),
            Self::Schemas(Cut::Plain | Cut::Simplest) => f.write_str("the schemas of tools"),
            Self::Descriptions(_) => f.write_str("long descriptions of tools"),
            Self::NoPictures => f.write_str("pictures"),
            Self::NoFiles => f.write_str("files"),
            Self::ShortIds => f.write_str("the ids of calls"),
            Self::Bridge => f.write_str("a user's message after the results of tools"),
            Self::Alternate => f.write_str("messages of one role in a row"),
            Self::SystemAsUser => f.write_str("the system prompt"),
            Self::EndWithUser => f.write_str("an answer as the last message"),
            Self::NoEmpty => f.write_str("empty contents"),
            Self::NoSchema => f.write_str("the schema of the answer"),
        }
    }
}

/// The name of a tool.
pub(super) fn tool_name(tool: &Node<'_>) -> Option<String> {
    tool.get("function").unwrap_or(tool).text_of("name")
}
