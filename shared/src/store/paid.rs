//! What model calls cost: one row each.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::extractions::EXTRACT_ROUND;
use crate::usage::{Purpose, Usage};

/// One model response that is paid for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The round; negative for calls that are of none.
    pub round: i32,
    /// The attempt within the round, from 1.
    pub attempt: i32,
    /// The model that answered.
    pub model: String,
    /// What it cost.
    pub usage: Usage,
}

/// In the place of a round, in the rows of model calls that wrote a fold; their `purpose` is `fold`.
const FOLD_ROUND: i32 = -2;

/// In the place of a round, in the rows of calls for vectors that a send waited for; their `purpose` is `embed`.
const EMBED_ROUND: i32 = -3;

/// The least number of a call that wrote a fold behind the end of its send. Those of extractions are smaller.
const AT_REST_FIRST: i32 = 1 << 30;

/// The least number of a call for vectors behind the end of its send; those of extractions are smaller, those of
/// folds larger.
const EMBED_FIRST: i32 = 1 << 29;

impl UsageRow {
    /// The row of a model call that wrote a fold: the `call`-th under the grant with this number.
    pub fn of_fold(epoch: i64, call: i32, model: String, usage: Usage) -> Self {
        Self {
            round: FOLD_ROUND,
            attempt: numbered(epoch, call),
            model,
            usage,
        }
    }

    /// The row of a call for vectors that a send waited for: the `call`-th under the grant with this number.
    pub fn of_vectors(epoch: i64, call: i32, model: String, usage: Usage) -> Self {
        Self {
            round: EMBED_ROUND,
            attempt: numbered(epoch, call),
            model,
            usage,
        }
    }

    /// The row of a call for vectors behind the end of its send; `random` tells it from others.
    pub fn of_vectors_at_rest(random: Uuid, model: String, usage: Usage) -> Self {
        let [.., a, b, c, d] = *random.as_bytes();
        Self {
            round: EXTRACT_ROUND,
            attempt: EMBED_FIRST | (i32::from_be_bytes([a, b, c, d]) & (EMBED_FIRST - 1)),
            model,
            usage,
        }
    }

    /// The row of a model call that wrote a fold behind the end of its send; `random` tells it from others.
    pub fn of_fold_at_rest(random: Uuid, model: String, usage: Usage) -> Self {
        let [.., a, b, c, d] = *random.as_bytes();
        Self {
            round: EXTRACT_ROUND,
            attempt: AT_REST_FIRST | (i32::from_be_bytes([a, b, c, d]) & (AT_REST_FIRST - 1)),
            model,
            usage,
        }
    }

    /// The row under which the session pays for a call beside the rounds whose worker lost the lease: the send's own sum,
    /// which its next worker writes, leaves it out. It is the same one for the same call. A row behind the end of a send
    /// is its own.
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

    /// Whether it is of a call beside the rounds that a step of its send may have stored, and has another place at rest.
    pub fn is_of_step(&self) -> bool {
        self.round == FOLD_ROUND || self.round == EMBED_ROUND
    }

    /// What its model was asked for.
    pub fn purpose(&self) -> Purpose {
        match self.round {
            0.. => Purpose::Round,
            EXTRACT_ROUND if self.attempt < EMBED_FIRST => Purpose::Extract,
            EXTRACT_ROUND if self.attempt < AT_REST_FIRST => Purpose::Embed,
            EMBED_ROUND => Purpose::Embed,
            _ => Purpose::Fold,
        }
    }

    /// Whether it is of a round of its send.
    pub fn is_of_round(&self) -> bool {
        self.round >= 0
    }
}

/// The number of the `call`-th call under a grant.
fn numbered(epoch: i64, call: i32) -> i32 {
    /// Calls of one kind under one grant that have numbers of their own.
    const CALLS: i64 = 1_000;
    let number = epoch.wrapping_mul(CALLS).wrapping_add(i64::from(call));
    i32::try_from(number.rem_euclid(i64::from(i32::MAX))).unwrap_or(i32::MAX)
}
