//! How much a send may still spend.
//!
//! Only the send's own totals, its children's slices and the session's earlier spending count, and
//! all of it is stored with the steps, so a worker that takes the send over computes the same.

use std::time::Duration;

use mainspring_shared::budget::{Budget, Caps, Held, Price, Short, Spent, Used};
use mainspring_shared::model::{Measured, ModelFacts};
use mainspring_shared::store::{SendTotals, StartedSend};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::usage::Usage;

use super::load;
use crate::llm::{Request, estimate_message_tokens, estimate_request_tokens, estimate_tokens};

/// Tokens of overhead per request, whatever it contains.
const FRAME_TOKENS: u64 = 8;

/// The caps of a send, and what its session has spent outside it.
#[derive(Debug)]
pub(super) struct Allowance {
    send: Caps,
    session: Caps,
    /// What other sends of the session used or have set aside.
    others: Spent,
    wall: Option<Duration>,
    /// The last request whose size the provider has reported.
    measured: Option<Measured>,
    /// The first round that this worker asks for.
    first_round: i32,
    /// Calls of that round that workers may have begun before they crashed or lost the session;
    /// each may have been answered.
    lost: u32,
}

impl Allowance {
    /// `spent` is the session's spending when the send was taken, including what the send itself
    /// had spent by then.
    pub(super) fn new(send: &StartedSend, totals: &SendTotals, spent: Spent) -> Self {
        let (session, own) = (send.agent.budget, send.record.options.budget);
        let walls = [session, own].map(|budget| budget?.wall);
        Self {
            send: own.unwrap_or_default().caps(),
            session: session.unwrap_or_default().caps(),
            others: spent.minus(own_spending(totals)),
            wall: walls.into_iter().flatten().map(|wall| wall.0).min(),
            measured: totals.shown.as_ref().and_then(|shown| shown.measured),
            first_round: send.record.rounds,
            lost: load::lost(send),
        }
    }

    /// Whether nothing but time is limited.
    pub(super) fn is_unlimited(&self) -> bool {
        self.send.is_none() && self.session.is_none()
    }

    /// How many of `attempts` calls begun for a round are contained in the totals.
    pub(super) fn counted(&self, round: i32, attempts: i32) -> i32 {
        if round != self.first_round {
            return attempts;
        }
        let lost = i32::try_from(self.lost).unwrap_or(i32::MAX);
        attempts.saturating_sub(lost).max(0)
    }

    /// The cost of one of a crashed worker's calls is known, so it is not counted at its worst
    /// case.
    pub(super) fn found(&mut self) {
        self.lost = self.lost.saturating_sub(1);
    }

    /// When the send's time is up.
    pub(super) fn ends_at(&self, started: Option<Timestamp>) -> Option<Timestamp> {
        Some(started?.after(self.wall?))
    }

    /// The session's spending with these totals, if it is tracked.
    pub(super) fn session(&self, totals: &SendTotals) -> Option<Spent> {
        self.session_besides(self.others, totals)
    }

    fn session_besides(&self, others: Spent, totals: &SendTotals) -> Option<Spent> {
        let counted = !self.session.is_none();
        counted.then(|| others.plus(own_spending(totals)))
    }

    /// A snapshot of the current totals.
    pub(super) fn aside(&self, totals: &SendTotals) -> UncommittedSpend {
        UncommittedSpend {
            usage: totals.usage,
            held: totals.held.clone(),
            others: self.others,
        }
    }

    /// Puts a snapshot back into the totals that it was taken from.
    pub(super) fn restore(&self, aside: &UncommittedSpend, totals: &mut SendTotals) {
        totals.usage = aside.usage;
        totals.held = aside.held.clone();
        totals.session = self.session_besides(aside.others, totals);
    }

    /// What is left to spend.
    pub(super) fn left(&self, totals: &SendTotals) -> Caps {
        let own = own_spending(totals);
        let session = self.session.less(self.others.plus(own));
        self.send.less(own).and(session)
    }

