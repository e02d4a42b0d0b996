//! What a request in OpenAI's form says about itself, besides what is to be done.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stored::Extra;

/// What a send that came through the OpenAI-compatible API is shown with again. Nothing depends on it except the views
/// of that API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpenAiNote {
    /// The sender's data about this response.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The response that it continues, if the request named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// Whether the request named a conversation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_conversation: bool,
    /// Whether nobody waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}
