//! The messages of chat completions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mainspring_shared::message::{Attached, ContentPart, Message, Origin, ToolCall};
use mainspring_worker::llm::{Error, Request};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::parts::{Content, Part, Thought, parts, text};
use crate::rules::{
    ContentBesideCalls, ReasoningBack, ReasoningWhen, Rules, SystemRole, UnsignedCalls,
};
use crate::tools::Tools;
use crate::transcript::{Receiver, ToolResult, Turn, has_media, turns};

/// The member of a message with its text.
const CONTENT: &str = "content";

/// What the model is taken to say between results and a message of the user, where those may not follow one another.
const BRIDGE: &str = "I have the results.";

/// The member that stands for reasoning of which nobody knows how it came.
const REASONING_CONTENT: &str = "reasoning_content";

/// Members under which endpoints give reasoning.
const REASONING: &[&str] = &[
    REASONING_CONTENT,
    "reasoning",
    "thinking",
    "thinking_content",
    "reasoning_text",
    "thought",
];

#[derive(serde::Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum WireMessage<'a> {
    System {
        content: Cow<'a, str>,
    },
    Developer {
        content: Cow<'a, str>,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        /// Always present, even if empty: some servers require the member.
        content: Option<Content<'a>>,
        #[serde(flatten)]
        members: Members<'a>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<CallWithId<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: Cow<'a, str>,
    },
}

#[derive(serde::Serialize)]
pub(super) struct CallWithId<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: FunctionCall<'a>,
    #[serde(flatten)]
    members: Members<'a>,
}

#[derive(serde::Serialize)]
struct FunctionCall<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

/// Further members of a message or call.
#[derive(Default)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, Member)>);

enum Member {
    Text(String),
    /// As it came, to the byte.
    Raw(Box<RawValue>),
    Value(Value),
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, member) in &self.0 {
            match member {
                Member::Text(text) => map.serialize_entry(name, text)?,
                Member::Raw(raw) => map.serialize_entry(name, raw)?,
                Member::Value(value) => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// All messages of a request to `receiver`.
pub(super) fn messages<'a>(
    request: &'a Request,
    system: Option<Cow<'a, str>>,
    (rules, tools): (&'a Rules, &'a Tools<'a>),
    receiver: Receiver<'a>,
) -> Result<Vec<WireMessage<'a>>, Error> {
    let mut writer = Writer {
        rules,
        tools,
        receiver,
        messages: Vec::with_capacity(request.messages.len() + 1),
        ids: Vec::new(),
    };
    writer
        .messages
        .extend(system.map(|content| match rules.system {
            SystemRole::System => WireMessage::System { content },
            SystemRole::Developer => WireMessage::Developer { content },
            SystemRole::User => WireMessage::User {
                content: Content::Text(content),
            },
        }));
    for turn in turns(&request.messages) {
        writer.push(turn)?;
    }
    if let Some(tail) = &request.tail {
        writer.push_tail(tail);
    }
    Ok(writer.messages)
}

struct Writer<'a> {
    rules: &'a Rules,
    tools: &'a Tools<'a>,
    receiver: Receiver<'a>,
    messages: Vec<WireMessage<'a>>,
    /// The ids of the calls that were pushed last.
    ids: Vec<Cow<'a, str>>,
}

impl<'a> Writer<'a> {
    fn push(&mut self, turn: Turn<'a>) -> Result<(), Error> {
        match turn {
            Turn::User { text, message } => {
                let content = if has_media(message) {
                    Content::Parts(parts(&message.content, self.rules)?)
                } else {
                    Content::Text(self.filled(text))
                };
                self.push_user(content);
            }
            Turn::Assistant { text, message } => self.push_answer(text, message),
            Turn::Results(results) => self.push_results(results)?,
        }
        Ok(())
    }

    /// A text, or what stands for it if it says nothing.
    fn filled(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        if text.trim().is_empty() && !self.rules.empty_text.is_empty() {
            Cow::Borrowed(&self.rules.empty_text)
        } else {
            text
        }
    }

    fn push_user(&mut self, content: Content<'a>) {
        let after_tool = matches!(self.messages.last(), Some(WireMessage::Tool { .. }));
        if after_tool && !self.rules.user_after_tool {
            self.messages.push(WireMessage::Assistant {
                content: Some(Content::Text(Cow::Borrowed(BRIDGE))),
                members: Members::default(),
                tool_calls: Vec::new(),
            });
        }
        self.messages.push(WireMessage::User { content });
    }

