//! Decides whether to fold, and what: functions of the window and its size in tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Fold;
use crate::agent::FoldSpec;
use crate::id::SendId;
use crate::message::{Message, Role};
use crate::model::{Request, expect_message_tokens};

/// Share of the budget that remains in use after a fold, so that there is room before the next one.
const TARGET: f64 = 0.40;

/// The reserve for estimation errors is the model's window divided by this.
const RESERVE: u64 = 25;

/// Minimum of that reserve, in tokens.
const RESERVE_MIN: u64 = 2_000;

/// Share of the hard threshold that a fold must free to be worth its cost, unless the request does
/// not fit without it.
const WORTH: f64 = 0.05;

/// Tokens of the shortest useful text for a fold.
const SHORT: u64 = 200;

/// Newest rounds of the running send to keep when its rounds must be folded; if that frees too
/// little, only one is kept.
const KEEP_ROUNDS: usize = 2;

/// How many tokens a request may have, and the thresholds for folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Tokens that fit: the model's window minus the answer and a reserve.
    pub budget: u64,
    /// From this size on, a fold is made concurrently with the conversation.
    pub soft: u64,
    /// From this size on, a fold is made before the model is called.
    pub hard: u64,
    /// The size that a fold aims for.
    pub target: u64,
}

impl Room {
    /// The room in a model's window if the answer may take up to `answer` tokens.
    pub fn new(window: u64, answer: u64, spec: &FoldSpec) -> Self {
        // However large the answer may be, half of the window is left to the conversation.
        let answer = answer.min(window / 2);
        let reserve = (window / RESERVE).max(RESERVE_MIN).min(window / 4);
        let budget = window - answer - reserve;
        let share = |share: f64| (budget as f64 * share) as u64;
        let soft = spec.soft();
        Self {
            budget,
            soft: share(soft),
            hard: share(spec.hard()),
            target: share(TARGET.min(soft * 2.0 / 3.0)),
        }
    }
}

impl Room {
    /// Tokens that must be freed for a changed prefix to be worth its cost, unless the request does
    /// not fit otherwise.
    pub fn worth(&self) -> u64 {
        ((self.hard as f64 * WORTH) as u64).max(1)
    }
}

/// How much must be folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// Whole finished sends, if that is worth it.
    Soft,
    /// As much as gets the request below the hard threshold: fewer sends are kept, and finally
    /// rounds of the running send are folded, too.
    Hard,
    /// Everything that may be folded: the model refused a request that was estimated to fit.
    Harder,
}

/// What a fold replaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The first message, including those of the folds that it covers.
    pub from_seq: i64,
    /// The last message.
    pub to_seq: i64,
    /// One more than the highest of the folds that it covers.
    pub level: i32,
    /// The folds that it covers, in order.
    pub folds: Vec<Arc<Fold>>,
    /// The messages that it adds to them.
    pub messages: Vec<Arc<Message>>,
    /// Estimated tokens of all of it.
    pub tokens: u64,
    /// Approximate token limit of a text made without a model: digests of digests would grow otherwise.
    pub digest_max: u64,
}

/// A window to fold part of.
#[derive(Debug, Clone, Copy)]
pub struct Window<'w> {
    /// The existing folds.
    pub folds: &'w [Arc<Fold>],
    /// The stored messages that are shown.
    pub messages: &'w [Arc<Message>],
    /// The send that runs.
    pub running: SendId,
    /// How many of the newest finished sends are kept.
    pub keep_sends: usize,
}

/// Token counts of a window's messages as a request shows them: as digests, shortened or whole.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    shown: BTreeMap<i64, u64>,
    last: i64,
}

impl Weights {
    /// The counts for this request.
    pub fn of(request: &Request) -> Self {
        // A message without a send is an existing fold.
        let shown = request.messages.iter();
        let shown = shown.filter(|message| !message.send_id.0.is_nil());
        let shown: BTreeMap<_, _> = shown
            .map(|message| (message.seq, expect_message_tokens(message)))
            .collect();
        let last = shown.last_key_value().map_or(0, |(last, _)| *last);
        Self { shown, last }
    }

    /// The tokens of a message: 0 if a digest of its send replaces it, and an estimate if it was
    /// added after the request.
    pub fn weigh(&self, message: &Message) -> u64 {
        match self.shown.get(&message.seq) {
            Some(tokens) => *tokens,
            None if message.seq > self.last => expect_message_tokens(message),
            None => 0,
        }
    }
}

