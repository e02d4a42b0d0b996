//! Money and tokens that calls of tenants and of their agents reserve and spend, always under the
//! lock of the tenant's row, one tenant at a time.

mod account;

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentKey, AgentLimits, AgentName};
use mainspring_shared::id::{BootId, KeyId, TenantId};
use mainspring_shared::store;
use mainspring_shared::store::{
    DumpAside, Money, ReserveMoney, ReserveMoneyOutcome, SettleMoney, one_by_one, places_by_tenant,
};
use mainspring_shared::tenant::{
    LedgerAccount, LedgerLimits, LedgerRoom, LedgerSpent, Limits, MONEY_ASIDE_MS, check_ledger,
    stored_nano,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use self::account::{Account, Owner, aside, spent};
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{query_as, query_scalar, statement};
use crate::row::Row;
use crate::rows::Cells;
use crate::store::{SqlStore, Tx, clock};

#[async_trait]
impl Money for SqlStore {
    async fn reserve_money(
        &self,
        items: Vec<ReserveMoney>,
    ) -> store::Result<Vec<ReserveMoneyOutcome>> {
        self.write(items, |tx, items| Box::pin(reserve(tx, items)))
            .await
    }

    async fn settle_money(&self, items: Vec<SettleMoney>) -> store::Result<()> {
        self.write(items, |tx, items| Box::pin(settle(tx, items)))
            .await
    }

    async fn sweep_money(&self, limit: u32) -> store::Result<u32> {
        let at = self.at;
        // Usually there is nothing to settle: check without a write transaction.
        let items = self
            .read(move |conn| {
                Box::pin(async move {
                    let now = clock(conn, at).await?;
                    left_behind(conn, now, limit).await
                })
            })
            .await?;
        let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
        if count > 0 {
            // What cannot be read of one tenant keeps nobody else's money.
            one_by_one(&items, |items: Vec<SettleMoney>| async move {
                let count = items.len();
                self.settle_money(items).await?;
                Ok(vec![(); count])
            })
            .await?;
        }
        Ok(count)
    }

    async fn spent_money(
        &self,
        tenant: TenantId,
        agent: Option<AgentName>,
    ) -> store::Result<Option<LedgerSpent>> {
        let at = self.at;
        let owner = Owner {
            tenant,
            holder: agent.map(|agent| agent.holder()),
        };
        self.read(move |conn| {
            Box::pin(async move {
                let now = clock(conn, at).await?;
                let found = spent(conn, owner, now).await?;
                Ok(found.last_day.map(|_| found.spent))
            })
        })
        .await
    }

    async fn money_tenants(&self) -> store::Result<Vec<TenantId>> {
        self.read(|conn| {
            Box::pin(async move {
                let found: Vec<i32> = query_scalar(sql!("money/tenants")).fetch_all(conn).await?;
                Ok(found.into_iter().map(TenantId).collect())
            })
        })
        .await
    }
}

/// The limits of a tenant, whose row is locked; none if neither its money nor its tokens are
/// limited.
async fn limits(tx: &mut Tx, tenant: TenantId) -> Result<Option<LedgerLimits>> {
    let row = statement(sql!("money/lock")).bind(tenant.0);
    let Some(row) = row.fetch_optional(tx.conn()).await? else {
        return Ok(None);
    };
    let limits: Limits = Cells::new(&row, "tenants").json("limits")?;
    Ok(LedgerLimits::of(&limits))
}

/// The limits of an agent that the ledger enforces.
async fn limits_of_agent(
    tx: &mut Tx,
    tenant: TenantId,
    name: &AgentName,
) -> Result<Option<LedgerLimits>> {
    let row = statement(sql!("money/agent_limits"))
        .bind(tenant.0)
        .bind(name.as_str())
        .fetch_optional(tx.conn())
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let limits: AgentLimits = Cells::new(&row, "agents_named").json("limits")?;
    Ok(limits.ledger())
}

/// The accounts against which calls of one tenant count.
#[derive(Debug)]
struct Book {
    tenant: TenantId,
    /// The tenant's own account; none if it has no limits.
    own: Option<Account>,
    /// The accounts of the agents that were looked up; none for agents without limits.
    agents: BTreeMap<AgentName, Option<Account>>,
}

impl Book {
    /// Opens a tenant's book under the lock of its row.
    async fn open(tx: &mut Tx, tenant: TenantId) -> Result<Self> {
        let owner = Owner {
            tenant,
            holder: None,
        };
        let own = match limits(tx, tenant).await? {
            Some(limits) => Some(Account::open(tx, owner, limits).await?),
            None => None,
        };
        Ok(Self {
            tenant,
            own,
            agents: BTreeMap::new(),
        })
    }

    /// The accounts against which calls of this agent count.
    async fn accounts(
        &mut self,
        tx: &mut Tx,
        agent: Option<&AgentName>,
    ) -> Result<Vec<&mut Account>> {
        if let Some(name) = agent.filter(|name| !self.agents.contains_key(*name)) {
            let owner = Owner {
                tenant: self.tenant,
                holder: Some(name.holder()),
            };
            let account = match limits_of_agent(tx, self.tenant, name).await? {
                Some(limits) => Some(Account::open(tx, owner, limits).await?),
                None => None,
            };
            self.agents.insert(name.clone(), account);
        }
        let agent = agent.and_then(|name| self.agents.get_mut(name)?.as_mut());
        Ok(self.own.iter_mut().chain(agent).collect())
    }
}

async fn reserve(tx: &mut Tx, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>> {
    let mut outcomes = vec![ReserveMoneyOutcome::Unlimited; items.len()];
    for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
        let mut book = Book::open(tx, tenant).await?;
        for place in places {
            outcomes[place] = reserve_one(tx, &mut book, &items[place]).await?;
        }
    }
    Ok(outcomes)
}

async fn reserve_one(
    tx: &mut Tx,
    book: &mut Book,
    item: &ReserveMoney,
) -> Result<ReserveMoneyOutcome> {
    let accounts = book.accounts(tx, item.agent.as_ref()).await?;
    if accounts.is_empty() {
        return Ok(ReserveMoneyOutcome::Unlimited);
    }
    if let Some(aside) = aside(tx, item.tenant, item.call).await?.first() {
        return Ok(ReserveMoneyOutcome::Granted(aside.amount));
    }
    let ledger: Vec<LedgerAccount> = accounts.iter().map(|it| it.ledger).collect();
    let room = check_ledger(&ledger, item.ledger_request());
    if let LedgerRoom::Granted(amount) = room {
        for account in accounts {
            account.set_aside(tx, item, amount).await?;
        }
    }
    Ok(room.into())
}

async fn settle(tx: &mut Tx, items: Vec<SettleMoney>) -> Result<()> {
    for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
        limits(tx, tenant).await?;
        for item in places.into_iter().map(|place| items[place]) {
            for aside in aside(tx, tenant, item.call).await? {
                let cost = item.cost.unwrap_or(aside.amount);
                aside
                    .owner
                    .of(sql!("money/settle"), sql!("money/agent_settle"))
                    .bind(item.call)
                    .bind(aside.day)
                    .bind(stored_nano(cost.nano_usd))
                    .bind(stored_nano(cost.tokens))
                    .bind(aside.minute)
                    .execute(tx.conn())
                    .await?;
            }
        }
    }
    Ok(())
}

