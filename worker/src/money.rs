//! Money and tokens of tenants and of agents with a limit: set aside before each call that may cost some, settled behind
//! it.
//!
//! The most that a call can cost is set aside in the database before anybody is asked, so that no limit is
//! passed, however many workers make calls. What becomes of a call decides what is entered in its place: what it
//! cost; nothing, where nobody was asked; and all of it where nobody knows, as of a call that broke off or whose
//! worker died (the scheduler's sweep settles those). Whoever makes many calls sets aside for several at once ([`block`]),
//! as long as that is little of what is left. Nothing is asked for tenants without such a limit and without an
//! agent that has one, but once for each: which have one is read with what is paused. For other agents of a tenant, it is
//! asked once between two reads.

mod block;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mainspring_runtime::Group;
use mainspring_shared::agent::AgentName;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::{self, ReserveMoney, ReserveMoneyOutcome, SettleMoney};
use mainspring_shared::tenant::{Amount, MoneySpan, Payer};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::block::{Block, Blocks, Found};
use crate::Parts;
use crate::boot::Boot;
use crate::patience::Outage;

/// Settlements of one transaction.
const SETTLED_MAX: usize = 128;

/// Tenants, each with one of its agents or none, that are remembered to have no limit.
const UNLIMITED_MAX: usize = 100_000;

/// The pause before what could not be settled is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long an answer waits for what it cost to be entered.
const ENTERED_WITHIN: Duration = Duration::from_secs(1);

/// Why a call may not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoMoney {
    /// What other calls have set aside leaves no room, or the database does not say.
    Busy,
    /// Too little is left of this one's limit, in billionths of a dollar.
    Spent(Payer, MoneySpan, u64),
    /// Too little is left of this one's limit of tokens.
    TokensSpent(Payer, MoneySpan, u64),
}

/// Whose call it is: a tenant's, and that of its published agent, if it is one's.
pub(crate) type Caller = (TenantId, Option<AgentName>);

/// What a call costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// At most.
    pub(crate) most: Amount,
    /// At least, to be of any use: not more than that.
    pub(crate) least: Amount,
}

type Granted = Result<Option<ReservedMoney>, NoMoney>;

/// What the database has set aside: for the call, and beyond that.
type Reserved = Result<Option<(ReservedMoney, Amount)>, NoMoney>;

/// Whose calls have no limit, so far as it is known. All others ask: they may be new, and their limits with them.
#[derive(Debug, Default)]
struct Known {
    /// Those that had none when a call of theirs asked. Of a tenant that has a limit, or an agent that does, for no longer
    /// than until it is read again who has one.
    unlimited: BTreeMap<TenantId, BTreeSet<Option<AgentName>>>,
    /// How many these are.
    count: usize,
    /// How often it was read who has a limit.
    reads: u64,
}

impl Known {
    fn is_unlimited(&self, (tenant, agent): &Caller) -> bool {
        let agents = self.unlimited.get(tenant);
        agents.is_some_and(|agents| agents.contains(agent))
    }

    /// Takes note of what was asked when it had been read so often. Whoever has got a limit in between is not taken for
    /// unlimited.
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

    /// Calls of these tenants ask anew.
    fn note_limited(&mut self, tenants: Vec<TenantId>) {
        self.reads += 1;
        for tenant in tenants {
            let agents = self.unlimited.remove(&tenant);
            self.count -= agents.map_or(0, |agents| agents.len());
        }
    }
}

/// The money of tenants, as this worker has to do with it.
#[derive(Debug)]
pub(crate) struct Money {
    parts: Parts,
    boot: Arc<Boot>,
    known: RwLock<Known>,
    blocks: Blocks,
    reservations: Group<ReserveMoney, Reserved>,
    settlements: Settlements,
}

/// What is to be settled, in order.
pub(crate) type Unsettled = mpsc::UnboundedReceiver<Settlement>;

/// One of them, and who waits for it.
#[derive(Debug)]
pub(crate) struct Settlement {
    /// None only waits for those before it.
    item: Option<SettleMoney>,
    done: Option<oneshot::Sender<()>>,
}

#[derive(Debug, Clone)]
struct Settlements(mpsc::UnboundedSender<Settlement>);

impl Settlements {
    /// Hands one over. Without a task that takes it the process is about to end, and the sweep settles it.
    fn hand(&self, item: Option<SettleMoney>, done: Option<oneshot::Sender<()>>) {
        let _ = self.0.send(Settlement { item, done });
    }
}

/// Money that is set aside for one call.
#[derive(Debug)]
#[must_use = "what is not settled counts as spent once the call has begun"]
pub(crate) struct ReservedMoney {
    amount: Amount,
    /// What is entered where nothing else is said: nothing, until somebody is asked.
    cost: Amount,
    /// None once it is settled.
    source: Option<Source>,
}

