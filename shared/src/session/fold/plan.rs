//! Whether something has to be folded, and what: functions of the window and of what it takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Fold;
use crate::agent::FoldSpec;
use crate::id::SendId;
use crate::message::{Message, Role};
use crate::model::{Request, expect_message_tokens};

/// Share of the budget that a fold leaves filled: what follows has room until the next one.
const TARGET: f64 = 0.40;

/// Share of a model's window that is kept for what no estimate sees.
const RESERVE: u64 = 25;

/// Tokens of that reserve at the least.
const RESERVE_MIN: u64 = 2_000;

/// Share of the hard threshold that has to come free for a fold to be worth its cost, unless nothing fits without.
const WORTH: f64 = 0.05;

/// Tokens of a text that stands for everything where nothing longer has room.
const SHORT: u64 = 200;

/// Rounds of the running send that are not folded, where nothing else is left to fold.
const KEEP_ROUNDS: usize = 2;

/// How many tokens a request may take, and from when on something is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What fits: the model's window without its answer and a reserve.
    pub budget: u64,
    /// From here on a fold is made beside the conversation.
    pub soft: u64,
    /// From here on a fold is made before the model is asked.
    pub hard: u64,
    /// What a fold leaves filled.
    pub target: u64,
}

impl Room {
    /// The room in a model's window, of which an answer may take so many tokens.
    pub fn new(window: u64, answer: u64, spec: &FoldSpec) -> Self {
        // An answer that is allowed most of the window leaves a conversation its half.
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
    /// Tokens that have to come free for a changed prefix to be worth its cost, unless nothing fits without.
    pub fn worth(&self) -> u64 {
        ((self.hard as f64 * WORTH) as u64).max(1)
    }
}

/// What has to be folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// Whole sends that have ended, as far as that is worth it.
    Soft,
    /// As much as gets the request below the hard threshold: fewer sends stay, and at last rounds of
    /// the running send go, too.
    Hard,
    /// All that may be folded: the model refused what was thought to fit.
    Harder,
}

/// What a fold stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The first message, of the folds that it covers or its own.
    pub from_seq: i64,
    /// The last message.
    pub to_seq: i64,
    /// One more than the highest of the folds that it covers.
    pub level: i32,
    /// The folds that it covers, in order.
    pub folds: Vec<Arc<Fold>>,
    /// The messages that it adds to them.
    pub messages: Vec<Arc<Message>>,
    /// About how many tokens all of it takes.
    pub tokens: u64,
    /// About how many tokens a text may take that stands for it without a model: digests of digests grow.
    pub digest_max: u64,
}

/// A window to fold something of.
#[derive(Debug, Clone, Copy)]
pub struct Window<'w> {
    /// What is folded already.
    pub folds: &'w [Arc<Fold>],
    /// The stored messages that are shown.
    pub messages: &'w [Arc<Message>],
    /// The send that runs.
    pub running: SendId,
    /// The newest sends that have ended which stay.
    pub keep_sends: usize,
}

/// What the messages of a window take as a request shows them: some are shown as digests, some shorter than they are.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    shown: BTreeMap<i64, u64>,
    last: i64,
}

impl Weights {
    /// Those of this request.
    pub fn of(request: &Request) -> Self {
        // What is of no send stands for what is folded already.
        let shown = request.messages.iter();
        let shown = shown.filter(|message| !message.send_id.0.is_nil());
        let shown: BTreeMap<_, _> = shown
            .map(|message| (message.seq, expect_message_tokens(message)))
            .collect();
        let last = shown.last_key_value().map_or(0, |(last, _)| *last);
        Self { shown, last }
    }

    /// What a message takes: nothing where a digest of its send stands in its place, and what is expected of it where it
    /// came behind the request.
    pub fn weigh(&self, message: &Message) -> u64 {
        match self.shown.get(&message.seq) {
            Some(tokens) => *tokens,
            None if message.seq > self.last => expect_message_tokens(message),
            None => 0,
        }
    }
}

/// Chooses what to fold of a window whose request takes `tokens`; none where nothing may be, or where
/// it is not worth it. It ends behind a whole send, or behind a whole round of the running one, so no
/// call is parted from its results.
pub fn choose(
    window: Window<'_>,
    tokens: u64,
    room: Room,
    pressure: Pressure,
    weigh: impl Fn(&Message) -> u64,
) -> Option<Span> {
    let cuts = Cuts::of(window);
    // The running send's input is shown again behind a fold: that frees nothing.
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

/// The folds that are shown, for one text in their place of at most so many tokens, and at most half of theirs;
/// none where they are so short that a shorter one would say nothing.
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

/// About how many tokens folds take.
pub fn weight(folds: &[Arc<Fold>]) -> u64 {
    folds
        .iter()
        .map(|fold| fold.tokens_after.unsigned_abs())
        .sum()
}

/// The first of these ends that frees so many tokens, else the last one, with what it frees.
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
        // Where nobody knows the room, as after an overflow, it has to be half of it.
        digest_max: tokens.min(room.target.max(tokens / 2)),
    }
}

/// Where a window may be cut.
struct Cuts {
    /// Behind each send that has ended, as the number of messages before the cut.
    sends: Vec<usize>,
    /// Behind each round of the running send but the last one.
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
                // A copy may end between a call and its results, where its send is another's.
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

    /// The places at which a window may be cut of which the newest so many sends stay; with rounds, all
    /// sends may go, and of the running one all but so many rounds.
    fn allowed(&self, keep_sends: usize, keep_rounds: Option<usize>) -> Vec<usize> {
        let sends = self.sends.len().saturating_sub(keep_sends);
        let mut allowed = self.sends[..sends].to_vec();
        if let Some(keep) = keep_rounds {
            // Behind the last cut stands one round more.
            let rounds = self.rounds.len().saturating_sub(keep.saturating_sub(1));
            allowed.extend(&self.rounds[..rounds]);
        }
        allowed
    }
}

#[cfg(test)]
mod tests;
