//! The lines of an archive.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::list::List;
use mainspring_shared::message::{Arguments, CallAttached, ContentPart, Role};
use mainspring_shared::session::fold::Fold;
use mainspring_shared::time::Timestamp;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) session: SessionLine,
}

/// What an archive contains of a session besides its messages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionLine {
    /// Its id in the exporting system.
    pub(super) id: SessionId,
    pub(super) agent: AgentSpec,
    pub(super) metadata: Map<String, Value>,
    pub(super) created_at: Timestamp,
    #[serde(default, skip_serializing_if = "List::is_new")]
    pub(super) todo: List,
    #[serde(default, skip_serializing_if = "List::is_new")]
    pub(super) notes: List,
    /// Folds, with message numbers as in this archive.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "known"
    )]
    pub(super) folds: Vec<Fold>,
}

/// The part of the first line that all versions have in common.
#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    pub(super) format: String,
    pub(super) version: u32,
}

/// A message. It accepts what [`Message`](mainspring_shared::message::Message) serializes to, and
/// nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageLine {
    pub(super) seq: i64,
    pub(super) send_id: SendId,
    pub(super) role: Role,
    #[serde(deserialize_with = "known")]
    pub(super) content: Vec<ContentPart>,
    #[serde(default)]
    pub(super) tool_calls: Vec<CallLine>,
    pub(super) tool_call_id: Option<String>,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) failed: bool,
    pub(super) round: i32,
    pub(super) created_at: Timestamp,
}

/// Deserializes items, and refuses unknown members, because importing the archive would lose them.
fn known<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Serialize,
{
    let mut items = Vec::new();
    for written in Vec::<Value>::deserialize(deserializer)? {
        let item = T::deserialize(&written).map_err(D::Error::custom)?;
        let known = serde_json::to_value(&item).map_err(D::Error::custom)?;
        if let Some(name) = more_than(&written, &known) {
            return Err(D::Error::custom(format_args!("unknown field `{name}`")));
        }
        items.push(item);
    }
    Ok(items)
}

/// The name of a member that an object or an object inside it has beyond the known ones.
fn more_than<'v>(written: &'v Value, known: &Value) -> Option<&'v str> {
    let members = written.as_object()?.iter();
    members
        .filter(|(_, value)| !value.is_null())
        .find_map(|(name, value)| match known.get(name) {
            Some(inner) => more_than(value, inner),
            None => Some(name.as_str()),
        })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallLine {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Arguments,
    #[serde(default)]
    pub(super) after: Option<u32>,
    #[serde(default)]
    pub(super) attached: Option<Box<CallAttached>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Footer {
    pub(super) messages: u64,
    pub(super) calls: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) blobs: u64,
    pub(super) sha256: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