    fn push_answer(&mut self, text: Cow<'a, str>, message: &'a Message) {
        self.ids = self.receiver.ids(&message.tool_calls);
        let mut members = Members::default();
        let thoughts = self.reasoning(message, &mut members);
        let said = Some(text).filter(|text| !text.trim().is_empty());
        let whole = self.whole_text(message);
        let content = match (thoughts, said) {
            // The thoughts are in it.
            _ if whole.is_some() => whole.map(|text| Content::Text(Cow::Owned(text))),
            (Some(mut thoughts), said) => {
                thoughts.extend(said.map(|text| Part::Text { text }));
                Some(Content::Parts(thoughts))
            }
            (None, Some(said)) => Some(Content::Text(said)),
            (None, None) => match self.rules.content_beside_calls {
                ContentBesideCalls::Null => None,
                ContentBesideCalls::EmptyText => Some(Content::Text(Cow::Borrowed(""))),
            },
        };
        let mut tool_calls: Vec<_> = message
            .tool_calls
            .iter()
            .zip(&self.ids)
            .map(|(call, id)| self.call(call, id.clone()))
            .collect();
        if self.rules.unsigned_calls == UnsignedCalls::GoogleDummy {
            sign(&mut tool_calls);
        }
        self.messages.push(WireMessage::Assistant {
            content,
            members,
            tool_calls,
        });
    }

    /// The text with the thoughts in it, where this endpoint wants it back so.
    fn whole_text(&self, message: &'a Message) -> Option<String> {
        let is_it = |attached: &&Attached| attached.origin.member.as_deref() == Some(CONTENT);
        let whole = self.attached(message).find(is_it)?;
        serde_json::from_str(&whole.json).ok()
    }

