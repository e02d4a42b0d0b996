//! Money and tokens that calls of tenants and their agents reserve and spend. All under the lock of
//! the tenant's row, one tenant at a time.

mod account;

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentKey, AgentLimits, AgentName};
use mainspring_shared::id::{BootId, KeyId, TenantId};
use mainspring_shared::store::{
    DumpAside, Error, Money, ReserveMoney, ReserveMoneyOutcome, Result, SettleMoney,
    places_by_tenant,
};
use mainspring_shared::tenant::{
    Amount, LedgerAccount, LedgerLimits, LedgerRoom, LedgerSpent, Limits, MONEY_ASIDE_MS,
    check_ledger, money_day, stored_nano,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use self::account::{Account, Owner, columns};
use crate::agents::read_limited;
use crate::fault::Fault;
use crate::reads;
use crate::retry::{fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

type Faulty<T> = std::result::Result<T, Fault>;

#[async_trait]
impl Money for PostgresStore {
    async fn reserve_money(&self, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>> {
        let (at, pool) = (self.at, &self.pools.writers);
        let mut outcomes = vec![ReserveMoneyOutcome::Unlimited; items.len()];
        for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
            let asked = places.iter().map(|place| items[*place].clone());
            let asked: Vec<ReserveMoney> = asked.collect();
            // A repeat finds its reservations.
            let found = repeatable!(pool, |connection| reserve(connection, at, tenant, &asked))?;
            for (place, outcome) in places.into_iter().zip(found) {
                outcomes[place] = outcome;
            }
        }
        Ok(outcomes)
    }

    async fn settle_money(&self, items: Vec<SettleMoney>) -> Result<()> {
        let (at, pool) = (self.at, &self.pools.writers);
        for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
            let asked: Vec<SettleMoney> = places.iter().map(|place| items[*place]).collect();
            repeatable!(pool, |connection| settle(connection, at, tenant, &asked))?;
        }
        Ok(())
    }

    async fn sweep_money(&self, limit: u32) -> Result<u32> {
        let at = self.at.map(|at| at.0);
        let rows = fetch(&self.pools.writers, || {
            sql!("money/left_behind")
                .bind(at)
                .bind(MONEY_ASIDE_MS)
                .bind(i64::from(limit))
        });
        let rows = rows.await?;
        let items = rows.iter().map(|row| {
            let mut fields = Fields::new(row, "money_aside");
            Ok(SettleMoney {
                tenant: TenantId(fields.take("tenant")?),
                call: fields.take("call_id")?,
                cost: None,
            })
        });
        let items: Vec<SettleMoney> = items.collect::<Result<_>>()?;
        let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
        if count > 0 {
            self.settle_money(items).await?;
        }
        Ok(count)
    }

    async fn spent_money(
        &self,
        tenant: TenantId,
        agent: Option<AgentName>,
    ) -> Result<Option<LedgerSpent>> {
        let owner = Owner {
            tenant,
            holder: agent.map(|agent| agent.holder()),
        };
        let pool = &self.pools.claimers;
        let now = match self.at {
            Some(at) => at,
            None => reads::now(pool).await?,
        };
        let found = repeatable!(pool, |connection| account::spent(connection, owner, now))?;
        Ok(found.last_day.map(|_| found.spent))
    }

    async fn money_tenants(&self) -> Result<Vec<TenantId>> {
        let rows = fetch(&self.pools.claimers, || sql!("money/tenants")).await?;
        let tenants = rows
            .iter()
            .map(|row| Fields::new(row, "tenants").take("tenant"));
        tenants.map(|tenant| tenant.map(TenantId)).collect()
    }
}

/// A tenant's locked row.
struct Locked {
    limits: Option<LedgerLimits>,
    /// Whether any of its agents has limits of money or tokens.
    has_agents: bool,
    now: Timestamp,
}

/// Locks a tenant's row; `None` if there is no such tenant.
async fn lock(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
) -> Faulty<Option<Locked>> {
    let query = sql!("money/lock").bind(at.map(|at| at.0)).bind(tenant.0);
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(None);
    };
    let mut fields = Fields::new(&row, "tenants");
    let limits: Limits = fields.json("limits")?;
    Ok(Some(Locked {
        limits: LedgerLimits::of(&limits),
        has_agents: fields.take("has_agents")?,
        now: fields.time("now")?,
    }))
}

/// The accounts to which calls of one tenant are charged.
struct Book {
    /// The tenant's own; `None` if it has no limits.
    own: Option<Account>,
    /// Those of agents with limits.
    agents: BTreeMap<AgentName, Account>,
}

