//! The inbox: messages and notifications for a session that has an active send.
//!
//! An item is a row with an id that is never reused in its session. It is delivered in the
//! transaction that writes its message, so it has exactly one fate.

use serde::{Deserialize, Serialize};

use crate::agent::OnBusy;
use crate::id::{RunId, SendId};
use crate::message::ContentPart;
use crate::time::Timestamp;

/// Where an item comes from.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A person's or program's words, sent with `steer`, `interrupt` or `coalesce`.
    Message,
    /// The end of a child that works in the background.
    Child,
    /// A result that arrived after its call was already settled.
    LateResult,
}

impl ItemKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Message, Self::Child, Self::LateResult];

    /// The name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Child => "child",
            Self::LateResult => "late_result",
        }
    }

    /// The kind with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// The outcome of an item.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[schema(as = InboxFate)]
pub enum Fate {
    /// It waits to be delivered, at the latest with the session's next send.
    Pending,
    /// It is part of the transcript, or of the input of the send that it joined.
    Delivered,
    /// It will not be delivered: its session is gone.
    Void,
}

impl Fate {
    /// Every fate.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Void];

    /// The name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Void => "void",
        }
    }

    /// The fate with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// The attempt of a run whose end refunds the run's reservation: later retries are not paid from it.
pub const FIRST: i32 = 1;

/// The id of the item that reports the end of a run.
pub fn run_item(run: RunId, attempt: i32) -> String {
    format!("run:{run}:{attempt}")
}

/// The run whose first end an item reports.
pub fn ended_run(item_id: &str) -> Option<RunId> {
    let (run, attempt) = item_id.strip_prefix("run:")?.split_once(':')?;
    (attempt.parse() == Ok(FIRST)).then(|| run.parse().ok())?
}

/// An item as stored and as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct InboxItem {
    /// Unique within the session.
    pub id: String,
    /// Its position among the session's items, which are delivered in this order.
    pub n: i64,
    /// Where it comes from.
    pub kind: ItemKind,
    /// How it was sent.
    pub mode: OnBusy,
    /// The send that it was accepted into.
    #[schema(value_type = Option<String>)]
    pub send_id: Option<SendId>,
    /// What it says.
    pub content: Vec<ContentPart>,
    /// Its outcome.
    pub fate: Fate,
    /// The message that it became.
    pub seq: Option<i64>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its fate was sealed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub settled_at: Option<Timestamp>,
}