/// Chooses what to fold of a window whose request has `tokens` tokens; `None` if nothing may be
/// folded or it is not worth it. The span ends after a whole send, or after a whole round of the
/// running one, so that no call is separated from its results.
pub fn choose(
    window: Window<'_>,
    tokens: u64,
    room: Room,
    pressure: Pressure,
    weigh: impl Fn(&Message) -> u64,
) -> Option<Span> {
    let cuts = Cuts::of(window);
    // The running send's input is shown again after a fold, so folding it frees nothing.
    let weigh = |message: &Message| match message.role {
        Role::User if message.send_id == window.running => 0,
        Role::User | Role::Assistant | Role::Tool => weigh(message),
    };
    let wanted = match pressure {
        Pressure::Soft | Pressure::Hard => tokens.saturating_sub(room.target),
        Pressure::Harder => u64::MAX,
    };
    let keep = window.keep_sends;
    let worth = room.worth();
    let (needed, ways): (u64, Vec<(usize, Option<usize>)>) = match pressure {
        Pressure::Soft => (worth, vec![(keep, None)]),
        Pressure::Hard => {
            let needed = (tokens + 1).saturating_sub(room.hard).max(1);
            let ways = [keep, keep.min(1), 0].map(|keep| (keep, None));
            let rounds = [(0, Some(KEEP_ROUNDS)), (0, Some(1))];
            (needed, ways.into_iter().chain(rounds).collect())
        }
        Pressure::Harder => (u64::MAX, vec![(keep.min(1), None), (0, None), (0, Some(1))]),
    };
    let mut best = None;
    for (sends, rounds) in ways {
        let allowed = cuts.allowed(sends, rounds);
        let Some(cut) = reach(window.messages, &allowed, wanted, weigh) else {
            continue;
        };
        best = Some(cut);
        if cut.1 >= needed {
            break;
        }
    }
    let (end, freed) = best?;
    let fits = tokens <= room.budget;
    let is_worth = match pressure {
        Pressure::Soft => freed >= needed,
        Pressure::Hard => !fits || freed >= worth,
        Pressure::Harder => true,
    };
    if !is_worth {
        return None;
    }
    Some(span(window, end, freed, room))
}

/// All shown folds, to be replaced by one text of at most `most` tokens, and at most half their
/// size. `None` if they are already so short that a shorter text would be useless.
pub fn shorten(folds: &[Arc<Fold>], most: u64) -> Option<Span> {
    let tokens = weight(folds);
    if tokens <= 2 * SHORT {
        return None;
    }
    Some(Span {
        from_seq: folds.iter().map(|fold| fold.from_seq).min()?,
        to_seq: folds.iter().map(|fold| fold.to_seq).max()?,
        level: folds.iter().map(|fold| fold.level + 1).max()?,
        folds: folds.to_vec(),
        messages: Vec::new(),
        tokens,
        digest_max: most.clamp(SHORT, tokens / 2),
    })
}

/// Estimated tokens of these folds.
pub fn weight(folds: &[Arc<Fold>]) -> u64 {
    folds
        .iter()
        .map(|fold| fold.tokens_after.unsigned_abs())
        .sum()
}

/// The first of these ends that frees `wanted` tokens, or else the last one, with the tokens it frees.
fn reach(
    messages: &[Arc<Message>],
    ends: &[usize],
    wanted: u64,
    weigh: impl Fn(&Message) -> u64,
) -> Option<(usize, u64)> {
    let (mut freed, mut at) = (0, 0);
    for end in ends {
        freed += messages[at..*end].iter().map(|m| weigh(m)).sum::<u64>();
        at = *end;
        if freed >= wanted {
            break;
        }
    }
    (at > 0).then_some((at, freed))
}

fn span(window: Window<'_>, end: usize, freed: u64, room: Room) -> Span {
    let messages = &window.messages[..end];
    let folds = window.folds;
    let first = folds.iter().map(|fold| fold.from_seq).min();
    let (begin, last) = match messages {
        [first, .., last] => (first.seq, last.seq),
        [only] => (only.seq, only.seq),
        [] => (0, 0),
    };
    let level = folds.iter().map(|fold| fold.level + 1).max();
    let folded: i64 = folds.iter().map(|fold| fold.tokens_after).sum();
    let tokens = freed + folded.unsigned_abs();
    Span {
        from_seq: first.map_or(begin, |first| first.min(begin)),
        to_seq: last,
        level: level.unwrap_or(0),
        folds: folds.to_vec(),
        messages: messages.to_vec(),
        tokens,
        // If the room is unknown, as after an overflow, allow half of the tokens.
        digest_max: tokens.min(room.target.max(tokens / 2)),
    }
}

/// The places where a window may be cut.
struct Cuts {
    /// After each finished send, as the number of messages before the cut.
    sends: Vec<usize>,
    /// After each round of the running send except the last one.
    rounds: Vec<usize>,
}

impl Cuts {
    fn of(window: Window<'_>) -> Self {
        let messages = window.messages;
        let mut cuts = Self {
            sends: Vec::new(),
            rounds: Vec::new(),
        };
        for (place, message) in messages.iter().enumerate() {
            let next = messages.get(place + 1);
            let ends = next.is_none_or(|next| next.send_id != message.send_id);
            if message.send_id != window.running {
                // In a copy, a send may end between a call and its results.
                let is_open = next.is_some_and(|next| next.role == Role::Tool);
                if ends && !is_open {
                    cuts.sends.push(place + 1);
                }
            } else if next.is_some_and(|next| next.role == Role::Assistant)
                && message.role == Role::Tool
            {
                cuts.rounds.push(place + 1);
            }
        }
        cuts
    }

    /// The places at which the window may be cut if the newest `keep_sends` sends are kept. With
    /// `keep_rounds`, all but that many rounds of the running send may be folded, too.
    fn allowed(&self, keep_sends: usize, keep_rounds: Option<usize>) -> Vec<usize> {
        let sends = self.sends.len().saturating_sub(keep_sends);
        let mut allowed = self.sends[..sends].to_vec();
        if let Some(keep) = keep_rounds {
            // One more round follows the last cut.
            let rounds = self.rounds.len().saturating_sub(keep.saturating_sub(1));
            allowed.extend(&self.rounds[..rounds]);
        }
        allowed
    }
}

#[cfg(test)]
mod tests;