/// Reservations of boots whose lease expired, and reservations that are too old.
async fn left_behind(conn: &mut Conn, now: Timestamp, limit: u32) -> Result<Vec<SettleMoney>> {
    let found: Vec<(i32, Uuid)> = query_as(sql!("money/left_behind"), ["tenant", "call_id"])
        .bind(now.0)
        .bind(now.0 - MONEY_ASIDE_MS)
        .bind(limit)
        .fetch_all(conn)
        .await?;
    let items = found.into_iter().map(|(tenant, call)| SettleMoney {
        tenant: TenantId(tenant),
        call,
        cost: None,
    });
    Ok(items.collect())
}

/// Adapts the ledger to changed limits of a tenant, in the transaction that changes them.
pub(crate) async fn apply_limits(tx: &mut Tx, tenant: TenantId, limits: &Limits) -> Result<()> {
    if LedgerLimits::of(limits).is_some() {
        return Ok(());
    }
    let lift = statement(sql!("money/lift")).bind(tenant.0);
    lift.execute(tx.conn()).await.map(drop)
}

/// Locks a tenant's row for a change of the limits of one of its agents.
pub(crate) async fn lock_for_agent(tx: &mut Tx, key: &AgentKey) -> Result<()> {
    limits(tx, key.tenant).await.map(drop)
}

