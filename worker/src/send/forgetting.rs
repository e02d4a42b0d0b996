//! Forgetting within a send: its own results count as old once the window has no room for all of them.
//!
//! What is decided here is a function of the question, which is made of rows, and of what it is expected to take. It is
//! stored with the round that is asked for, so that whoever goes on with the send forgets as much.

use mainspring_shared::message::Role;
use mainspring_shared::model::expect_request_tokens;
use mainspring_shared::session::fold::plan::Room;
use mainspring_shared::session::render::forgetting_steps;

use super::load::{self, Question};
use crate::llm::Request;

/// A request in which more is forgotten than in another one.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) request: Request,
    /// The last message of the send whose results count as old in it.
    pub(crate) aged_to: i64,
    /// What it is expected to take.
    pub(crate) tokens: u64,
}

/// Which of the send's results may be forgotten, but for the newest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those that the model has answered to.
    Seen,
    /// All: where nothing else is left to give, a line that says how to read one is better than no answer.
    All,
}

/// What is forgotten of a request before the model is asked, and before anything is folded for it; none where nothing is.
///
/// As a changed beginning is not served from a prompt cache, this is as rare as folds are: from the soft threshold on
/// where it leaves what a fold would leave, else once the window is full, unless it frees less than that is worth.
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

/// The same request with so many of the oldest results of the running send shown as old ones, too, as its agent lets
/// them be forgotten, that it takes no more than the second number of tokens, or with all of them that may be; none
/// where that frees nothing. The first number is what the request takes that is made of this question.
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
    // Each step forgets what the one before it does, and more.
    let enough = steps.partition_point(|aged_to| with(*aged_to).tokens > most);
    let forgotten = with(*steps.get(enough).or(steps.last())?);
    (forgotten.tokens < tokens).then_some(forgotten)
}

/// The messages of the running send at which one more block of results is forgotten once they count as old, in order.
fn steps(question: &Question<'_>, extent: Extent) -> Vec<i64> {
    let context = &question.send.agent.context;
    if context.tools.is_empty() {
        return Vec::new();
    }
    let messages = &question.messages;
    let mut newest = messages.iter().rev();
    let last = match extent {
        // What stands behind the last answer has none yet.
        Extent::Seen => newest.find(|message| message.role == Role::Assistant),
        Extent::All => newest.next(),
    };
    let last = last.map_or(0, |message| message.seq);
    let running = (question.send.record.id, question.aged_to);
    forgetting_steps(question.projections.len(), messages, running, last, context)
}

/// The share of these tokens that a part has of a whole.
pub(crate) fn scaled(tokens: u64, part: u64, whole: u64) -> u64 {
    // Wide enough for any product of two counts of tokens.
    let share = u128::from(tokens) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