/// Where it was taken from.
#[derive(Debug)]
enum Source {
    /// A reservation of its own.
    Own(SettleMoney, Settlements),
    /// One that was made for several calls.
    Block(Arc<Block>),
}

impl Source {
    fn settle(self, amount: Amount, cost: Amount, done: Option<oneshot::Sender<()>>) {
        match self {
            Self::Own(item, settlements) => {
                let cost = Some(cost);
                settlements.hand(Some(SettleMoney { cost, ..item }), done);
            }
            // Nobody waits until it is entered. That it is spent is told without: it counts either way.
            Self::Block(block) => {
                block.give_back(amount, cost);
                if let Some(done) = done {
                    // Whoever waits may have gone.
                    let _ = done.send(());
                }
            }
        }
    }
}

impl ReservedMoney {
    /// As much as was asked for, or less where no more is left.
    pub(crate) fn amount(&self) -> Amount {
        self.amount
    }

    /// Somebody is asked from now on: until it is settled, all of it counts as spent.
    pub(crate) fn begin(&mut self) {
        self.cost = self.amount;
    }

    /// The call cost this. Returns once that is entered, or is going to be.
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

    /// What the worker is made of.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Reads which tenants have a limit, or an agent that does.
    pub(crate) async fn read(&self) -> store::Result<()> {
        let found = self.parts.store.money_tenants().await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.note_limited(found);
        Ok(())
    }

    /// Sets aside what a call costs; none where nothing limits that. What is not begun goes back when it is dropped.
    /// Of a tenant and an agent of which nothing is known, the reservation itself finds out.
    pub(crate) async fn set_aside(&self, caller: Caller, cost: Cost) -> Granted {
        let reads = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if known.is_unlimited(&caller) {
                return Ok(None);
            }
            known.reads
        };
        // Between two lives no call is made for which anybody waits.
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

    /// Gives back what is set aside ahead. It is to be done whenever limits may have changed, and now and then.
    pub(crate) fn close_blocks(&self) {
        self.blocks.close();
    }

    /// Waits until what is over by now is settled, for no longer than this.
    pub(crate) async fn settled(&self, within: Duration) {
        self.close_blocks();
        let (done, settled) = oneshot::channel();
        self.settlements.hand(None, Some(done));
        tokio::select! {
            biased;
            _ = settled => {}
            () = self.parts.clock.sleep(within) => {
                tracing::warn!("what calls cost was not entered in time: it counts at its most");
            }
        }
    }
}

/// A call that is to set money aside ahead: others wait no longer for it than it lives.
struct Asking<'m> {
    blocks: &'m Blocks,
    caller: &'m Caller,
    block: Option<Arc<Block>>,
}

impl Asking<'_> {
    /// Has others draw from what a call has set aside for itself and, this much, beyond that.
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

/// Sets money aside. Whoever has stopped waiting gives it back by dropping it.
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
            tracing::debug!(%error, "it is not known whether money was set aside");
            // It may have been: then it goes back.
            for item in &items {
                drop(aside(item.tenant, item.call, Amount::default()));
            }
            items.iter().map(|_| Err(NoMoney::Busy)).collect()
        }
    }
}

/// Settles until the worker has ended; then what is left once more.
pub(crate) async fn run(parts: Parts, mut unsettled: Unsettled, done: CancellationToken) {
    loop {
        let first = tokio::select! {
            biased;
            first = unsettled.recv() => first,
            () = done.cancelled() => return,
        };
        let Some(first) = first else { return };
        let mut batch = vec![first];
        while batch.len() < SETTLED_MAX
            && let Ok(more) = unsettled.try_recv()
        {
            batch.push(more);
        }
        let items: Vec<SettleMoney> = batch.iter().filter_map(|it| it.item).collect();
        let mut outage = Outage::new(AGAIN_AFTER, AGAIN_AFTER);
        while !items.is_empty() {
            let Err(error) = parts.store.settle_money(items.clone()).await else {
                break;
            };
            if error.is_of_data() {
                tracing::error!(%error, "what calls cost cannot be entered: it counts at its most");
                break;
            }
            tracing::debug!(%error, "what calls cost was not entered; trying on");
            if !outage.pause(&parts, done.cancelled()).await {
                return;
            }
        }
        for waiting in batch.into_iter().filter_map(|it| it.done) {
            // Whoever waits may have gone.
            let _ = waiting.send(());
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
        // An answer from before that says nothing any more.
        known.note_unlimited(caller(1, "a"), 0);
        assert!(!is(&known, 1, "a"));
        known.note_unlimited(caller(1, "a"), 1);
        assert!(is(&known, 1, "a"));
    }
}
