//! Budgets: a slice is reserved before a leaf starts, and its unused part is released when the leaf
//! ends.

use mainspring_shared::budget::{Caps, Spent, Used};
use mainspring_shared::workflow::nodes::Body;
use mainspring_shared::workflow::spec::Budget;

use super::Run;
use super::nodes::Leaf;
use super::tree::SlotIx;

/// The budget that the leaves below one node share.
#[derive(Debug)]
pub(super) struct Pool {
    /// The most that may be spent and reserved in total.
    limit: Caps,
    spent: Spent,
    reserved: Spent,
    parent: Option<usize>,
    /// The nested workflow that the pool belongs to; none for the run's own pool.
    pub(super) of: Option<SlotIx>,
}

impl Pool {
    fn new(limit: Caps, parent: Option<usize>, of: Option<SlotIx>) -> Self {
        Self {
            limit,
            spent: Spent::default(),
            reserved: Spent::default(),
            parent,
            of,
        }
    }
}

/// Whether a leaf may start, and with which budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slice {
    /// Without a limit.
    Unlimited,
    /// With this budget.
    Of(Caps),
    /// Only after other leaves release what they do not use.
    Later,
    /// Never: the pool with this index is spent.
    Spent(usize),
}

/// The part of a budget that leaves may use.
fn usable(budget: Budget) -> u64 {
    let kept = budget.max_tokens as f64 * budget.stop_at_remaining_pct / 100.0;
    budget.max_tokens.saturating_sub(kept.ceil() as u64)
}

impl Run {
    /// The run's own pool. Its limit is the smallest that its spec, its creator and its starter
    /// allow, unless a retry raised it.
    pub(super) fn run_pool(&self) -> Pool {
        let options = &self.record.options;
        let spec = self.spec.envelope.budget;
        let set_aside = match (&options.starter, options.raised_tokens) {
            (Some(starter), None) => starter.caps(),
            (Some(_) | None, _) => Caps::default(),
        };
        let given = spec.map(|budget| budget.max_tokens).into_iter();
        let given = given
            .chain(options.max_tokens)
            .chain(set_aside.tokens)
            .min();
        let limit = options.raised_tokens.or(given);
        let tokens = limit.map(|max_tokens| {
            usable(Budget {
                max_tokens,
                stop_at_remaining_pct: spec.map_or(0.0, |budget| budget.stop_at_remaining_pct),
            })
        });
        let limit = Caps {
            tokens,
            ..set_aside
        };
        Pool::new(limit, None, None)
    }

    /// Recomputes the run's limit. What was spent and reserved is unchanged.
    pub(super) fn raise(&mut self) {
        self.pools[0].limit = self.run_pool().limit;
    }

    /// What the run has used so far.
    pub fn used(&self) -> Used {
        let usage = self.record.usage;
        Used {
            usage,
            kept: self.pools[0].spent.minus(Spent::of(&usage, 0)),
        }
    }

    /// The pool of a node: a new one if the node is a workflow with a budget, else the pool above
    /// it.
    pub(super) fn own_pool(&mut self, slot: SlotIx, above: usize) -> usize {
        let Body::Workflow(workflow) = self.body(slot) else {
            return above;
        };
        let Some(budget) = workflow.envelope.budget else {
            return above;
        };
        let limit = Caps {
            tokens: Some(usable(budget)),
            ..Caps::default()
        };
        self.pools.push(Pool::new(limit, Some(above), Some(slot)));
        self.pools.len() - 1
    }

    fn pools_of(&self, slot: SlotIx) -> Vec<usize> {
        let first = Some(self.slots[slot].pool);
        std::iter::successors(first, |pool| self.pools[*pool].parent).collect()
    }

    pub(super) fn note_spent(&mut self, slot: SlotIx, spent: Spent) {
        for pool in self.pools_of(slot) {
            self.pools[pool].spent = self.pools[pool].spent.plus(spent);
        }
    }

    pub(super) fn note_reserved(&mut self, slot: SlotIx, slice: Spent) {
        for pool in self.pools_of(slot) {
            self.pools[pool].reserved = self.pools[pool].reserved.plus(slice);
        }
    }

    /// Releases what was reserved for a leaf.
    pub(super) fn release_slice(&mut self, slot: SlotIx) {
        let slice = std::mem::take(&mut self.slots[slot].record.reserved);
        for pool in self.pools_of(slot) {
            self.pools[pool].reserved = self.pools[pool].reserved.minus(slice);
        }
    }

    /// The budget of a leaf: what it asks for, else an even share of what is left among the
    /// `rivals` that could start now. It is never less than one call may need.
    pub(super) fn slice(&self, slot: SlotIx, rivals: u64) -> Slice {
        let Some((own, call)) = self.leaf(slot).and_then(Leaf::wanted) else {
            return Slice::Unlimited;
        };
        let mut slice = Caps {
            tokens: own,
            ..Caps::default()
        };
        for pool in self.pools_of(slot) {
            let Pool {
                limit,
                spent,
                reserved,
                ..
            } = self.pools[pool];
            let free = limit.less(spent.plus(reserved));
            // A pool smaller than one call may need can still fund one call.
            let tokens = own.unwrap_or(u64::MAX).min(call.into());
            let least = Spent {
                tokens: tokens.min(limit.tokens.unwrap_or(u64::MAX)).max(1),
                nano_usd: 1,
                rounds: 1,
            };
            if !free.has(least) {
                return if reserved.is_nothing() {
                    Slice::Spent(pool)
                } else {
                    Slice::Later
                };
            }
            let share = free.part(rivals, least);
            let most = Caps {
                // An explicit request is granted in full if the budget allows it.
                tokens: if own.is_some() {
                    free.tokens
                } else {
                    share.tokens
                },
                ..share
            };
            slice = slice.and(most);
        }
        if slice.is_none() {
            Slice::Unlimited
        } else {
            Slice::Of(slice)
        }
    }
}