impl Book {
    async fn open(
        connection: &mut PgConnection,
        tenant: TenantId,
        locked: Locked,
        items: &[ReserveMoney],
    ) -> Faulty<Self> {
        let now = locked.now;
        let mut book = Self {
            own: None,
            agents: BTreeMap::new(),
        };
        if let Some(limits) = locked.limits {
            let owner = Owner {
                tenant,
                holder: None,
            };
            book.own = Some(Account::open(connection, owner, limits, now).await?);
        }
        if !locked.has_agents {
            return Ok(book);
        }
        for (name, limits) in limits_of_agents(connection, tenant, items).await? {
            let owner = Owner {
                tenant,
                holder: Some(name.holder()),
            };
            let account = Account::open(connection, owner, limits, now).await?;
            book.agents.insert(name, account);
        }
        Ok(book)
    }

    fn is_empty(&self) -> bool {
        self.own.is_none() && self.agents.is_empty()
    }

    /// The accounts to which this call is charged.
    fn accounts(&mut self, item: &ReserveMoney) -> Vec<&mut Account> {
        let agent = item.agent.as_ref();
        let agent = agent.and_then(|name| self.agents.get_mut(name));
        self.own.iter_mut().chain(agent).collect()
    }
}

/// The limits of money and tokens of these calls' agents; agents without any are left out.
async fn limits_of_agents(
    connection: &mut PgConnection,
    tenant: TenantId,
    items: &[ReserveMoney],
) -> Faulty<Vec<(AgentName, LedgerLimits)>> {
    let names = items.iter().filter_map(|item| item.agent.as_ref());
    let mut names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let query = sql!("money/agent_limits").bind(tenant.0).bind(names);
    let rows = query.fetch_all(connection).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let (name, limits) = read_limited(row)?;
        found.extend(limits.ledger().map(|limits| (name, limits)));
    }
    Ok(found)
}

/// A call's new reservation in one account.
struct NewAside {
    call: Uuid,
    boot: BootId,
    holder: Option<KeyId>,
    amount: Amount,
    at: Timestamp,
}

async fn reserve(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    items: &[ReserveMoney],
) -> Faulty<Vec<ReserveMoneyOutcome>> {
    let unlimited = ReserveMoneyOutcome::Unlimited;
    let mut tx = connection.begin().await?;
    let Some(locked) = lock(&mut tx, at, tenant).await? else {
        return Ok(vec![unlimited; items.len()]);
    };
    let now = locked.now;
    let mut book = Book::open(&mut tx, tenant, locked, items).await?;
    if book.is_empty() {
        return Ok(vec![unlimited; items.len()]);
    }
    let mut had = aside(&mut tx, tenant, items).await?;
    let mut new = Vec::new();
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        let accounts = book.accounts(item);
        if accounts.is_empty() {
            outcomes.push(unlimited);
            continue;
        }
        if let Some(amount) = had.get(&item.call) {
            outcomes.push(ReserveMoneyOutcome::Granted(*amount));
            continue;
        }
        let ledger: Vec<LedgerAccount> = accounts.iter().map(|it| it.ledger).collect();
        let room = check_ledger(&ledger, item.ledger_request());
        if let LedgerRoom::Granted(amount) = room {
            had.insert(item.call, amount);
            for account in accounts {
                account.ledger.spent = account.ledger.spent.with_aside(amount);
                new.push(NewAside {
                    call: item.call,
                    boot: item.boot,
                    holder: account.holder,
                    amount,
                    at: account.begins,
                });
            }
        }
        outcomes.push(room.into());
    }
    set_aside(&mut tx, tenant, now, new).await?;
    tx.commit().await?;
    Ok(outcomes)
}

/// Writes new reservations.
async fn set_aside(
    connection: &mut PgConnection,
    tenant: TenantId,
    now: Timestamp,
    new: Vec<NewAside>,
) -> Faulty<()> {
    let (of_agents, own): (Vec<_>, Vec<_>) = new.into_iter().partition(|it| it.holder.is_some());
    for (new, reserve) in [
        (own, sql!("money/reserve")),
        (of_agents, sql!("money/agent_reserve")),
    ] {
        if new.is_empty() {
            continue;
        }
        let amounts: Vec<Amount> = new.iter().map(|it| it.amount).collect();
        let (money, tokens) = columns(&amounts);
        let holders: Vec<Uuid> = new.iter().filter_map(|it| Some(it.holder?.0)).collect();
        let reserve = reserve
            .bind(tenant.0)
            .bind(money_day(now))
            .bind(new.iter().map(|it| it.call).collect::<Vec<_>>())
            .bind(new.iter().map(|it| it.boot.0).collect::<Vec<_>>())
            .bind(money)
            .bind(tokens)
            .bind(new.iter().map(|it| it.at.0).collect::<Vec<_>>());
        let reserve = if holders.is_empty() {
            reserve
        } else {
            reserve.bind(holders)
        };
        reserve.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The existing reservations of these calls.
async fn aside(
    connection: &mut PgConnection,
    tenant: TenantId,
    items: &[ReserveMoney],
) -> Faulty<BTreeMap<Uuid, Amount>> {
    let calls: Vec<Uuid> = items.iter().map(|item| item.call).collect();
    let query = sql!("money/aside").bind(tenant.0).bind(calls);
    let rows = query.fetch_all(connection).await?;
    let had = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "money_aside");
        let call = fields.take("call_id")?;
        let amount = Amount::new(fields.total("amount")?, fields.total("tokens")?);
        Ok::<_, Error>((call, amount))
    });
    Ok(had.collect::<Result<_>>()?)
}