/// Adapts the ledger to changed limits of an agent, in the transaction that changes them and under
/// the lock of the tenant's row.
pub(crate) async fn apply_agent_limits(
    tx: &mut Tx,
    key: &AgentKey,
    (before, after): (&AgentLimits, &AgentLimits),
) -> Result<()> {
    if before.ledger().is_some() == after.ledger().is_some() {
        return Ok(());
    }
    let lift = statement(sql!("money/agent_lift"))
        .bind(key.tenant.0)
        .bind(key.name.holder().0);
    lift.execute(tx.conn()).await.map(drop)
}

/// The content of the ledger, for a dump.
#[derive(Debug)]
pub(crate) struct Dumped {
    pub(crate) aside: Vec<DumpAside>,
    pub(crate) days: Vec<(TenantId, i64, u64)>,
    pub(crate) agent_aside: Vec<(KeyId, DumpAside)>,
    pub(crate) agent_days: Vec<(TenantId, KeyId, i64, u64)>,
}

/// The reservations of calls, and the amounts spent by day.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Dumped> {
    let rows = statement(sql!("money/dump")).fetch_all(&mut *conn).await?;
    let aside = rows.iter().map(|row| dumped(row, "money_aside"));
    let aside = aside.collect::<Result<_>>()?;
    let names = ["tenant", "day", "spent"];
    let days: Vec<(i32, i64, i64)> = query_as(sql!("money/dump_days"), names)
        .fetch_all(&mut *conn)
        .await?;
    let days = days
        .into_iter()
        .map(|(tenant, day, spent)| (TenantId(tenant), day, spent.unsigned_abs()));
    let rows = statement(sql!("money/agent_dump"))
        .fetch_all(&mut *conn)
        .await?;
    let agent_aside = rows.iter().map(|row| {
        let holder = Cells::new(row, "agent_money_aside").get("holder")?;
        Ok((KeyId(holder), dumped(row, "agent_money_aside")?))
    });
    let agent_aside = agent_aside.collect::<Result<_>>()?;
    let names = ["tenant", "holder", "day", "spent"];
    let agent_days: Vec<(i32, Uuid, i64, i64)> = query_as(sql!("money/agent_dump_days"), names)
        .fetch_all(conn)
        .await?;
    let agent_days = agent_days.into_iter().map(|(tenant, holder, day, spent)| {
        let (tenant, holder) = (TenantId(tenant), KeyId(holder));
        (tenant, holder, day, spent.unsigned_abs())
    });
    Ok(Dumped {
        aside,
        days: days.collect(),
        agent_aside,
        agent_days: agent_days.collect(),
    })
}

fn dumped(row: &Row, table: &'static str) -> Result<DumpAside> {
    let mut cells = Cells::new(row, table);
    Ok(DumpAside {
        tenant: TenantId(cells.get("tenant")?),
        call: cells.get("call_id")?,
        boot: BootId(cells.get("boot_id")?),
        day: cells.get("day")?,
        amount: cells.get("amount").map(i64::unsigned_abs)?,
        at: cells.time("at")?,
    })
}
