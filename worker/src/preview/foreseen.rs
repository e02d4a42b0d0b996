//! Predicts what happens to a request that does not fit into the window: decided as for the call
//! itself, but not done.

use mainspring_shared::agent::FoldStrategy;
use mainspring_shared::budget::Caps;
use mainspring_shared::id::SendId;
use mainspring_shared::model::expect_request_tokens;
use mainspring_shared::session::fold::plan::{self, Pressure, Room, Weights};
use mainspring_shared::session::preview::{FoldWhen, NextFold};
use mainspring_shared::session::window::Window;
use uuid::Uuid;

use crate::Kernel;
use crate::llm::{Request, Resolved};
use crate::send::load::{self, Question};
use crate::send::{Extent, Forgotten, forget, relieved, room_of};

/// The request as it would be sent.
pub(super) struct Foreseen {
    pub(super) request: Request,
    /// The last message of the send whose results count as old in it.
    pub(super) aged_to: Option<i64>,
    /// The last message up to which it equals the previous request, if it does not contain all of
    /// that.
    pub(super) same_to: Option<i64>,
    pub(super) fold: Option<NextFold>,
}

/// Predicts the request made from this question, given this window from `from` on.
pub(super) fn of(
    kernel: &Kernel,
    question: &Question<'_>,
    (window, from): (&Window, i64),
    model: &Resolved,
) -> Foreseen {
    let mut request = load::request(question.clone());
    let spec = &question.send.agent.context.fold;
    let room = room_of(model, u64::from(request.max_tokens), spec);
    let mut tokens = expected(kernel, question, &request, model);
    let mut aged_to = Some(question.aged_to).filter(|seq| *seq > 0);
    // A send that begins may show digests of what was shown in full before.
    let moved = request.settled_before;
    let moved = moved.and_then(|before| request.messages.get(before));
    let mut same_to = moved.map(|message| message.seq - 1);
    let mut put = |forgotten: Option<Forgotten>, request: &mut Request, tokens: &mut u64| {
        if let Some(forgotten) = forgotten {
            let both = request.messages.iter().zip(&forgotten.request.messages);
            let mut changed = both.filter(|(before, now)| before != now);
            let changed = changed.next().map(|(before, _)| before.seq - 1);
            same_to = changed
                .map(|seq| seq.min(same_to.unwrap_or(seq)))
                .or(same_to);
            (*request, *tokens) = (forgotten.request, forgotten.tokens);
            aged_to = Some(forgotten.aged_to);
        }
    };
    let forgotten = relieved(question, &request, tokens, room);
    put(forgotten, &mut request, &mut tokens);
    let fold = fold(question, (window, from), &request, (tokens, room));
    if fold.is_none() && tokens > room.budget {
        let forgotten = forget(question, &request, (tokens, room.budget), Extent::All);
        put(forgotten, &mut request, &mut tokens);
    }
    Foreseen {
        request,
        aged_to,
        same_to,
        fold,
    }
}

fn expected(kernel: &Kernel, question: &Question<'_>, request: &Request, model: &Resolved) -> u64 {
    let measured = question.shown.and_then(|shown| shown.measured);
    let counted = measured.and_then(|known| known.expects(request, model.facts.tokens));
    counted.unwrap_or_else(|| {
        let calibrations = kernel.parts.providers.calibrations();
        let calibration = calibrations.of((&model.provider, &model.model), &model.facts);
        calibration.of(expect_request_tokens(request))
    })
}

fn fold(
    question: &Question<'_>,
    (window, from): (&Window, i64),
    request: &Request,
    (tokens, room): (u64, Room),
) -> Option<NextFold> {
    let send = question.send;
    let (record, agent) = (&send.record, &send.agent);
    let spec = &agent.context.fold;
    let by_digests = spec.strategy == FoldStrategy::Projection;
    let (when, pressure) = if spec.strategy == FoldStrategy::None || tokens < room.soft {
        return None;
    } else if tokens >= room.hard {
        (FoldWhen::Before, Pressure::Hard)
    } else if by_digests {
        (FoldWhen::Before, Pressure::Soft)
    } else if record.rounds > 0 {
        (FoldWhen::Beside, Pressure::Soft)
    } else {
        (FoldWhen::After, Pressure::Soft)
    };
    let caps =
        [agent.budget, record.options.budget].map(|budget| budget.unwrap_or_default().caps());
    if when != FoldWhen::Before && !caps.iter().all(Caps::is_none) {
        return None;
    }
    let weights = Weights::of(request);
    let ended = when == FoldWhen::After;
    let messages = window.active(from);
    // Once the send has ended, it counts among the sends that are kept.
    let comes = ended && !messages.iter().any(|message| message.send_id == record.id);
    let keep_sends = (spec.keep_sends() as usize).saturating_sub(usize::from(comes));
    let span = plan::choose(
        plan::Window {
            folds: window.folds(),
            messages,
            running: if ended {
                SendId(Uuid::nil())
            } else {
                record.id
            },
            keep_sends,
        },
        tokens,
        room,
        pressure,
        |message| weights.weigh(message),
    )?;
    Some(NextFold {
        when,
        strategy: spec.strategy,
        from_seq: span.from_seq,
        to_seq: span.to_seq,
        tokens: span.tokens,
    })
}
