//! The digest of a request.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{Request, ToolSpec};
use crate::agent::{OutputSpec, ReasoningEffort, ToolChoice};
use crate::json::Sorted;
use crate::message::{ContentPart, Message, Role, ToolCall};

/// SHA-256 of what a model is shown and how it should answer, in a provider-independent form. Equal
/// digests mean equal requests, no matter who rendered them: a worker with a warm cache, a cold
/// one, one that took the send over, or a preview.
///
/// Storage and caching details are not part of it: `seq`, ids of sends, times and the cache key do
/// not count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is `sha256:` and 64 hexadecimal digits")]
pub struct InvalidDigest;

const PREFIX: &str = "sha256:";

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.strip_prefix(PREFIX).ok_or(InvalidDigest)?;
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            let pair = &digits[at..at + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Request {
    /// Identifies what the model is shown.
    pub fn digest(&self) -> Digest {
        let mut hasher = Sha256::new();
        let written = serde_json::to_writer(Hashed(&mut hasher), &Canonical::of(self));
        debug_assert!(written.is_ok(), "a hash takes whatever is written to it");
        Digest(hasher.finalize().into())
    }

    /// The text that is hashed: canonical JSON, with the members in a fixed order, the one in which
    /// providers read them. Requests with a common prefix have texts with a common prefix.
    pub fn canonical(&self) -> String {
        serde_json::to_string(&Canonical::of(self)).unwrap_or_default()
    }
}

struct Hashed<'a>(&'a mut Sha256);

impl io::Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request in the form that is hashed. The members of schemas and options are sorted by name; calls are as the model
/// wrote them.
#[derive(Serialize)]
struct Canonical<'a> {
    model: &'a str,
    max_tokens: u32,
    temperature: Option<f64>,
    top_p: Option<f64>,
    stop: &'a [String],
    reasoning_effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_tokens: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    adaptive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    images_max_edge: Option<u32>,
    output: Option<ByName<'a, OutputSpec>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    json_object: bool,
    #[serde(skip_serializing_if = "ToolChoice::is_auto")]
    tool_choice: &'a ToolChoice,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_options: Option<ByName<'a, Map<String, Value>>>,
    tools: Vec<Tool<'a>>,
    system: Option<&'a str>,
    messages: Messages<'a>,
    tail: Option<&'a str>,
}

impl<'a> Canonical<'a> {
    fn of(request: &'a Request) -> Self {
        // Destructured, so that a new member does not compile until it is handled here.
        let Request {
            model,
            system,
            messages,
            max_tokens,
            tail,
            settled: _,
            settled_before: _,
            window: _,
            cache_key: _,
            background: _,
            temperature,
            top_p,
            stop,
            reasoning_effort,
            thinking_tokens,
            adaptive,
            tools,
            images_max_edge,
            output,
            tool_choice,
            parallel_tool_calls,
            json_object,
            model_options,
        } = request;
        Self {
            model,
            max_tokens: *max_tokens,
            temperature: *temperature,
            top_p: *top_p,
            stop,
            reasoning_effort: *reasoning_effort,
            thinking_tokens: *thinking_tokens,
            adaptive: *adaptive,
            images_max_edge: *images_max_edge,
            output: output.as_deref().map(ByName),
            json_object: *json_object,
            tool_choice,
            parallel_tool_calls: *parallel_tool_calls,
            model_options: model_options.as_deref().map(ByName),
            tools: tools.iter().map(|tool| Tool::of(tool)).collect(),
            system: system.as_deref(),
            messages: Messages(messages),
            tail: tail.as_deref(),
        }
    }
}

/// Serializes as its JSON with all members sorted.
struct ByName<'a, T>(&'a T);

impl<T: Serialize> Serialize for ByName<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(self.0).map_err(serde::ser::Error::custom)?;
        Sorted(&value).serialize(serializer)
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Sorted<'a>,
}

