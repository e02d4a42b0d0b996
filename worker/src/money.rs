//! Money and tokens of tenants with a limit: set aside before each call that may cost some, settled behind it.
//!
//! The most that a call can cost is set aside in the database before anybody is asked, so that no limit is
//! passed, however many workers make calls. What becomes of a call decides what is entered in its place: what it
//! cost; nothing, where nobody was asked; and all of it where nobody knows, as of a call that broke off or whose
//! worker died (the scheduler's sweep settles those). For tenants without such a limit nothing is asked: which
//! have one is read with what is paused.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mainspring_runtime::Group;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{self, ReserveMoney, ReserveMoneyOutcome, SettleMoney};
use mainspring_shared::tenant::{Amount, MoneySpan};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::Parts;
use crate::boot::Boot;
use crate::patience::Outage;

/// Settlements of one transaction.
const SETTLED_MAX: usize = 128;

/// Tenants that are remembered to have no limit.
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
    /// Too little is left of this limit, in billionths of a dollar.
    Spent(MoneySpan, u64),
    /// Too little is left of this limit of tokens.
    TokensSpent(MoneySpan, u64),
}

/// What a call costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// At most.
    pub(crate) most: Amount,
    /// At least, to be of any use: not more than that.
    pub(crate) least: Amount,
}

type Granted = Result<Option<ReservedMoney>, NoMoney>;

/// Which tenants have a limit, as it was read last.
#[derive(Debug, Default)]
struct Known {
    limited: BTreeSet<TenantId>,
    /// Those that had none when a call of theirs asked. For all others a call asks: they may be new, and their limits
    /// with them.
    unlimited: BTreeSet<TenantId>,
}

/// The money of tenants, as this worker has to do with it.
#[derive(Debug)]
pub(crate) struct Money {
    parts: Parts,
    boot: Arc<Boot>,
    known: RwLock<Known>,
    reservations: Group<ReserveMoney, Granted>,
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
    /// What is entered where nothing else is said; none once it is settled.
    item: Option<SettleMoney>,
    settlements: Settlements,
}

impl ReservedMoney {
    /// As much as was asked for, or less where no more is left.
    pub(crate) fn amount(&self) -> Amount {
        self.amount
    }

    /// Somebody is asked from now on: until it is settled, all of it counts as spent.
    pub(crate) fn begin(&mut self) {
        if let Some(item) = &mut self.item {
            item.cost = None;
        }
    }

    /// The call cost this. Returns once that is entered, or is going to be.
    pub(crate) async fn settle(mut self, parts: &Parts, cost: Amount) {
        let Some(item) = self.item.take() else { return };
        let (done, entered) = oneshot::channel();
        let item = SettleMoney {
            cost: Some(cost),
            ..item
        };
        self.settlements.hand(Some(item), Some(done));
        tokio::select! {
            biased;
            _ = entered => {}
            () = parts.clock.sleep(ENTERED_WITHIN) => {}
        }
    }
}

impl Drop for ReservedMoney {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.settlements.hand(Some(item), None);
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
            reservations,
            settlements,
        };
        (money, unsettled)
    }

    /// What the worker is made of.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Reads which tenants have a limit.
    pub(crate) async fn read(&self) -> store::Result<()> {
        let found = self.parts.store.money_tenants().await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.limited = found.into_iter().collect();
        Ok(())
    }

    /// Whether a tenant may have a limit.
    fn may_be_limited(&self, tenant: TenantId) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.limited.contains(&tenant) || !known.unlimited.contains(&tenant)
    }

    /// From now on what is read says whether a tenant has got a limit.
    fn note_unlimited(&self, tenant: TenantId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.unlimited.len() >= UNLIMITED_MAX {
            known.unlimited.clear();
        }
        known.unlimited.insert(tenant);
    }

    /// Sets aside what a call of a tenant costs; none where nothing limits that. What is not begun goes back
    /// when it is dropped. Of a tenant of which nothing is known, the reservation itself finds out.
    pub(crate) async fn set_aside(&self, tenant: TenantId, cost: Cost) -> Granted {
        if !self.may_be_limited(tenant) {
            return Ok(None);
        }
        // Between two lives no call is made for which anybody waits.
        let life = self.boot.current().ok_or(NoMoney::Busy)?;
        let item = ReserveMoney {
            tenant,
            call: self.parts.entropy.random_id(),
            boot: life.id,
            most: cost.most,
            least: cost.least,
        };
        let granted = self.reservations.submit(item).await;
        let granted = granted.unwrap_or(Err(NoMoney::Busy));
        if matches!(granted, Ok(None)) {
            self.note_unlimited(tenant);
        }
        granted
    }

    /// Waits until what is over by now is settled, for no longer than this.
    pub(crate) async fn settled(&self, within: Duration) {
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

/// Sets money aside. Whoever has stopped waiting gives it back by dropping it.
async fn reserve(parts: Parts, settlements: Settlements, items: Vec<ReserveMoney>) -> Vec<Granted> {
    let aside = |tenant: TenantId, call: Uuid, amount: Amount| ReservedMoney {
        amount,
        item: Some(SettleMoney {
            tenant,
            call,
            cost: Some(Amount::default()),
        }),
        settlements: settlements.clone(),
    };
    match parts.store.reserve_money(items.clone()).await {
        Ok(outcomes) => {
            let outcomes = items.iter().zip(outcomes);
            let granted = outcomes.map(|(item, outcome)| match outcome {
                ReserveMoneyOutcome::Granted(amount) => {
                    Ok(Some(aside(item.tenant, item.call, amount)))
                }
                ReserveMoneyOutcome::Unlimited => Ok(None),
                ReserveMoneyOutcome::Busy => Err(NoMoney::Busy),
                ReserveMoneyOutcome::Spent(span, limit) => Err(NoMoney::Spent(span, limit)),
                ReserveMoneyOutcome::TokensSpent(span, limit) => {
                    Err(NoMoney::TokensSpent(span, limit))
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
