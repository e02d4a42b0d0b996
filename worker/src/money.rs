//! Money and tokens of tenants and agents with a limit: reserved before each call that may cost
//! some, and settled after it.
//!
//! The most that a call can cost is reserved in the database before the call is made, so that no
//! limit is exceeded, however many workers make calls. The outcome of the call then replaces the
//! reservation: what it cost; nothing if the provider was not asked; the full amount if the cost is
//! unknown, as for a call that was cut off or whose worker crashed (the scheduler's sweep settles
//! those). A caller that makes many calls reserves for several at once ([`block`]), as long as that
//! is little of what is left. The tenants that have a limit, or an agent with one, are read
//! together with the pauses. All other tenants are asked about once; other agents of a tenant with
//! limits are asked about once between two reads.

mod block;
mod settling;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mainspring_runtime::Group;
use mainspring_shared::agent::AgentName;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::{self, ReserveMoney, ReserveMoneyOutcome, SettleMoney};
use mainspring_shared::tenant::{Amount, MoneySpan, Payer};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use self::block::{Block, Blocks, Found};
pub(crate) use self::settling::run;
use crate::Parts;
use crate::boot::Boot;

/// How many callers without a limit are remembered: pairs of a tenant and one of its agents, or
/// none.
const UNLIMITED_MAX: usize = 100_000;

/// How long an answer waits until its cost is entered.
const ENTERED_WITHIN: Duration = Duration::from_secs(1);

/// Why a call may not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoMoney {
    /// Other calls' reservations leave no room, or the database does not answer.
    Busy,
    /// Too little is left of this payer's limit, in billionths of a dollar.
    Spent(Payer, MoneySpan, u64),
    /// Too little is left of this payer's token limit.
    TokensSpent(Payer, MoneySpan, u64),
}

/// Who makes the call: a tenant, and its published agent if the call belongs to one.
pub(crate) type Caller = (TenantId, Option<AgentName>);

/// The cost of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// The most that it can cost.
    pub(crate) most: Amount,
    /// The least that is useful; at most `most`.
    pub(crate) least: Amount,
}

type Granted = Result<Option<ReservedMoney>, NoMoney>;

/// A reservation in the database: for the call, and the amount beyond that.
type Reserved = Result<Option<(ReservedMoney, Amount)>, NoMoney>;

/// Callers known to have no limit. All others ask: they may be new, and so may their limits.
#[derive(Debug, Default)]
struct Known {
    /// Callers that had no limit when they asked. Tenants with a limit, or with an agent that has
    /// one, are dropped from here at each read.
    unlimited: BTreeMap<TenantId, BTreeSet<Option<AgentName>>>,
    /// The number of these callers.
    count: usize,
    /// How often the tenants with limits were read.
    reads: u64,
}

impl Known {
    fn is_unlimited(&self, (tenant, agent): &Caller) -> bool {
        let agents = self.unlimited.get(tenant);
        agents.is_some_and(|agents| agents.contains(agent))
    }

    /// Records a caller without a limit, if `reads` is still current: a caller that got a limit in
    /// between must not be taken for unlimited.
    fn note_unlimited(&mut self, (tenant, agent): Caller, reads: u64) {
        if reads != self.reads {
            return;
        }
        if self.count >= UNLIMITED_MAX {
            self.unlimited.clear();
            self.count = 0;
        }
        let agents = self.unlimited.entry(tenant).or_default();
        self.count += usize::from(agents.insert(agent));
    }

    /// Makes calls of these tenants ask again.
    fn note_limited(&mut self, tenants: Vec<TenantId>) {
        self.reads += 1;
        for tenant in tenants {
            let agents = self.unlimited.remove(&tenant);
            self.count -= agents.map_or(0, |agents| agents.len());
        }
    }
}

/// This worker's view of the tenants' money.
#[derive(Debug)]
pub(crate) struct Money {
    parts: Parts,
    boot: Arc<Boot>,
    known: RwLock<Known>,
    blocks: Blocks,
    reservations: Group<ReserveMoney, Reserved>,
    settlements: Settlements,
}

/// Settlements to be stored, in order.
pub(crate) type Unsettled = mpsc::UnboundedReceiver<Settlement>;

/// A settlement, and who waits for it.
#[derive(Debug)]
pub(crate) struct Settlement {
    /// `None` only waits for the settlements before it.
    item: Option<SettleMoney>,
    done: Option<oneshot::Sender<()>>,
}

#[derive(Debug, Clone)]
struct Settlements(mpsc::UnboundedSender<Settlement>);

