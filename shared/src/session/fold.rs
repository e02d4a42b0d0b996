//! Folds: texts that replace parts of a transcript in model requests.
//!
//! The transcript is unchanged. A fold is a row of its own that names the range of messages it
//! replaces; the active window starts after the last fold. A fold can itself be folded: the new
//! fold's range then includes the old one's, and the old one is marked as covered.

pub mod digest;
pub mod plan;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::SendId;
use crate::time::Timestamp;

/// How a fold was made.
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
pub enum FoldKind {
    /// A model wrote a summary.
    Summary,
    /// A model took notes, then wrote a summary.
    Agentic,
    /// Digests of the sends, without a model.
    Projection,
    /// A service of the user's wrote it.
    Http,
    /// A program that embeds the worker wrote it.
    Custom,
}

impl FoldKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Summary,
        Self::Agentic,
        Self::Projection,
        Self::Http,
        Self::Custom,
    ];

    /// The name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Agentic => "agentic",
            Self::Projection => "projection",
            Self::Http => "http",
            Self::Custom => "custom",
        }
    }

    /// The kind with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A text that replaces a range of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Fold {
    /// Its number in the session: the session's `context_version` from its attachment on.
    pub n: i64,
    /// The first message that it covers. In a copy of a session, zero or less for messages that had been removed
    /// before.
    pub from_seq: i64,
    /// The last one.
    pub to_seq: i64,
    /// 0, or one more than the highest of the folds that it covers.
    pub level: i32,
    /// How it was made.
    pub kind: FoldKind,
    /// The text.
    pub text: String,
    /// The model that wrote it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Estimated tokens of the messages and folds that it covers.
    pub tokens_before: i64,
    /// About how many tokens it takes.
    pub tokens_after: i64,
    /// The send that it was attached in.
    #[schema(value_type = String)]
    pub send_id: SendId,
    /// When, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The fold that covers it: it is not shown any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered_by: Option<i64>,
}

/// A fold that is not attached yet.
///
/// It covers every fold whose range lies within its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFold {
    /// The first message that it replaces.
    pub from_seq: i64,
    /// The last message that it replaces.
    pub to_seq: i64,
    /// 0, or one more than the highest of the folds that it covers.
    pub level: i32,
    /// How it was made.
    pub kind: FoldKind,
    /// The text.
    pub text: String,
    /// The model that wrote it.
    pub model: Option<String>,
    /// Estimated tokens of the messages and folds that it replaces.
    pub tokens_before: i64,
    /// Estimated tokens of the text.
    pub tokens_after: i64,
}

impl NewFold {
    /// The fold as attached with number `n` in `send_id`.
    pub fn at(self, n: i64, send_id: SendId, created_at: Timestamp) -> Fold {
        Fold {
            n,
            from_seq: self.from_seq,
            to_seq: self.to_seq,
            level: self.level,
            kind: self.kind,
            text: self.text,
            model: self.model,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
            send_id,
            created_at,
            covered_by: None,
        }
    }

    /// The reference that its step stores.
    pub fn reference(&self) -> FoldRef {
        FoldRef {
            from_seq: self.from_seq,
            to_seq: self.to_seq,
            kind: self.kind,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
        }
    }
}

impl Fold {
    /// Whether its range includes all of another fold's range.
    pub fn covers(&self, other: &Self) -> bool {
        self.from_seq <= other.from_seq && other.to_seq <= self.to_seq
    }
}

/// A fold as recorded in its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoldRef {
    /// The first message that it replaced.
    pub from_seq: i64,
    /// The last message that it replaced.
    pub to_seq: i64,
    /// How it was made.
    pub kind: FoldKind,
    /// Estimated tokens of the messages and folds that it replaced.
    pub tokens_before: i64,
    /// Estimated tokens of the text.
    pub tokens_after: i64,
}

/// The last message that an uncovered fold replaces; 0 if there is none.
pub fn end<'f>(folds: impl IntoIterator<Item = &'f Fold>) -> i64 {
    let shown = folds.into_iter().filter(|fold| fold.covered_by.is_none());
    shown.map(|fold| fold.to_seq).max().unwrap_or(0).max(0)
}

/// The number of the newest of these folds; 0 if there are none.
pub fn newest(folds: &[Arc<Fold>]) -> i64 {
    folds.iter().map(|fold| fold.n).max().unwrap_or(0)
}

/// The folds that were shown when fold `newest` was the newest.
pub fn as_of(folds: &[Fold], newest: i64) -> Vec<Fold> {
    let known = folds.iter().filter(|fold| fold.n <= newest);
    let shown = known.filter(|fold| fold.covered_by.is_none_or(|by| by > newest));
    let shown = shown.map(|fold| Fold {
        covered_by: None,
        ..fold.clone()
    });
    shown.collect()
}

/// The first message of a window that starts at `from`, after folds that end at `fold_end`.
pub fn begin(from: i64, fold_end: i64) -> i64 {
    from.max(fold_end + 1)
}

/// Attaches a fold and marks the folds within its range as covered by it.
pub fn attach(folds: &mut Vec<Fold>, new: Fold) {
    for fold in folds.iter_mut().filter(|fold| fold.covered_by.is_none()) {
        if new.covers(fold) {
            fold.covered_by = Some(new.n);
        }
    }
    folds.push(new);
}

/// The folds of a copy of the messages after `before`, up to and including `last`. Folds that reach
/// past `last` are dropped; the others are renumbered from 1, and their ranges are shifted to the
/// copy's message numbers.
pub fn copies(folds: Vec<Fold>, before: i64, last: i64) -> Vec<Fold> {
    let mut kept: Vec<Fold> = folds
        .into_iter()
        .filter(|fold| fold.to_seq <= last)
        .collect();
    kept.sort_by_key(|fold| fold.n);
    let numbers: Vec<i64> = kept.iter().map(|fold| fold.n).collect();
    for (fold, n) in kept.iter_mut().zip(1..) {
        let covering = |by: i64| numbers.iter().position(|n| *n == by);
        fold.covered_by = fold
            .covered_by
            .and_then(covering)
            .map(|place| place as i64 + 1);
        fold.n = n;
        fold.from_seq -= before;
        fold.to_seq -= before;
    }
    kept
}

#[cfg(test)]
mod tests;
