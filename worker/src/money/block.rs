//! Blocks of money reserved ahead for calls that are expected soon, together with the reservation
//! of a call that is made now.
//!
//! Each call draws the most that it can cost, and gives back what it did not use. After a second,
//! and when limits may have changed, the block is closed; it is settled with what its calls used as
//! soon as all of them have ended. To the database it is a reservation like that of a single call:
//! no limit is exceeded, and a crashed worker's block counts in full. That is little: see
//! [`MONEY_AHEAD_PARTS`](mainspring_shared::tenant::MONEY_AHEAD_PARTS) and [`UNSETTLED_MAX`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_runtime::buggify;
use mainspring_shared::id::BootId;
use mainspring_shared::store::SettleMoney;
use mainspring_shared::tenant::Amount;

use super::{Caller, Settlements};

/// Maximum ratio of the expected demand to that of the last period, in thousandths.
const GROWTH_MAX: u128 = 2_000;

/// Maximum number of closed blocks of one caller with calls in flight. Their remainder is unusable
/// until those calls have ended, so long calls must not accumulate many: the caller reserves
/// nothing ahead until one is over.
const UNSETTLED_MAX: usize = 4;

/// How long calls draw from a block: they count for the minute and the day in which it began.
const BLOCK_LASTS: Duration = Duration::from_secs(1);

/// A reservation for several calls, and what they have drawn from it.
#[derive(Debug)]
pub(super) struct Block {
    /// The boot that made it; another boot of the process does not draw from it.
    boot: BootId,
    /// When it was made; its calls count for that time.
    since: Duration,
    settlements: Settlements,
    balance: Mutex<Balance>,
}

#[derive(Debug)]
struct Balance {
    /// The amount that can still be drawn.
    left: Amount,
    /// What ended calls used.
    spent: Amount,
    /// The number of calls in flight.
    under_way: u64,
    /// The reservation; `None` once it has been handed over for settlement.
    item: Option<SettleMoney>,
    is_closed: bool,
}

impl Balance {
    fn draw(&mut self, most: Amount) -> bool {
        let rest = self.left.less(most).filter(|_| !self.is_closed);
        let Some(rest) = rest else { return false };
        self.left = rest;
        self.under_way += 1;
        true
    }

    fn give_back(&mut self, drawn: Amount, cost: Amount) {
        self.spent = self.spent.and(cost);
        // A call that used more than it had drawn takes it from the others.
        self.left = self.left.and(drawn).without(cost);
        self.under_way -= 1;
    }

    /// What must be settled now: everything, once the block is closed and no call is in flight.
    fn over(&mut self) -> Option<SettleMoney> {
        if !self.is_closed || self.under_way > 0 {
            return None;
        }
        let item = self.item.take()?;
        Some(SettleMoney {
            cost: Some(self.spent),
            ..item
        })
    }
}

impl Block {
    /// A reservation with `left` beyond what its first call has drawn.
    pub(super) fn new(
        item: SettleMoney,
        (boot, since): (BootId, Duration),
        left: Amount,
        settlements: Settlements,
    ) -> Self {
        Self {
            boot,
            since,
            settlements,
            balance: Mutex::new(Balance {
                left,
                spent: Amount::default(),
                under_way: 1,
                item: Some(item),
                is_closed: false,
            }),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Balance) -> T) -> T {
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut balance);
        if let Some(item) = balance.over() {
            self.settlements.hand(Some(item), None);
        }
        result
    }

    /// Records that a call which drew `drawn` has ended and used `cost`.
    pub(super) fn give_back(&self, drawn: Amount, cost: Amount) {
        self.change(|balance| balance.give_back(drawn, cost));
    }

    fn is_settled(&self) -> bool {
        self.change(|balance| balance.item.is_none())
    }

    fn draw(&self, most: Amount) -> bool {
        self.change(|balance| balance.draw(most))
    }

    /// Stops further draws.
    fn close(&self) {
        self.change(|balance| balance.is_closed = true);
    }
}

