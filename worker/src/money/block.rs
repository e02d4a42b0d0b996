//! Money that is set aside ahead, for calls that are expected soon: with the reservation of a call that is made now.
//!
//! Each call draws from the block what it costs at most, and gives back what it did not take. After a second, and when limits
//! may have changed, the block is closed, and settled with what its calls took as soon as all of them have ended.
//! To the database it is a reservation like those of single calls: no limit is passed, and a dead worker's counts at its
//! most. That is little: see [`MONEY_AHEAD_PARTS`](mainspring_shared::tenant::MONEY_AHEAD_PARTS) and [`UNSETTLED_MAX`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::id::BootId;
use mainspring_shared::store::SettleMoney;
use mainspring_shared::tenant::Amount;

use super::{Caller, Settlements};

/// How much more than was asked for in the last while is expected at most, in thousandths.
const GROWTH_MAX: u128 = 2_000;

/// Closed blocks of one caller that have calls under way. What they have left is nobody's until these have ended, so
/// long calls are not to make many of them: their caller sets nothing aside ahead until one is over.
const UNSETTLED_MAX: usize = 4;

/// How long calls draw from a block: they count for the minute and the day of its begin.
const BLOCK_LASTS: Duration = Duration::from_secs(1);

/// A reservation for several calls, and what they have drawn from it.
#[derive(Debug)]
pub(super) struct Block {
    /// Who made it: another life of the process does not draw from it.
    boot: BootId,
    /// Since when it has been made: its calls count for that time.
    since: Duration,
    settlements: Settlements,
    balance: Mutex<Balance>,
}

#[derive(Debug)]
struct Balance {
    /// What can be drawn.
    left: Amount,
    /// What calls that have ended took.
    spent: Amount,
    /// Calls that have not.
    under_way: u64,
    /// The reservation; none once it is handed over to be settled.
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
        // One that took more than it had drawn takes it from the others.
        self.left = self.left.and(drawn).without(cost);
        self.under_way -= 1;
    }

    /// What is to be settled now: all of it, once it is closed and no call of it is under way.
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
    /// A reservation with this much beyond what its first call has drawn.
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

    /// A call that has drawn so much has ended, and took this.
    pub(super) fn give_back(&self, drawn: Amount, cost: Amount) {
        self.change(|balance| balance.give_back(drawn, cost));
    }

    fn is_settled(&self) -> bool {
        self.change(|balance| balance.item.is_none())
    }

    fn draw(&self, most: Amount) -> bool {
        self.change(|balance| balance.draw(most))
    }

    /// Nobody draws from it any more.
    fn close(&self) {
        self.change(|balance| balance.is_closed = true);
    }
}

impl Drop for Block {
    /// Nobody draws from it, nor has.
    fn drop(&mut self) {
        self.close();
    }
}

/// The blocks of all callers.
#[derive(Debug, Default)]
pub(super) struct Blocks(Mutex<BTreeMap<Caller, Demand>>);

/// What a caller asks for, and its block.
#[derive(Debug, Default)]
struct Demand {
    block: Option<Arc<Block>>,
    /// Those of before, until they are settled.
    closed: Vec<Arc<Block>>,
    /// What its calls cost at most since some was last to be set aside ahead.
    asked: Amount,
    /// When that was.
    since: Duration,
    /// Whether a call is setting some aside ahead.
    is_asking: bool,
    /// Whether it has made no call since blocks were closed.
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

    /// What it is expected to ask for within a second; nothing where that is less than a call which asks now.
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

/// What a call finds.
#[derive(Debug)]
pub(super) enum Found {
    /// It has drawn what it costs at most.
    Drawn(Arc<Block>),
    /// It sets that aside itself, and this much more for others.
    Asks(Amount),
}

impl Blocks {
    /// Draws from the block of a caller. Whoever is to set some aside ahead tells by [`Self::asked`] what became of it.
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

    /// The call that was to set some aside ahead has done so, or has not.
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

    /// Closes all blocks, and forgets who has made no call since that was done before.
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
        // Nobody waits for it any more.
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
        /// Whatever calls draw and take, they have never more than the block in all, and what is settled is the sum of
        /// what they took.
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