async fn settle(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    items: &[SettleMoney],
) -> Faulty<()> {
    let calls: Vec<Uuid> = items.iter().map(|item| item.call).collect();
    let costs = |of: fn(Amount) -> u64| -> Vec<Option<i64>> {
        let costs = items.iter().map(|item| item.cost);
        costs
            .map(|cost| cost.map(|cost| stored_nano(of(cost))))
            .collect()
    };
    let (money, tokens) = (costs(|it| it.nano_usd), costs(|it| it.tokens));
    let mut tx = connection.begin().await?;
    lock(&mut tx, at, tenant).await?;
    let settle = sql!("money/settle")
        .bind(tenant.0)
        .bind(calls)
        .bind(money)
        .bind(tokens);
    settle.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// Applies a tenant's new limits to the ledger, in the transaction that changes them.
pub(crate) async fn apply_limits(
    connection: &mut PgConnection,
    tenant: TenantId,
    limits: &Limits,
) -> Faulty<()> {
    if LedgerLimits::of(limits).is_none() {
        let lift = sql!("money/lift").bind(tenant.0);
        lift.execute(connection).await?;
    }
    Ok(())
}

/// Locks a tenant's row before the limits of one of its agents change.
pub(crate) async fn lock_for_agent(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    key: &AgentKey,
) -> Faulty<()> {
    lock(connection, at, key.tenant).await?;
    Ok(())
}

/// Applies an agent's new limits to the ledger, in the transaction that changes them, under the
/// lock of its tenant's row.
pub(crate) async fn apply_agent_limits(
    connection: &mut PgConnection,
    key: &AgentKey,
    (before, after): (&AgentLimits, &AgentLimits),
) -> Faulty<()> {
    if before.ledger().is_some() != after.ledger().is_some() {
        let lift = sql!("money/agent_lift")
            .bind(key.tenant.0)
            .bind(key.name.holder().0);
        lift.execute(connection).await?;
    }
    Ok(())
}

/// The content of the ledger, for a dump.
pub(crate) struct Dumped {
    pub(crate) aside: Vec<DumpAside>,
    pub(crate) days: Vec<(TenantId, i64, u64)>,
    pub(crate) agent_aside: Vec<(KeyId, DumpAside)>,
    pub(crate) agent_days: Vec<(TenantId, KeyId, i64, u64)>,
}

/// Reads the reservations of calls, and the spending by day.
pub(crate) async fn dump(connection: &mut PgConnection) -> Faulty<Dumped> {
    let rows = sql!("reads/dump_money").fetch_all(&mut *connection).await?;
    let aside = rows.iter().map(|row| dumped(row, "money_aside"));
    let aside = aside.collect::<Result<_>>()?;
    let rows = sql!("reads/dump_money_days")
        .fetch_all(&mut *connection)
        .await?;
    let days = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "money_days");
        let tenant = TenantId(fields.take("tenant")?);
        Ok((tenant, fields.take("day")?, fields.total("spent")?))
    });
    let days = days.collect::<Result<_>>()?;
    let rows = sql!("reads/dump_agent_money")
        .fetch_all(&mut *connection)
        .await?;
    let agent_aside = rows.iter().map(|row| {
        let holder = Fields::new(row, "agent_money_aside").take("holder")?;
        Ok((KeyId(holder), dumped(row, "agent_money_aside")?))
    });
    let agent_aside = agent_aside.collect::<Result<_>>()?;
    let rows = sql!("reads/dump_agent_money_days")
        .fetch_all(connection)
        .await?;
    let agent_days = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "agent_money_days");
        let (tenant, holder) = (fields.take("tenant")?, fields.take("holder")?);
        let (day, spent) = (fields.take("day")?, fields.total("spent")?);
        Ok((TenantId(tenant), KeyId(holder), day, spent))
    });
    Ok(Dumped {
        aside,
        days,
        agent_aside,
        agent_days: agent_days.collect::<Result<_>>()?,
    })
}

/// Reads `tenant, call_id, boot_id, day, amount, at`.
fn dumped(row: &PgRow, table: &'static str) -> Result<DumpAside> {
    let mut fields = Fields::new(row, table);
    Ok(DumpAside {
        tenant: TenantId(fields.take("tenant")?),
        call: fields.take("call_id")?,
        boot: BootId(fields.take("boot_id")?),
        day: fields.take("day")?,
        amount: fields.total("amount")?,
        at: fields.time("at")?,
    })
}