impl Drop for Block {
    /// Once dropped, nothing draws from it and nothing is in flight.
    fn drop(&mut self) {
        self.close();
    }
}

/// The blocks of all callers.
#[derive(Debug, Default)]
pub(super) struct Blocks(Mutex<BTreeMap<Caller, Demand>>);

/// The demand of a caller, and its block.
#[derive(Debug, Default)]
struct Demand {
    block: Option<Arc<Block>>,
    /// Earlier blocks that are not settled yet.
    closed: Vec<Arc<Block>>,
    /// The total maximum cost of its calls since `since`.
    asked: Amount,
    /// When a reservation ahead was last considered.
    since: Duration,
    /// Whether a call is reserving money ahead.
    is_asking: bool,
    /// Whether it has made no call since blocks were last closed.
    is_idle: bool,
}

impl Demand {
    fn close(&mut self) {
        if let Some(block) = self.block.take() {
            block.close();
            self.closed.push(block);
        }
        self.closed.retain(|block| !block.is_settled());
    }

    /// The demand expected within a second; nothing if that is less than the current call needs.
    fn expected(&mut self, most: Amount, now: Duration) -> Amount {
        let elapsed = now.saturating_sub(self.since).as_millis().max(1);
        let part = (1_000_000 / elapsed).min(GROWTH_MAX);
        let of = |asked: u64| u64::try_from(u128::from(asked) * part / 1_000).unwrap_or(u64::MAX);
        let expected = Amount::new(of(self.asked.nano_usd), of(self.asked.tokens));
        (self.asked, self.since) = (Amount::default(), now);
        if expected.less(most).is_some() {
            expected
        } else {
            Amount::default()
        }
    }
}

/// The result of drawing from a block.
#[derive(Debug)]
pub(super) enum Found {
    /// The call has drawn the most that it can cost.
    Drawn(Arc<Block>),
    /// The call must reserve that itself, and this much more for others.
    Asks(Amount),
}

impl Blocks {
    /// Draws from a caller's block. A call that is to reserve money ahead reports the outcome with
    /// [`Self::asked`].
    pub(super) fn draw(&self, caller: &Caller, most: Amount, boot: BootId, now: Duration) -> Found {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(demand) = callers.get_mut(caller) else {
            // It may make no other call, or need no reservation at all.
            let demand = Demand {
                asked: most,
                since: now,
                ..Demand::default()
            };
            callers.insert(caller.clone(), demand);
            return Found::Asks(Amount::default());
        };
        demand.is_idle = false;
        demand.asked = demand.asked.and(most);
        if let Some(block) = &demand.block
            && !buggify("block.closed")
            && block.boot == boot
            && now.saturating_sub(block.since) < BLOCK_LASTS
            && block.draw(most)
        {
            return Found::Drawn(Arc::clone(block));
        }
        demand.close();
        if demand.is_asking || demand.closed.len() >= UNSETTLED_MAX {
            return Found::Asks(Amount::default());
        }
        let ahead = demand.expected(most, now);
        demand.is_asking = ahead != Amount::default();
        Found::Asks(ahead)
    }

    /// Reports that the call which was to reserve money ahead has done so, or has failed.
    pub(super) fn asked(&self, caller: &Caller, block: Option<&Arc<Block>>) {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(demand) = callers.get_mut(caller) {
            demand.is_asking = false;
            if let Some(block) = block {
                demand.close();
                demand.block = Some(Arc::clone(block));
            }
        } else if let Some(block) = block {
            block.close();
        }
    }

    /// Closes all blocks, and forgets callers that made no call since the previous close.
    pub(super) fn close(&self) {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.retain(|_, demand| {
            demand.close();
            let is_kept = !demand.is_idle || demand.is_asking || !demand.closed.is_empty();
            demand.is_idle = true;
            is_kept
        });
    }

