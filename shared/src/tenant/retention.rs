//! How long a tenant's data is kept.

use serde::{Deserialize, Serialize};

use crate::stored::Extra;
use crate::time::Span;

/// How long a tenant's data is kept; the installation's settings apply to absent members.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Retention {
    /// How long sends are kept after their end, like `30d`, with their steps, calls and usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sends: Option<Span>,
    /// The same of runs, with the sessions of their leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runs: Option<Span>,
    /// How long idle sessions are kept, with their messages; forever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sessions: Option<Span>,
    /// Legal hold: whether all deletion is blocked, by retention and on request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}
