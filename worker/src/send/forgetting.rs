//! Forgetting within a send: its own results count as old once the window has no room for all of them.

use mainspring_shared::model::expect_request_tokens;
use mainspring_shared::session::fold::plan::Room;
use mainspring_shared::session::render::old_results;

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

/// The same request with all but the newest results of the running send shown as old ones, too, as its agent
/// lets them be forgotten; none where that frees nothing, or less than a changed prefix is worth. `tokens` is what
/// the request takes that is made of this question.
pub(crate) fn forget(
    question: &Question<'_>,
    request: &Request,
    tokens: u64,
    room: Room,
) -> Option<Forgotten> {
    let context = &question.send.agent.context;
    let aged_to = question.messages.last()?.seq;
    if context.tools.is_empty() || aged_to <= question.aged_to {
        return None;
    }
    let (projections, messages) = (question.projections, &question.messages);
    let running = question.send.record.id;
    let old = |aged_to| old_results(projections, messages, (running, aged_to), context);
    if old(aged_to) <= old(question.aged_to) {
        return None;
    }
    let mut lighter = load::request(Question {
        aged_to,
        ..question.clone()
    });
    lighter.background = request.background.clone();
    let (before, after) = (
        expect_request_tokens(request).max(1),
        expect_request_tokens(&lighter),
    );
    let left = scaled(tokens, after, before);
    let freed = tokens.saturating_sub(left);
    let is_worth = freed >= room.worth() || (freed > 0 && tokens > room.budget);
    is_worth.then_some(Forgotten {
        request: lighter,
        aged_to,
        tokens: left,
    })
}

/// The share of these tokens that a part has of a whole, which is not nothing.
pub(crate) fn scaled(tokens: u64, part: u64, whole: u64) -> u64 {
    // Wide enough for any product of two counts of tokens.
    let share = u128::from(tokens) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