    /// Forgets a caller without a limit.
    pub(super) fn forget(&self, caller: &Caller) {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut demand) = callers.remove(caller) {
            demand.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::TenantId;
    use proptest::prelude::*;
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::*;
    use crate::money::Unsettled;

    const BOOT: BootId = BootId(Uuid::from_u128(1));

    fn caller() -> Caller {
        (TenantId(1), None)
    }

    fn tokens(tokens: u64) -> Amount {
        Amount::new(0, tokens)
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn block(left: u64) -> (Arc<Block>, Unsettled) {
        block_at(0, left)
    }

    fn block_at(ms: u64, left: u64) -> (Arc<Block>, Unsettled) {
        let (settlements, unsettled) = mpsc::unbounded_channel();
        let item = SettleMoney {
            tenant: TenantId(1),
            call: Uuid::from_u128(7),
            cost: None,
        };
        let made = (BOOT, at(ms));
        let block = Block::new(item, made, tokens(left), Settlements(settlements));
        (Arc::new(block), unsettled)
    }

    fn cost(unsettled: &mut Unsettled) -> Option<Amount> {
        let settled = unsettled.try_recv().ok()?;
        settled.item.expect("what is settled").cost
    }

    fn asks(found: &Found) -> u64 {
        match found {
            Found::Asks(ahead) => ahead.tokens,
            Found::Drawn(_) => panic!("it has drawn"),
        }
    }

    #[test]
    fn who_takes_more_than_it_has_drawn_takes_it_from_the_others() {
        let (block, mut unsettled) = block(10);
        assert!(block.draw(tokens(4)));
        block.give_back(tokens(4), tokens(9));
        assert!(!block.draw(tokens(2)) && block.draw(tokens(1)));
        block.give_back(tokens(1), tokens(5));
        block.give_back(tokens(0), tokens(0));
        drop(block);
        assert_eq!(
            cost(&mut unsettled),
            Some(tokens(14)),
            "whoever has it last"
        );
    }

    #[test]
    fn a_closed_block_is_settled_once_when_its_last_call_has_ended() {
        let (block, mut unsettled) = block(10);
        assert!(block.draw(tokens(6)) && !block.draw(tokens(6)));
        block.give_back(tokens(6), tokens(1));
        assert!(
            block.draw(tokens(9)),
            "what was not taken can be drawn again"
        );
        block.close();
        assert!(!block.draw(Amount::default()));
        block.give_back(tokens(9), tokens(9));
        assert_eq!(cost(&mut unsettled), None, "its first call is under way");
        block.give_back(tokens(5), tokens(2));
        assert_eq!(cost(&mut unsettled), Some(tokens(12)));
        block.close();
        assert_eq!(cost(&mut unsettled), None);
    }

    #[test]
    fn who_makes_few_calls_sets_nothing_aside_ahead_and_who_makes_many_a_second_of_them() {
        let blocks = Blocks::default();
        let draw = |ms| blocks.draw(&caller(), tokens(10), BOOT, at(ms));
        assert_eq!(asks(&draw(0)), 0, "it may be the only one");
        assert_eq!(asks(&draw(10_000)), 0);
        assert_eq!(asks(&draw(10_001)), 20, "no more than twice as much");
        assert_eq!(asks(&draw(10_002)), 0, "another one asks already");
        blocks.asked(&caller(), None);
        for n in 1..50 {
            assert!(asks(&draw(10_002 + n)) > 0);
            blocks.asked(&caller(), None);
        }
        let (block, mut unsettled) = block_at(10_051, 15);
        blocks.asked(&caller(), Some(&block));
        assert!(matches!(draw(10_100), Found::Drawn(_)));
        assert_eq!(asks(&draw(10_551)), 40, "two calls in half a second");
        block.give_back(tokens(10), tokens(10));
        block.give_back(tokens(10), tokens(3));
        assert_eq!(
            cost(&mut unsettled),
            Some(tokens(13)),
            "too small a rest closes it"
        );
    }

    #[test]
    fn blocks_end_when_limits_are_read_and_belong_to_one_life() {
        let blocks = Blocks::default();
        let (first, mut unsettled) = block(100);
        blocks.draw(&caller(), tokens(1), BOOT, at(0));
        blocks.asked(&caller(), Some(&first));
        first.give_back(tokens(1), tokens(1));
        assert_eq!(cost(&mut unsettled), None);
        blocks.close();
        assert_eq!(cost(&mut unsettled), Some(tokens(1)));
        blocks.close();
        assert!(
            blocks.0.lock().expect("no panic").is_empty(),
            "it has made no call since"
        );

        let (old, mut unsettled) = block(100);
        blocks.draw(&caller(), tokens(1), BOOT, at(0));
        blocks.asked(&caller(), Some(&old));
        old.give_back(tokens(1), tokens(1));
        assert!(matches!(
            blocks.draw(&caller(), tokens(1), BOOT, at(999)),
            Found::Drawn(_)
        ));
        old.give_back(tokens(1), tokens(1));
        asks(&blocks.draw(&caller(), tokens(1), BOOT, at(1_000)));
        assert_eq!(cost(&mut unsettled), Some(tokens(2)), "its second is over");
        blocks.asked(&caller(), None);

        let (second, mut unsettled) = block(100);
        blocks.draw(&caller(), tokens(1), BOOT, at(0));
        blocks.asked(&caller(), Some(&second));
        second.give_back(tokens(1), tokens(1));
        let other = BootId(Uuid::from_u128(2));
        asks(&blocks.draw(&caller(), tokens(1), other, at(1)));
        assert_eq!(cost(&mut unsettled), Some(tokens(1)));
        // Nobody waits for it any longer.
        let (late, mut unsettled) = block(100);
        blocks.forget(&caller());
        blocks.asked(&caller(), Some(&late));
        late.give_back(tokens(1), tokens(1));
        assert_eq!(cost(&mut unsettled), Some(tokens(1)));
    }

    #[test]
    fn long_calls_have_little_set_aside_that_is_of_no_use() {
        let blocks = Blocks::default();
        blocks.draw(&caller(), tokens(10), BOOT, at(0));
        let mut open = Vec::new();
        for n in 1..=UNSETTLED_MAX as u64 {
            assert!(asks(&blocks.draw(&caller(), tokens(10), BOOT, at(n))) > 0);
            let (block, unsettled) = block(100);
            blocks.asked(&caller(), Some(&block));
            blocks.close();
            open.push((block, unsettled));
        }
        assert_eq!(asks(&blocks.draw(&caller(), tokens(10), BOOT, at(10))), 0);
        let (block, mut unsettled) = open.swap_remove(1);
        block.give_back(tokens(10), tokens(4));
        assert_eq!(cost(&mut unsettled), Some(tokens(4)));
        assert!(asks(&blocks.draw(&caller(), tokens(10), BOOT, at(11))) > 0);
    }

    proptest! {
        /// Whatever calls draw and use, in total they never have more than the block, and what is
        /// settled is the sum of what they used.
        #[test]
        fn calls_never_have_more_than_their_block(
            size in 0_u64..200,
            calls in prop::collection::vec((0_u64..60, 0_u64..60, any::<bool>()), 0..60),
        ) {
            let (block, mut unsettled) = block(size);
            let (mut under_way, mut spent) = (vec![(0, 0)], 0);
            for (most, took, ends) in calls {
                if block.draw(tokens(most)) {
                    under_way.push((most, took.min(most)));
                }
                let drawn: u64 = under_way.iter().map(|(most, _)| most).sum();
                prop_assert!(drawn + spent <= size);
                if ends && let Some((most, took)) = under_way.pop() {
                    block.give_back(tokens(most), tokens(took));
                    spent += took;
                }
            }
            block.close();
            for (most, took) in under_way {
                prop_assert_eq!(cost(&mut unsettled), None);
                block.give_back(tokens(most), tokens(took));
                spent += took;
            }
            prop_assert_eq!(cost(&mut unsettled), Some(tokens(spent)));
        }
    }
}