    /// Lowers the request's answer tokens to what is left; returns true if it did. First counts
    /// each call that a crashed worker may have made, at its worst case.
    pub(super) fn allow(
        &mut self,
        request: &mut Request,
        totals: &mut SendTotals,
        mut aside: Option<&mut UncommittedSpend>,
        price: Option<&Price>,
    ) -> Result<bool, Short> {
        if self.is_unlimited() {
            return Ok(false);
        }
        let input = self.size(request);
        let wanted = u64::from(request.max_tokens);
        while self.lost > 0 {
            let output = self.left(totals).answer(input, wanted, price)?;
            self.lost -= 1;
            let mut worst = Usage {
                input_tokens: input,
                output_tokens: output,
                estimated: true,
                ..Usage::default()
            };
            worst.cost_usd = price.map(|price| price.at_most(&worst));
            totals.usage.add(&worst);
            if let Some(aside) = &mut aside {
                aside.usage.add(&worst);
            }
        }
        let allowed = self.left(totals).answer(input, wanted, price)?;
        request.max_tokens = u32::try_from(allowed).unwrap_or(u32::MAX);
        Ok(allowed < wanted)
    }

    /// An upper bound of the request's tokens: what the provider counted for its beginning, plus an
    /// upper estimate of the rest.
    pub(super) fn size(&self, request: &Request) -> u64 {
        let known = self.measured.as_ref();
        let known =
            known.and_then(|known| known.tokens(request, estimate_message_tokens, estimate_tokens));
        known.unwrap_or_else(|| estimate_request_tokens(request)) + FRAME_TOKENS
    }

    /// The expected tokens of a request: what the provider counted for its beginning, plus an
    /// estimate of the rest scaled by that count; `None` if it counted nothing of it. Depends on
    /// stored data only: other sends' counts do not influence it.
    pub(super) fn counted_of(&self, request: &Request, facts: &ModelFacts) -> Option<u64> {
        self.measured.as_ref()?.expects(request, facts.tokens)
    }

    /// Records what a provider reported on the last request and its answer, if anything.
    pub(super) fn measure(&mut self, measured: Option<Measured>) {
        self.measured = measured;
    }

    /// The last request whose size the provider has reported.
    pub(super) fn measured(&self) -> Option<Measured> {
        self.measured
    }

    /// One of `parts` shares of what is left, for a child; `None` if it is too small to be useful.
    /// Without limits, a share has none either.
    pub(super) fn share(&self, totals: &SendTotals, parts: u64) -> Option<Spent> {
        self.left(totals).share(parts).map(|(_, held)| held)
    }

    /// The budget of a child from its share.
    pub(super) fn budget(&self, slice: Option<&Spent>, wall: Option<Duration>) -> Option<Budget> {
        let caps = self.send.and(self.session);
        let slice = slice.copied().unwrap_or_default();
        let budget = Budget {
            tokens: caps.tokens.map(|_| slice.tokens),
            usd: caps.nano_usd.map(|_| slice.nano_usd as f64 / 1e9),
            rounds: caps
                .rounds
                .map(|_| u32::try_from(slice.rounds).unwrap_or(u32::MAX)),
            wall: wall.map(Span),
        };
        (budget != Budget::default()).then_some(budget)
    }

    /// Takes in the usage of a child or a run and gives back its slice. `slice` is what was set
    /// aside for a child of an earlier send, which this send's totals do not contain.
    pub(super) fn settle(&mut self, totals: &mut SendTotals, call: &str, used: Used, slice: Spent) {
        if let Some(held) = totals.held.0.get_mut(call) {
            // What it used besides tokens stays spent.
            *held = used.kept;
        } else {
            self.others = self.others.minus(slice).plus(used.kept);
        }
        if totals.held.0.get(call) == Some(&Spent::default()) {
            totals.held.0.remove(call);
        }
        totals.usage.add(&used.usage);
    }
}

/// Totals from before taking in the ends of children that the model is told of with the next step.
/// A write without that step must store these; otherwise a worker that takes the send over would
/// take the children in twice.
#[derive(Debug)]
pub(super) struct UncommittedSpend {
    pub(super) usage: Usage,
    held: Held,
    others: Spent,
}

/// What a send used and has set aside.
fn own_spending(totals: &SendTotals) -> Spent {
    spending(&totals.usage, totals.rounds, &totals.held)
}

/// An upper bound of a request's tokens while the provider has counted nothing of it.
pub(crate) fn size_at_most(request: &Request) -> u64 {
    estimate_request_tokens(request) + FRAME_TOKENS
}

/// What any send used and has set aside.
pub(crate) fn spending(usage: &Usage, rounds: i32, held: &Held) -> Spent {
    Spent::of(usage, u64::from(rounds.unsigned_abs())).plus(held.sum())
}