impl Settlements {
    /// Enqueues a settlement. If no task receives it, the process is about to end, and the sweep
    /// settles it.
    fn hand(&self, item: Option<SettleMoney>, done: Option<oneshot::Sender<()>>) {
        let _ = self.0.send(Settlement { item, done });
    }
}

/// Money reserved for one call.
#[derive(Debug)]
#[must_use = "what is not settled counts as spent once the call has begun"]
pub(crate) struct ReservedMoney {
    amount: Amount,
    /// What is entered if nothing else is reported: nothing, until the call begins.
    cost: Amount,
    /// `None` once it is settled.
    source: Option<Source>,
}

/// Where a reservation came from.
#[derive(Debug)]
enum Source {
    /// A database reservation of its own.
    Own(SettleMoney, Settlements),
    /// A block that was reserved for several calls.
    Block(Arc<Block>),
}

impl Source {
    fn settle(self, amount: Amount, cost: Amount, done: Option<oneshot::Sender<()>>) {
        match self {
            Self::Own(item, settlements) => {
                let cost = Some(cost);
                settlements.hand(Some(SettleMoney { cost, ..item }), done);
            }
            // Nobody waits for a block to be settled: its money counts as spent either way.
            Self::Block(block) => {
                block.give_back(amount, cost);
                if let Some(done) = done {
                    // The waiter may be gone.
                    let _ = done.send(());
                }
            }
        }
    }
}

impl ReservedMoney {
    /// The reserved amount: as much as was asked for, or less if no more is left.
    pub(crate) fn amount(&self) -> Amount {
        self.amount
    }

    /// The call begins: until it is settled, the whole amount counts as spent.
    pub(crate) fn begin(&mut self) {
        self.cost = self.amount;
    }

    /// Settles the call at this cost. Returns once that is entered, or after a short wait.
    pub(crate) async fn settle(mut self, parts: &Parts, cost: Amount) {
        let Some(source) = self.source.take() else {
            return;
        };
        let (done, entered) = oneshot::channel();
        source.settle(self.amount, cost, Some(done));
        tokio::select! {
            biased;
            _ = entered => {}
            () = parts.clock.sleep(ENTERED_WITHIN) => {}
        }
    }
}

impl Drop for ReservedMoney {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            source.settle(self.amount, self.cost, None);
        }
    }
}

impl Money {
    pub(crate) fn new(parts: &Parts, boot: &Arc<Boot>) -> (Self, Unsettled) {
        let (settlements, unsettled) = mpsc::unbounded_channel();
        let settlements = Settlements(settlements);
        let reservations = Group::spawn(1, {
            let (parts, settlements) = (parts.clone(), settlements.clone());
            move |items| reserve(parts.clone(), settlements.clone(), items)
        });
        let money = Self {
            parts: parts.clone(),
            boot: boot.clone(),
            known: RwLock::default(),
            blocks: Blocks::default(),
            reservations,
            settlements,
        };
        (money, unsettled)
    }

    /// The worker's dependencies.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Reads which tenants have a limit, or an agent with one.
    pub(crate) async fn read(&self) -> store::Result<()> {
        let found = self.parts.store.money_tenants().await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.note_limited(found);
        Ok(())
    }

    /// Reserves the cost of a call; `None` if no limit applies. A reservation that has not begun is
    /// given back when it is dropped. For unknown callers, the reservation itself finds out whether
    /// they have a limit.
    pub(crate) async fn set_aside(&self, caller: Caller, cost: Cost) -> Granted {
        let reads = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if known.is_unlimited(&caller) {
                return Ok(None);
            }
            known.reads
        };
        // Between two boots, no call is made that anybody waits for.
        let life = self.boot.current().ok_or(NoMoney::Busy)?;
        let now = self.parts.clock.monotonic();
        let ahead = match self.blocks.draw(&caller, cost.most, life.id, now) {
            Found::Drawn(block) => {
                return Ok(Some(ReservedMoney {
                    amount: cost.most,
                    cost: Amount::default(),
                    source: Some(Source::Block(block)),
                }));
            }
            Found::Asks(ahead) => ahead,
        };
        let item = ReserveMoney {
            tenant: caller.0,
            agent: caller.1.clone(),
            call: self.parts.entropy.random_id(),
            boot: life.id,
            most: cost.most,
            least: cost.least,
            ahead,
        };
        let asking = (ahead != Amount::default()).then(|| Asking {
            blocks: &self.blocks,
            caller: &caller,
            block: None,
        });
        let reserved = self.reservations.submit(item).await;
        let Some((aside, more)) = reserved.unwrap_or(Err(NoMoney::Busy))? else {
            drop(asking);
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            self.blocks.forget(&caller);
            known.note_unlimited(caller, reads);
            return Ok(None);
        };
        Ok(Some(match asking {
            Some(asking) if more != Amount::default() => asking.share(aside, more, (life.id, now)),
            Some(_) | None => aside,
        }))
    }

    /// Gives back what is reserved ahead. To be called whenever limits may have changed, and
    /// regularly.
    pub(crate) fn close_blocks(&self) {
        self.blocks.close();
    }

    /// Waits until everything that is over is settled, but no longer than `within`.
    pub(crate) async fn settled(&self, within: Duration) {
        self.close_blocks();
        let (done, settled) = oneshot::channel();
        self.settlements.hand(None, Some(done));
        tokio::select! {
            biased;
            _ = settled => {}
            () = self.parts.clock.sleep(within) => {
                tracing::warn!(
                    "charging calls at their maximum: their cost could not be recorded in time"
                );
            }
        }
    }
}

