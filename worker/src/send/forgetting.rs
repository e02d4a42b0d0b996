//! Forgetting within a send: its own results count as old once the window has no room for all of
//! them.
//!
//! The decision depends only on the question, which is made from rows, and on its expected size. It
//! is stored with the round that is asked for, so that a worker that takes the send over forgets as
//! much.

use mainspring_shared::message::Role;
use mainspring_shared::model::expect_request_tokens;
use mainspring_shared::session::fold::plan::Room;
use mainspring_shared::session::render::forgetting_steps;

use super::load::{self, Question};
use crate::llm::Request;

/// A request in which more is forgotten than in the original one.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) request: Request,
    /// The last message of the send whose results count as old in it.
    pub(crate) aged_to: i64,
    /// Its expected tokens.
    pub(crate) tokens: u64,
}

/// Which of the send's results may be forgotten, apart from the newest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those that the model has already answered to.
    Seen,
    /// All. If nothing else is left to drop, a line that says how to read a result is better than
    /// no answer.
    All,
}

/// What is forgotten of a request before the model is asked and before anything is folded; `None`
/// if nothing is.
///
/// A changed beginning is not served from a prompt cache, so this is as rare as folds are: it
/// happens from the soft threshold on if it leaves no more than a fold would, and otherwise once
/// the window is full, unless it frees less than that is worth.
pub(crate) fn relieved(
    question: &Question<'_>,
    request: &Request,
    tokens: u64,
    room: Room,
) -> Option<Forgotten> {
    if tokens < room.soft {
        return None;
    }
    let forgotten = forget(question, request, (tokens, room.target), Extent::Seen)?;
    let freed = tokens.saturating_sub(forgotten.tokens);
    let is_full = tokens >= room.hard;
    let is_worth = freed >= room.worth() || (freed > 0 && tokens > room.budget);
    (forgotten.tokens <= room.target || (is_full && is_worth)).then_some(forgotten)
}

/// The same request with just enough of the running send's oldest results shown as old to take at
/// most `most` tokens, as far as its agent lets them be forgotten; or with all that may be. `None`
/// if that frees nothing. `tokens` is the size of the request made from this question.
pub(crate) fn forget(
    question: &Question<'_>,
    request: &Request,
    (tokens, most): (u64, u64),
    extent: Extent,
) -> Option<Forgotten> {
    let steps = steps(question, extent);
    let before = expect_request_tokens(request);
    let with = |aged_to: i64| {
        let mut lighter = load::request(Question {
            aged_to,
            ..question.clone()
        });
        lighter.background = request.background.clone();
        let tokens = scaled(tokens, expect_request_tokens(&lighter), before);
        Forgotten {
            request: lighter,
            aged_to,
            tokens,
        }
    };
    // Each step forgets what the step before it does, and more.
    let enough = steps.partition_point(|aged_to| with(*aged_to).tokens > most);
    let forgotten = with(*steps.get(enough).or(steps.last())?);
    (forgotten.tokens < tokens).then_some(forgotten)
}

/// The messages of the running send, in order, at each of which one more block of results is
/// forgotten if results up to it count as old.
fn steps(question: &Question<'_>, extent: Extent) -> Vec<i64> {
    let context = &question.send.agent.context;
    if context.tools.is_empty() {
        return Vec::new();
    }
    let messages = &question.messages;
    let mut newest = messages.iter().rev();
    let last = match extent {
        // Results after the last answer have not been answered to yet.
        Extent::Seen => newest.find(|message| message.role == Role::Assistant),
        Extent::All => newest.next(),
    };
    let last = last.map_or(0, |message| message.seq);
    let running = (question.send.record.id, question.aged_to);
    forgetting_steps(question.projections.len(), messages, running, last, context)
}

/// Scales `tokens` by the ratio of `part` to `whole`.
pub(crate) fn scaled(tokens: u64, part: u64, whole: u64) -> u64 {
    // Wide enough for the product of any two token counts.
    let share = u128::from(tokens) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
