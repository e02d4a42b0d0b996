//! Budgets: a slice is set aside before a leaf starts, and what it did not use returns.

use mainspring_shared::usage::Usage;
use mainspring_shared::workflow::spec::{Body, Budget};

use super::Run;
use super::tree::SlotIx;

/// Tokens that the leaves below one node share.
#[derive(Debug)]
pub(super) struct Pool {
    /// Tokens that may be given out; none for no limit.
    limit: Option<u64>,
    spent: u64,
    reserved: u64,
    parent: Option<usize>,
    /// The nested workflow that it belongs to; none for the run's own.
    pub(super) of: Option<SlotIx>,
}

/// Whether a leaf may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slice {
    /// With no limit.
    Unlimited,
    /// With so many tokens.
    Of(u64),
    /// Once others have given back what they do not use.
    Later,
    /// Never: this pool is spent.
    Spent(usize),
}

fn tokens(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

/// What of a budget may be given out at all.
fn usable(budget: Budget) -> u64 {
    let kept = budget.max_tokens as f64 * budget.stop_at_remaining_pct / 100.0;
    budget.max_tokens.saturating_sub(kept.ceil() as u64)
}

impl Run {
    /// The pool of the run itself: the smaller of what its spec and its creator allow, unless a
    /// retry raised it.
    pub(super) fn run_pool(&self) -> Pool {
        let options = &self.record.options;
        let spec = self.spec.envelope.budget;
        let limit = match (options.raised_tokens, options.max_tokens, spec) {
            (Some(raised), _, spec) => Some((raised, spec)),
            (None, Some(given), Some(budget)) => Some((given.min(budget.max_tokens), spec)),
            (None, Some(given), None) => Some((given, None)),
            (None, None, Some(budget)) => Some((budget.max_tokens, spec)),
            (None, None, None) => None,
        };
        Pool {
            limit: limit.map(|(max_tokens, spec)| {
                let pct = spec.map_or(0.0, |budget| budget.stop_at_remaining_pct);
                usable(Budget {
                    max_tokens,
                    stop_at_remaining_pct: pct,
                })
            }),
            spent: 0,
            reserved: 0,
            parent: None,
            of: None,
        }
    }

    /// Replaces the run's limit, with what was spent and set aside kept.
    pub(super) fn raise(&mut self) {
        let fresh = self.run_pool();
        self.pools[0].limit = fresh.limit;
    }

    /// The pool of a node: its own, where it is a workflow with a budget.
    pub(super) fn own_pool(&mut self, slot: SlotIx, above: usize) -> usize {
        let Body::Workflow { envelope, .. } = self.body(slot) else {
            return above;
        };
        let Some(budget) = envelope.budget else {
            return above;
        };
        self.pools.push(Pool {
            limit: Some(usable(budget)),
            spent: 0,
            reserved: 0,
            parent: Some(above),
            of: Some(slot),
        });
        self.pools.len() - 1
    }

    fn pools_of(&self, slot: SlotIx) -> Vec<usize> {
        let first = Some(self.slots[slot].pool);
        std::iter::successors(first, |pool| self.pools[*pool].parent).collect()
    }

    pub(super) fn note_spent(&mut self, slot: SlotIx, usage: &Usage) {
        for pool in self.pools_of(slot) {
            let pool = &mut self.pools[pool];
            pool.spent = pool.spent.saturating_add(tokens(usage));
        }
    }

    pub(super) fn note_reserved(&mut self, slot: SlotIx, slice: u64) {
        for pool in self.pools_of(slot) {
            self.pools[pool].reserved += slice;
        }
    }

    /// Gives back what was set aside for a leaf.
    pub(super) fn give_back(&mut self, slot: SlotIx) {
        let slice = std::mem::take(&mut self.slots[slot].record.reserved);
        for pool in self.pools_of(slot) {
            let pool = &mut self.pools[pool];
            pool.reserved = pool.reserved.saturating_sub(slice);
        }
    }

    /// What a leaf may use: what it asks for itself, else an even share of what is left among the
    /// `rivals` that could start now. Never less than one call may need.
    pub(super) fn slice(&self, slot: SlotIx, rivals: u64) -> Slice {
        let Body::Agent(agent) = self.body(slot) else {
            return Slice::Unlimited;
        };
        let own = agent.spec.budget;
        let call = u64::from(agent.spec.max_tokens);
        let mut slice = own;
        for pool in self.pools_of(slot) {
            let Some(limit) = self.pools[pool].limit else {
                continue;
            };
            let Pool {
                spent, reserved, ..
            } = self.pools[pool];
            let free = limit.saturating_sub(spent).saturating_sub(reserved);
            // A small budget is still worth one call.
            let least = own.unwrap_or(u64::MAX).min(call).min(limit).max(1);
            if free < least {
                return if reserved > 0 {
                    Slice::Later
                } else {
                    Slice::Spent(pool)
                };
            }
            let share = (free / rivals.max(1)).clamp(least, free);
            let most = if own.is_some() { free } else { share };
            slice = Some(slice.map_or(most, |slice| slice.min(most)));
        }
        slice.map_or(Slice::Unlimited, Slice::Of)
    }
}