/// A call that is reserving money ahead. Dropping it reports the outcome, so that no call waits for it.
struct Asking<'m> {
    blocks: &'m Blocks,
    caller: &'m Caller,
    block: Option<Arc<Block>>,
}

impl Asking<'_> {
    /// Lets others draw from this call's reservation, which exceeds its own need by `more`.
    fn share(
        mut self,
        mut aside: ReservedMoney,
        more: Amount,
        made: (BootId, Duration),
    ) -> ReservedMoney {
        if let Some(Source::Own(item, settlements)) = aside.source.take() {
            let block = Arc::new(Block::new(item, made, more, settlements));
            self.block = Some(Arc::clone(&block));
            aside.source = Some(Source::Block(block));
        }
        aside
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.blocks.asked(self.caller, self.block.as_ref());
    }
}

/// Reserves money. A caller that has stopped waiting gives it back by dropping the reservation.
async fn reserve(
    parts: Parts,
    settlements: Settlements,
    items: Vec<ReserveMoney>,
) -> Vec<Reserved> {
    let aside = |tenant: TenantId, call: Uuid, amount: Amount| {
        let item = SettleMoney {
            tenant,
            call,
            cost: None,
        };
        ReservedMoney {
            amount,
            cost: Amount::default(),
            source: Some(Source::Own(item, settlements.clone())),
        }
    };
    match parts.store.reserve_money(items.clone()).await {
        Ok(outcomes) => {
            let outcomes = items.iter().zip(outcomes);
            let granted = outcomes.map(|(item, outcome)| match outcome {
                ReserveMoneyOutcome::Granted(amount) => {
                    let more = amount.less(item.most);
                    let own = more.map_or(amount, |_| item.most);
                    let aside = aside(item.tenant, item.call, own);
                    Ok(Some((aside, more.unwrap_or_default())))
                }
                ReserveMoneyOutcome::Unlimited => Ok(None),
                ReserveMoneyOutcome::Busy => Err(NoMoney::Busy),
                ReserveMoneyOutcome::Spent(of, span, limit) => Err(NoMoney::Spent(of, span, limit)),
                ReserveMoneyOutcome::TokensSpent(of, span, limit) => {
                    Err(NoMoney::TokensSpent(of, span, limit))
                }
            });
            granted.collect()
        }
        Err(error) => {
            tracing::debug!(
                %error,
                "a reservation of money failed or its answer was lost; releasing it"
            );
            // It may have been: give it back.
            for item in &items {
                drop(aside(item.tenant, item.call, Amount::default()));
            }
            items.iter().map(|_| Err(NoMoney::Busy)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_limit_asks_once_and_in_a_tenant_where_an_agent_has_one_again_and_again() {
        let caller = |tenant: i32, agent: &str| (TenantId(tenant), agent.parse().ok());
        let mut known = Known::default();
        for (tenant, agent) in [(1, ""), (1, "a"), (2, "a"), (2, "a")] {
            known.note_unlimited(caller(tenant, agent), 0);
        }
        assert_eq!(known.count, 3);
        let is = |known: &Known, tenant, agent| known.is_unlimited(&caller(tenant, agent));
        assert!(is(&known, 1, "") && is(&known, 1, "a") && is(&known, 2, "a"));
        assert!(!is(&known, 1, "b") && !is(&known, 2, "") && !is(&known, 3, "a"));
        known.note_limited(vec![TenantId(1), TenantId(7)]);
        assert_eq!(known.count, 1);
        assert!(!is(&known, 1, "") && !is(&known, 1, "a") && is(&known, 2, "a"));
        // An answer from before the last read has no effect.
        known.note_unlimited(caller(1, "a"), 0);
        assert!(!is(&known, 1, "a"));
        known.note_unlimited(caller(1, "a"), 1);
        assert!(is(&known, 1, "a"));
    }
}
