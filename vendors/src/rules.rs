//! A vendor's rules as its file says them.

use std::collections::BTreeMap;

use globset::GlobMatcher;
use serde::Deserialize;
use serde_json::Value;

use crate::kind::Kind;
use crate::path::Path;

/// What one vendor's endpoint takes, refuses and answers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Its short name, which is the file's too.
    pub name: String,
    /// Its name for people.
    pub title: String,
    pub protocol: Protocol,
    /// What the path of a request ends with.
    pub path: String,
    /// Emulators of the same vendor's other protocols, which are served beside this one.
    #[serde(default)]
    pub beside: Vec<String>,
    /// How it refuses where a rule says no more than its message.
    pub form: Form,
    /// The models that it serves, in the order of its list.
    pub model: Vec<Model>,
    /// Which members objects may have.
    #[serde(default)]
    pub members: Vec<Members>,
    /// What else it refuses.
    #[serde(default)]
    pub rule: Vec<Rule>,
    /// How it says that a prompt is too long.
    pub overflow: Option<Overflow>,
    #[serde(default)]
    pub answer: Style,
    #[serde(default)]
    pub usage: UsageStyle,
    /// Errors that a script may ask for, by name.
    #[serde(default)]
    pub errors: BTreeMap<String, Refusal>,
}

/// The protocols that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

/// The body of a refusal. `{message}`, `{type}`, `{code}` and `{param}` are filled in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    pub status: u16,
    pub body: String,
    #[serde(default, rename = "type")]
    pub kind: String,
}

/// One model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    /// Names that requests may use for it: deployments, dated names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Tokens that prompt and answer share.
    pub window: u64,
    /// The most tokens of one answer.
    pub output: u64,
    #[serde(default)]
    pub price: Price,
    #[serde(default)]
    pub thinks: Thinks,
    pub source: String,
    pub date: String,
}

/// When a model thinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thinks {
    #[default]
    Never,
    /// If a request asks for it.
    WhenAsked,
    /// Unless a request forbids it.
    ByItself,
}

/// Dollars for a million tokens.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Price {
    pub input: f64,
    pub read: Option<f64>,
    pub write: Option<f64>,
    pub output: f64,
}

/// Which members the objects at one place may have. Of several tables for one place the first that names a
/// member decides about it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    pub id: String,
    /// Where the objects are; empty for the request itself.
    #[serde(default)]
    pub at: Option<Path>,
    #[serde(default)]
    pub model: Models,
    pub allow: BTreeMap<String, Kind>,
    #[serde(default)]
    pub required: Vec<String>,
    /// How a member that is not allowed is refused; absent: it is ignored.
    pub unknown: Option<Refusal>,
    /// How a value of another kind is refused.
    #[serde(default)]
    pub wrong: Refusal,
    pub source: String,
    pub date: String,
}

/// Something that a request must not have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    #[serde(default)]
    pub model: Models,
    /// Models that it does not hold for.
    #[serde(default)]
    pub except: Models,
    /// What else must hold of the request.
    #[serde(default)]
    pub when: Vec<Condition>,
    /// What makes it not hold.
    #[serde(default)]
    pub unless: Vec<Condition>,
    pub refuse: Check,
    /// The vendor answers as if nothing were wrong, and the conversation suffers: what was sent is dropped,
    /// or the model derails. The request is judged all the same.
    #[serde(default)]
    pub silent: bool,
    #[serde(default)]
    pub answer: Refusal,
    pub source: String,
    pub date: String,
    /// A request that breaks the rule where none can be made from it: members to be put, by path.
    #[serde(default)]
    pub breaks: BTreeMap<String, Value>,
}

/// Models by pattern; none: each.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Models(Vec<GlobMatcher>);

impl TryFrom<Vec<String>> for Models {
    type Error = String;