    /// Adds what goes back of the model's own reasoning to the members, or returns it as parts of the content.
    fn reasoning(&self, message: &'a Message, members: &mut Members<'a>) -> Option<Vec<Part<'a>>> {
        let rules = self.rules;
        let mut has_details = false;
        for attached in self.attached(message) {
            let name = attached.origin.member.as_deref().unwrap_or_default();
            if name == CONTENT {
                return None;
            }
            if let Ok(raw) = RawValue::from_string(attached.json.clone()) {
                has_details |= name == "reasoning_details";
                members.0.push((Cow::Borrowed(name), Member::Raw(raw)));
            }
        }
        let timely = match rules.reasoning_when {
            ReasoningWhen::Always => true,
            ReasoningWhen::WithCalls => !message.tool_calls.is_empty(),
        };
        let own: Vec<_> = message
            .content
            .iter()
            .filter_map(|part| self.own_thought(part))
            .filter(|_| timely)
            .collect();
        let came_in = own
            .iter()
            .find_map(|(_, origin)| origin.and_then(|o| o.member.as_deref()));
        let member = match rules.reasoning_back {
            ReasoningBack::None => return None,
            ReasoningBack::ReasoningContent => REASONING_CONTENT,
            ReasoningBack::ReasoningDetails if has_details => return None,
            ReasoningBack::Reasoning | ReasoningBack::ReasoningDetails => "reasoning",
            ReasoningBack::AsItCame if came_in != Some("content") => came_in
                .filter(|name| REASONING.contains(name))
                .unwrap_or(REASONING_CONTENT),
            ReasoningBack::Parts | ReasoningBack::AsItCame => {
                let thoughts = own.into_iter().map(|(text, _)| Part::Thinking {
                    thinking: [Thought::Text { text }],
                    closed: true,
                });
                return Some(thoughts.collect()).filter(|parts: &Vec<_>| !parts.is_empty());
            }
        };
        let texts: Vec<_> = own.into_iter().map(|(text, _)| text).collect();
        let text = texts.join("\n\n");
        if !text.is_empty() || (rules.reasoning_empty && timely) {
            members.0.push((Cow::Borrowed(member), Member::Text(text)));
        }
        None
    }

    /// The text of a thought that this endpoint gave. Of older ones nobody knows; if they are signed, they are of
    /// another protocol.
    fn own_thought(&self, part: &'a ContentPart) -> Option<(&'a str, Option<&'a Origin>)> {
        match part {
            ContentPart::Reasoning {
                text,
                signature,
                origin,
            } => {
                let own = match origin.as_deref() {
                    Some(origin) => self.receiver.gave(origin),
                    None => signature.is_none(),
                };
                (own && !text.is_empty()).then_some((text, origin.as_deref()))
            }
            ContentPart::Text { .. }
            | ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. }
            | ContentPart::Attached(_) => None,
        }
    }

    /// What this endpoint attached to a message and takes back.
    fn attached(&self, message: &'a Message) -> impl Iterator<Item = &'a Attached> {
        message.content.iter().filter_map(|part| match part {
            ContentPart::Attached(attached) if self.receiver.gave(&attached.origin) => {
                let name = attached.origin.member.as_deref()?;
                self.rules
                    .attachments
                    .iter()
                    .any(|it| it == name)
                    .then_some(attached)
            }
            ContentPart::Attached(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Text { .. }
            | ContentPart::Image { .. }
            | ContentPart::File { .. }
            | ContentPart::Digest { .. } => None,
        })
    }

    fn call(&self, call: &'a ToolCall, id: Cow<'a, str>) -> CallWithId<'a> {
        let attached = self
            .receiver
            .attached(call)
            .and_then(|it| it.json.as_deref());
        let attached: BTreeMap<String, Box<RawValue>> = attached
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default();
        let members = attached
            .into_iter()
            .filter(|(name, _)| self.rules.attachments.contains(name))
            .map(|(name, value)| (Cow::Owned(name), Member::Raw(value)));
        CallWithId {
            id,
            r#type: "function",
            function: FunctionCall {
                name: self.tools.name(&call.name),
                arguments: self.tools.arguments(call).into_owned(),
            },
            members: Members(members.collect()),
        }
    }

    /// A tool message only takes text; other content follows after all of them.
    fn push_results(&mut self, results: Vec<ToolResult<'a>>) -> Result<(), Error> {
        let mut shown = Vec::new();
        let ids = std::mem::take(&mut self.ids);
        for (result, id) in results.into_iter().zip(ids) {
            let message = result.message.filter(|message| has_media(message));
            let mut content = result.text;
            if let Some(message) = message {
                shown.push(text(format!("[non-text output of the call {id}]")));
                let media = message.content.iter();
                let media = media.filter(|part| !matches!(part, ContentPart::Text { .. }));
                shown.extend(parts(media, self.rules)?);
                if content.trim().is_empty() {
                    content = Cow::Borrowed("[see the next message]");
                }
            }
            self.messages.push(WireMessage::Tool {
                tool_call_id: id,
                content: self.filled(content),
            });
        }
        if !shown.is_empty() {
            self.push_user(Content::Parts(shown));
        }
        Ok(())
    }

    /// Appends the tail to the user's turn. Tool messages only take results, so a new turn is begun after them, where
    /// that is allowed.
    fn push_tail(&mut self, tail: &'a str) {
        let append = |text: &mut Cow<'a, str>| {
            let text = text.to_mut();
            text.push_str("\n\n");
            text.push_str(tail);
        };
        match self.messages.last_mut() {
            Some(WireMessage::User {
                content: Content::Text(text),
            }) => append(text),
            Some(WireMessage::User {
                content: Content::Parts(parts),
            }) => parts.push(Part::Text {
                text: Cow::Borrowed(tail),
            }),
            Some(WireMessage::Tool { content, .. }) if !self.rules.user_after_tool => {
                append(content);
            }
            _ => self.messages.push(WireMessage::User {
                content: Content::Text(Cow::Borrowed(tail)),
            }),
        }
    }
}

/// Gives the first of a turn's calls the signature that Google documents for calls of other models, if none is signed:
/// the first one of parallel calls suffices.
fn sign(calls: &mut [CallWithId<'_>]) {
    let is_signed = |call: &CallWithId<'_>| {
        let mut names = call.members.0.iter().map(|(name, _)| name);
        names.any(|name| name == "extra_content")
    };
    if calls.iter().any(is_signed) {
        return;
    }
    if let Some(first) = calls.first_mut() {
        let signature =
            json!({ "google": { "thought_signature": "skip_thought_signature_validator" } });
        let member = (Cow::Borrowed("extra_content"), Member::Value(signature));
        first.members.0.push(member);
    }
}
