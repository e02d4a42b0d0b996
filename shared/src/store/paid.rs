//! What model calls cost: one row each.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::extractions::EXTRACT_ROUND;
use crate::usage::{Purpose, Usage};

/// The usage of one model response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The round; negative for calls outside the rounds.
    pub round: i32,
    /// The attempt within the round, from 1.
    pub attempt: i32,
    /// The model that answered.
    pub model: String,
    /// What it cost.
    pub usage: Usage,
}

/// The round number in rows of model calls that wrote a fold; their `purpose` is `fold`.
const FOLD_ROUND: i32 = -2;

/// The round number in rows of embedding calls that a send waited for; their `purpose` is `embed`.
const EMBED_ROUND: i32 = -3;

/// The lowest attempt number of a call that wrote a fold after the end of its send; those of
/// extractions are lower.
const AT_REST_FIRST: i32 = 1 << 30;

/// The lowest attempt number of an embedding call after the end of its send; those of extractions
/// are lower, those of folds higher.
const EMBED_FIRST: i32 = 1 << 29;

impl UsageRow {
    /// The row of a model call that wrote a fold: the `call`-th under the grant `epoch`.
    pub fn of_fold(epoch: i64, call: i32, model: String, usage: Usage) -> Self {
        Self {
            round: FOLD_ROUND,
            attempt: numbered(epoch, call),
            model,
            usage,
        }
    }

    /// The row of an embedding call that a send waited for: the `call`-th under the grant `epoch`.
    pub fn of_vectors(epoch: i64, call: i32, model: String, usage: Usage) -> Self {
        Self {
            round: EMBED_ROUND,
            attempt: numbered(epoch, call),
            model,
            usage,
        }
    }

    /// The row of an embedding call after the end of its send; `random` makes it unique.
    pub fn of_vectors_at_rest(random: Uuid, model: String, usage: Usage) -> Self {
        let [.., a, b, c, d] = *random.as_bytes();
        Self {
            round: EXTRACT_ROUND,
            attempt: EMBED_FIRST | (i32::from_be_bytes([a, b, c, d]) & (EMBED_FIRST - 1)),
            model,
            usage,
        }
    }

    /// The row of a model call that wrote a fold after the end of its send; `random` makes it unique.
    pub fn of_fold_at_rest(random: Uuid, model: String, usage: Usage) -> Self {
        let [.., a, b, c, d] = *random.as_bytes();
        Self {
            round: EXTRACT_ROUND,
            attempt: AT_REST_FIRST | (i32::from_be_bytes([a, b, c, d]) & (AT_REST_FIRST - 1)),
            model,
            usage,
        }
    }

    /// The row under which a session pays for a call outside the rounds whose worker lost the
    /// lease; it is not included in the send's own total, which the next worker writes.
    ///
    /// The same call always gives the same row. A row from after the end of a send is returned unchanged.
    #[must_use]
    pub fn at_rest(&self) -> Self {
        let first = match (self.round, self.purpose()) {
            (EXTRACT_ROUND, _) | (_, Purpose::Round | Purpose::Extract) => return self.clone(),
            (_, Purpose::Embed) => EMBED_FIRST,
            (_, Purpose::Fold) => AT_REST_FIRST,
        };
        Self {
            round: EXTRACT_ROUND,
            attempt: first | (self.attempt & (first - 1)),
            ..self.clone()
        }
    }

    /// Whether it is of a call outside the rounds that a step of its send may have stored, so that
    /// [`Self::at_rest`] gives another row.
    pub fn is_of_step(&self) -> bool {
        self.round == FOLD_ROUND || self.round == EMBED_ROUND
    }

    /// The purpose of the call.
    pub fn purpose(&self) -> Purpose {
        match self.round {
            0.. => Purpose::Round,
            EXTRACT_ROUND if self.attempt < EMBED_FIRST => Purpose::Extract,
            EXTRACT_ROUND if self.attempt < AT_REST_FIRST => Purpose::Embed,
            EMBED_ROUND => Purpose::Embed,
            _ => Purpose::Fold,
        }
    }

    /// Whether it belongs to a round of its send.
    pub fn is_of_round(&self) -> bool {
        self.round >= 0
    }
}

/// The number of the `call`-th call under a grant.
fn numbered(epoch: i64, call: i32) -> i32 {
    /// Numbers reserved for calls of one kind under one grant.
    const CALLS: i64 = 1_000;
    let number = epoch.wrapping_mul(CALLS).wrapping_add(i64::from(call));
    i32::try_from(number.rem_euclid(i64::from(i32::MAX))).unwrap_or(i32::MAX)
}