    fn try_from(patterns: Vec<String>) -> Result<Self, String> {
        patterns
            .iter()
            .map(|pattern| {
                globset::Glob::new(pattern)
                    .map(|glob| glob.compile_matcher())
                    .map_err(|error| error.to_string())
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Models {
    /// Whether no pattern is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of the patterns matches.
    pub fn name(&self, model: &str) -> bool {
        self.0.iter().any(|glob| glob.is_match(model))
    }
}

impl Rule {
    /// Whether the rule holds for a model.
    pub fn is_about(&self, model: &str) -> bool {
        (self.model.is_empty() || self.model.name(model)) && !self.except.name(model)
    }
}

/// A condition on one member, which holds if some place that the path leads to meets all that is said.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    pub at: Path,
    pub is: Option<Is>,
    pub equals: Option<Value>,
    /// It is there and something else.
    pub not: Option<Value>,
    pub any_of: Option<Vec<Value>>,
    /// It is there and none of these.
    pub none_of: Option<Vec<Value>>,
    pub matches: Option<Pattern>,
    /// It is a text and does not match.
    pub not_matches: Option<Pattern>,
    pub over: Option<f64>,
    pub under: Option<f64>,
    /// Characters of a text, elements of a list.
    pub longer: Option<usize>,
}

/// What a value is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Is {
    Present,
    Absent,
    Null,
    /// Nothing in it: `""`, `[]`, `{}`.
    Empty,
    /// Empty or white.
    Blank,
    /// Absent, null or empty.
    Missing,
    Text,
    List,
    Object,
    /// A text that is not JSON.
    NotJson,
}

/// A regular expression.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(regex::Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        regex::Regex::new(&text)
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

impl Pattern {
    /// Whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// What a rule looks for.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// A member that meets a condition.
    Value(Box<Condition>),
    /// A turn of the first role followed directly by one of the second.
    Sequence([Role; 2]),
    /// The last turn is of one of these roles.
    Last(Vec<Role>),
    /// A system message elsewhere than at the beginning.
    LaterSystem(bool),
    /// No turn of the user's at all.
    NoUser(bool),
    /// Calls whose results are missing or are not where this vendor wants them.
    Results(Results),
    /// One id for two calls.
    RepeatedIds(bool),
    /// Names of calls that no tool has.
    UndeclaredCalls(bool),
    /// Schemas of tools outside of what the vendor takes.
    Schema(Dialect),
    /// What an earlier answer gave and has to come back.
    Echo(Echo),
    /// Pictures that are too large, encoded, or too many.
    Pictures(Pictures),
    /// More marks for caches than this.
    Marks(usize),
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// Where results have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Results {
    /// All of them, directly behind their calls.
    DirectlyBehind,
    /// All of them, anywhere behind.
    Somewhere,
}

/// What schemas of tools must not have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of a file")]
pub struct Dialect {
    /// Keywords that no node may have.
    pub deny: Vec<String>,
    /// Keywords that the root may not have.
    pub deny_at_root: Vec<String>,
    /// The root has to say `type: object`.
    pub root_is_object: bool,
    /// Objects need `properties`; `root` at the root alone.
    pub needs_properties: Option<Where>,
    /// Objects need at least one property below the root.
    pub no_empty_objects: bool,
    /// Nodes need `type` or `anyOf` (or `$ref`).
    pub needs_type: bool,
    /// `anyOf` beside `type`.
    pub no_type_beside_any_of: bool,
    /// Arrays need `items`.
    pub needs_items: bool,
    /// Members of an enumeration are texts with something in them.
    pub enum_of_texts: bool,
    /// What names of properties have to match.
    pub keys: Option<Pattern>,
    /// `type` given as a list.
    pub no_type_lists: bool,
}

/// Which objects of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Where {
    Root,
    Everywhere,
}

/// What has to come back.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Echo {
    /// Below an assistant message: `reasoning_content`, `tool_calls[].id`.
    pub member: Path,
    pub need: Need,
    /// Which assistant messages.
    #[serde(default)]
    pub on: On,
    /// Only behind the last message of the user's.
    #[serde(default)]
    pub this_turn: bool,
    /// Of parallel calls only the first.
    #[serde(default)]
    pub first_only: bool,
    /// Values that the vendor takes for those that it did not give.
    #[serde(default)]
    pub instead: Vec<String>,
}

/// What is needed of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// It is there, be it empty.
    Present,
    /// If it is there, this vendor gave it, to this answer.
    Own,
    /// On answers that this vendor gave it is what it gave.
    Equal,
    /// What comes back of it, if it does, is as this vendor gave it.
    Unchanged,
    /// The prefix of the conversation is the one that it was given behind.
    Bound,
    /// The pieces of the answer come in the order in which they were given.
    Order,
}

/// Which assistant messages a rule is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    #[default]
    All,
    WithCalls,
}

/// Bounds on pictures.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pictures {
    /// Characters of base64 of one picture.
    pub encoded_max: Option<usize>,
    pub count_max: Option<usize>,
    /// Links are not fetched.
    pub no_links: bool,
}

/// How a request is refused.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Refusal {
    pub status: Option<u16>,
    pub message: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub code: Option<Value>,
    pub param: Option<String>,
    /// The whole body, instead of the vendor's form.
    pub body: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What a client should take it for.
    pub class: Option<String>,
    /// Sent as an event of a stream that began well.
    pub in_stream: bool,
    pub source: Option<String>,
    pub date: Option<String>,
}

/// When a prompt is too long, and how that is said.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overflow {
    /// Whether the limit of the answer is counted too.
    #[serde(default)]
    pub with_limit: bool,
    /// The prompt is cut and nothing is said.
    #[serde(default)]
    pub silent: bool,
    pub answer: Refusal,
    pub source: String,
    pub date: String,
}

/// How answers look.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of a file")]
pub struct Style {
    /// Where thinking is: the member (`reasoning_content`, `reasoning`, `reasoning_details`, `thinking_blocks`),
    /// `parts` of the content, a `tag` in its text, or `none`.
    pub reasoning: String,
    /// `{hex}` 24 digits, `{nine}` nine letters and digits, `{name}` the tool, `{n}` a counter over the conversation.
    pub ids: String,
    /// Whether pieces of calls say which call they belong to.
    pub index: bool,
    pub finish_with_calls: String,
    /// The content beside calls without a text is `""`, not `null`.
    pub empty_content: bool,
    /// Arguments in one piece.
    pub whole_arguments: bool,
    /// A signature on the first call: `google` or nothing.
    pub signature: Option<String>,
    /// Streams end with `[DONE]`.
    pub done: bool,
    /// Thinking comes back with the answer in a client that does as the vendor says.
    pub give_back: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            reasoning: "none".to_owned(),
            ids: "call_{hex}".to_owned(),
            index: true,
            finish_with_calls: "tool_calls".to_owned(),
            empty_content: false,
            whole_arguments: false,
            signature: None,
            done: true,
            give_back: false,
        }
    }
}

/// How tokens are told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageStyle {
    /// Where tokens read from a cache are; absent: not told, and not counted.
    pub cached: Option<Path>,
    /// Where tokens written to a cache are.
    pub written: Option<Path>,
    /// Where tokens of thinking are.
    pub thinking: Option<Path>,
    /// Thinking is only in the total, not in `completion_tokens`.
    pub thinking_apart: bool,
    /// Each piece of a stream tells the tokens so far.
    pub every_piece: bool,
}
