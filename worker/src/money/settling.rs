//! Recording what calls have cost.
//!
//! Usually one step settles for all tenants. When that fails or takes long, each of them is settled
//! on its own until that has succeeded: the database of one of them may be away, one of them may be
//! moving, or the cost of one may be refused, and the others have no part in that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{self, SettleMoney};
use mainspring_shared::time::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Settlement, Unsettled};
use crate::Parts;

/// Settlements per step.
const STEP: usize = 128;
/// How long a step for several tenants may take until they are settled each on its own. Settling
/// twice has no further effect.
const TOGETHER_MAX: Duration = Duration::from_secs(1);
/// The first and the longest pause before a tenant's settlements are tried again.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// A tenant whose settlements failed, and what waits for them.
#[derive(Debug, Default)]
struct Lane {
    waiting: Vec<Settlement>,
    pause: Duration,
}

/// What a step for one tenant left.
struct Tried {
    tenant: TenantId,
    batch: Vec<Settlement>,
    is_settled: bool,
}

/// Where costs are recorded.
#[derive(Clone)]
struct Ledger {
    settle: Arc<dyn Fn(Vec<SettleMoney>) -> BoxFuture<'static, store::Result<()>> + Send + Sync>,
    clock: Arc<dyn Clock>,
}

/// Settles until the worker has ended.
pub(crate) async fn run(parts: Parts, unsettled: Unsettled, done: CancellationToken) {
    let Parts { store, clock, .. } = parts;
    let settle = move |items| {
        let store = store.clone();
        async move { store.settle_money(items).await }.boxed()
    };
    let ledger = Ledger {
        settle: Arc::new(settle),
        clock,
    };
    settle_all(ledger, unsettled, done).await;
}

async fn settle_all(ledger: Ledger, mut unsettled: Unsettled, done: CancellationToken) {
    let mut lanes: BTreeMap<TenantId, Lane> = BTreeMap::new();
    let mut tries: JoinSet<Tried> = JoinSet::new();
    // Those that wait for all settlements before them.
    let mut markers: Vec<Settlement> = Vec::new();
    loop {
        if lanes.is_empty() {
            markers.drain(..).for_each(told);
        }
        tokio::select! {
            biased;
            Some(tried) = tries.join_next() => match tried {
                Ok(tried) => after(&ledger, &mut lanes, &mut tries, tried),
                // What it held is charged at its maximum by the sweep.
                Err(error) => tracing::error!(%error, "settling a tenant's calls panicked"),
            },
            first = unsettled.recv() => {
                let Some(first) = first else { return };
                let mut batch = vec![first];
                while batch.len() < STEP
                    && let Ok(more) = unsettled.try_recv()
                {
                    batch.push(more);
                }
                sort(&ledger, &mut lanes, &mut tries, &mut markers, batch).await;
            }
            () = done.cancelled() => return,
        }
    }
}

/// Settles what can be settled together, and gives the rest to their tenants' lanes.
async fn sort(
    ledger: &Ledger,
    lanes: &mut BTreeMap<TenantId, Lane>,
    tries: &mut JoinSet<Tried>,
    markers: &mut Vec<Settlement>,
    batch: Vec<Settlement>,
) {
    let mut together = Vec::with_capacity(batch.len());
    for settlement in batch {
        match settlement.item {
            None => markers.push(settlement),
            Some(item) => match lanes.get_mut(&item.tenant) {
                Some(lane) => lane.waiting.push(settlement),
                None => together.push(settlement),
            },
        }
    }
    if together.is_empty() {
        return;
    }
    let step = (ledger.settle)(items(&together));
    let outcome = tokio::select! {
        biased;
        outcome = step => Some(outcome),
        () = ledger.clock.sleep(TOGETHER_MAX) => None,
    };
    if matches!(outcome, Some(Ok(()))) {
        together.into_iter().for_each(told);
        return;
    }
    let mut of: BTreeMap<TenantId, Vec<Settlement>> = BTreeMap::new();
    for settlement in together {
        if let Some(item) = settlement.item {
            of.entry(item.tenant).or_default().push(settlement);
        }
    }
    for (tenant, batch) in of {
        lanes.insert(tenant, Lane::default());
        tries.spawn(alone(ledger.clone(), tenant, batch, Duration::ZERO));
    }
}

/// Goes on with a tenant's lane after a step.
fn after(
    ledger: &Ledger,
    lanes: &mut BTreeMap<TenantId, Lane>,
    tries: &mut JoinSet<Tried>,
    tried: Tried,
) {
    let Tried {
        tenant,
        mut batch,
        is_settled,
    } = tried;
    let Some(lane) = lanes.get_mut(&tenant) else {
        return;
    };
    if is_settled {
        batch.drain(..).for_each(told);
        lane.pause = Duration::ZERO;
    } else {
        lane.pause = (lane.pause * 2).clamp(AGAIN_MIN, AGAIN_MAX);
    }
    let room = STEP.saturating_sub(batch.len()).min(lane.waiting.len());
    batch.extend(lane.waiting.drain(..room));
    if batch.is_empty() {
        lanes.remove(&tenant);
    } else {
        tries.spawn(alone(ledger.clone(), tenant, batch, lane.pause));
    }
}