impl<'a> Tool<'a> {
    fn of(tool: &'a ToolSpec) -> Self {
        Self {
            name: &tool.name,
            description: &tool.description,
            parameters: Sorted(&tool.parameters),
        }
    }
}

struct Messages<'a>(&'a [Arc<Message>]);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|message| Line::of(message)))
    }
}

/// The parts of a message that are shown to the model.
struct Content<'a>(&'a [ContentPart]);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().filter(|part| part.is_content()))
    }
}

/// A message as the model sees it.
#[derive(Serialize)]
struct Line<'a> {
    role: Role,
    content: Content<'a>,
    #[serde(skip_serializing_if = "<[ToolCall]>::is_empty")]
    tool_calls: &'a [ToolCall],
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

impl<'a> Line<'a> {
    fn of(message: &'a Message) -> Self {
        Self {
            role: message.role,
            content: Content(&message.content),
            tool_calls: &message.tool_calls,
            tool_call_id: message.tool_call_id.as_deref(),
            name: message.name.as_deref(),
            failed: message.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::id::SendId;
    use crate::message::NewMessage;
    use crate::time::Timestamp;

    fn request(at: i64) -> Request {
        let said = NewMessage::user(vec![ContentPart::text("hello")], 0);
        let tool = ToolSpec {
            name: "look".into(),
            description: "Looks.".into(),
            parameters: json!({"type": "object", "properties": {"b": {}, "a": {}}}),
        };
        Request {
            model: "m".into(),
            system: Some("Be brief.".into()),
            messages: vec![Arc::new(said.at(
                at,
                SendId(Uuid::from_u128(at.unsigned_abs().into())),
                Timestamp(at),
                at,
            ))],
            max_tokens: 100,
            tail: Some("<notes>\n</notes>".into()),
            cache_key: Some(at.to_string()),
            background: crate::model::InBackground::Allowed,
            temperature: Some(0.5),
            stop: vec!["END".into()],
            tools: vec![Arc::new(tool)],
            ..Request::default()
        }
    }

    #[test]
    fn the_canonical_form_is_what_it_was() {
        // Digests are stored: changing the canonical form would make recorded rounds look changed.
        assert_eq!(
            request(1).canonical(),
            r#"{"model":"m","max_tokens":100,"temperature":0.5,"top_p":null,"stop":["END"],"reasoning_effort":null,"output":null,"tools":[{"name":"look","description":"Looks.","parameters":{"properties":{"a":{},"b":{}},"type":"object"}}],"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}],"tail":"<notes>\n</notes>"}"#
        );
        let mut hasher = Sha256::new();
        hasher.update(request(1).canonical());
        let expected: [u8; 32] = hasher.finalize().into();
        assert_eq!(request(1).digest(), Digest(expected));
    }

    #[test]
    fn only_what_the_model_sees_counts() {
        assert_eq!(request(1).digest(), request(7).digest());
        let mut said = request(1);
        let text = "said about it".to_owned();
        Arc::make_mut(&mut said.messages[0])
            .content
            .push(ContentPart::Digest { text });
        assert_eq!(said.digest(), request(1).digest());
        let changes: [fn(&mut Request); 9] = [
            |r| r.model.push('x'),
            |r| r.system = None,
            |r| r.tail = None,
            |r| r.max_tokens = 99,
            |r| r.temperature = None,
            |r| r.stop.clear(),
            |r| r.tools.clear(),
            |r| r.messages.clear(),
            |r| r.images_max_edge = Some(512),
        ];
        for change in changes {
            let mut other = request(1);
            change(&mut other);
            assert_ne!(other.digest(), request(1).digest(), "{other:?}");
        }
    }

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = request(1).digest();
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for text in ["", "sha256:", "sha256:zz", &"ab".repeat(32)] {
            assert_eq!(text.parse::<Digest>(), Err(InvalidDigest), "{text}");
        }
        let wide = format!("sha256:{}", "é".repeat(32));
        assert_eq!(wide.parse::<Digest>(), Err(InvalidDigest));
    }
}