/// Settles for one tenant. If the data of one of its calls is at fault, only that one is given up.
async fn alone(ledger: Ledger, tenant: TenantId, batch: Vec<Settlement>, pause: Duration) -> Tried {
    if !pause.is_zero() {
        ledger.clock.sleep(pause).await;
    }
    let step = &ledger.settle;
    let outcome = match step(items(&batch)).await {
        Err(error) if error.is_of_data() => {
            let mut outcome = Ok(());
            for item in items(&batch) {
                outcome = match step(vec![item]).await {
                    Err(error) if error.is_of_data() => {
                        tracing::error!(
                            %error,
                            "charging a call at its maximum: the database rejected its cost"
                        );
                        Ok(())
                    }
                    outcome => outcome,
                };
                if outcome.is_err() {
                    break;
                }
            }
            outcome
        }
        outcome => outcome,
    };
    if let Err(error) = &outcome {
        note(error);
    }
    Tried {
        tenant,
        batch,
        is_settled: outcome.is_ok(),
    }
}

fn note(error: &store::Error) {
    tracing::debug!(%error, "could not record the cost of calls; will retry");
}

fn items(batch: &[Settlement]) -> Vec<SettleMoney> {
    batch.iter().filter_map(|it| it.item).collect()
}

fn told(settlement: Settlement) {
    if let Some(done) = settlement.done {
        // The waiter may be gone.
        let _ = done.send(());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use mainspring_runtime::SystemClock;
    use tokio::sync::{mpsc, oneshot};
    use uuid::Uuid;

    use super::*;

    /// Databases of which some are away.
    #[derive(Default)]
    struct Databases {
        away: Mutex<Vec<TenantId>>,
        refused: Mutex<Vec<Uuid>>,
        settled: Mutex<Vec<Uuid>>,
    }

    impl Databases {
        /// As the store over several databases does it.
        fn settle(&self, items: &[SettleMoney]) -> store::Result<()> {
            let away = self.away.lock().unwrap();
            let refused = self.refused.lock().unwrap();
            let is_away = |item: &SettleMoney| away.contains(&item.tenant);
            let tenants: std::collections::BTreeSet<_> = items.iter().map(|it| it.tenant).collect();
            if items.iter().any(|item| refused.contains(&item.call)) {
                return Err(store::Error::Refused {
                    source: "a cost".into(),
                });
            }
            match (items.iter().any(is_away), tenants.len()) {
                (false, _) => {}
                (true, 1) => {
                    return Err(store::Error::Unavailable {
                        source: "away".into(),
                    });
                }
                (true, _) => {
                    return Err(store::Error::Refused {
                        source: "apart".into(),
                    });
                }
            }
            self.settled
                .lock()
                .unwrap()
                .extend(items.iter().map(|it| it.call));
            Ok(())
        }
    }

    fn call(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_whose_database_is_away_keeps_nobody_elses_costs_waiting() {
        let databases = Arc::new(Databases::default());
        let asked = databases.clone();
        let ledger = Ledger {
            settle: Arc::new(move |items| {
                let done = asked.settle(&items);
                async move { done }.boxed()
            }),
            clock: Arc::new(SystemClock::new()),
        };
        let (sender, unsettled) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let running = tokio::spawn(settle_all(ledger, unsettled, stop.clone()));
        let hand = |tenant: i32, n: u128| {
            let (done, told) = oneshot::channel();
            let item = SettleMoney {
                tenant: TenantId(tenant),
                call: call(n),
                cost: None,
            };
            let settlement = Settlement {
                item: Some(item),
                done: Some(done),
            };
            sender.send(settlement).unwrap();
            told
        };
        let away = TenantId(1);
        databases.away.lock().unwrap().push(away);
        databases.refused.lock().unwrap().push(call(9));
        let first = hand(1, 1);
        let mut waiting = vec![first];
        // One cost is refused for good, and the others beside it are not.
        for told in [hand(2, 2), hand(3, 3), hand(2, 9), hand(2, 10)] {
            told.await.expect("it is settled, or given up");
        }
        for n in 11..20 {
            waiting.push(hand(1, n));
            hand(2, n + 100).await.expect("others go on all the time");
        }
        assert!(!databases.settled.lock().unwrap().contains(&call(1)));
        databases.away.lock().unwrap().clear();
        for told in waiting {
            told.await
                .expect("it is settled as soon as its database is back");
        }
        let settled = databases.settled.lock().unwrap().clone();
        assert!(settled.contains(&call(1)) && settled.contains(&call(19)));
        assert!(settled.contains(&call(10)) && !settled.contains(&call(9)));
        stop.cancel();
        running.await.expect("it ends");
    }
}
