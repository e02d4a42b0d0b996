//! Money and tokens that tenants' calls set aside and spend: all under the lock of the tenant's row, tenant by tenant.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::{
    DumpAside, Error, Money, ReserveMoney, ReserveMoneyOutcome, Result, SettleMoney,
    TenantUsageQuery, places_by_tenant,
};
use mainspring_shared::tenant::{
    Amount, LedgerLimits, LedgerRoom, LedgerSpent, Limits, MONEY_ASIDE_MS, MONEY_DAYS_KEPT,
    MoneySpent, money_day, money_day_begin, money_minute, money_minute_begin, money_minute_of,
    money_month, nano_usd, stored_nano,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::reads;
use crate::retry::{Fault, fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

type Faulty<T> = std::result::Result<T, Fault>;

#[async_trait]
impl Money for PostgresStore {
    async fn reserve_money(&self, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>> {
        let (at, pool) = (self.at, &self.pools.writers);
        let mut outcomes = vec![ReserveMoneyOutcome::Unlimited; items.len()];
        for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
            let asked: Vec<ReserveMoney> = places.iter().map(|place| items[*place]).collect();
            // A repeat finds what it has set aside.
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

    async fn spent_money(&self, tenant: TenantId) -> Result<Option<LedgerSpent>> {
        let pool = &self.pools.claimers;
        let now = match self.at {
            Some(at) => at,
            None => reads::now(pool).await?,
        };
        let found = repeatable!(pool, |connection| spent(connection, tenant, now))?;
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

/// The limits of a tenant, locked, and the time; none where there is no such tenant.
async fn lock(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
) -> Faulty<Option<(Option<LedgerLimits>, Timestamp)>> {
    let query = sql!("money/lock").bind(at.map(|at| at.0)).bind(tenant.0);
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(None);
    };
    let mut fields = Fields::new(&row, "tenants");
    let limits: Limits = fields.json("limits")?;
    Ok(Some((LedgerLimits::of(&limits), fields.time("now")?)))
}

/// What is known of a tenant's month.
struct Month {
    /// The last of its days that has a row.
    last_day: Option<i64>,
    /// The last minute of the day that was counted.
    minute: i64,
    spent: LedgerSpent,
}

async fn spent(connection: &mut PgConnection, tenant: TenantId, now: Timestamp) -> Faulty<Month> {
    let query = sql!("money/spent")
        .bind(tenant.0)
        .bind(money_month(now))
        .bind(money_day(now))
        .bind(money_minute_begin(money_minute(now)).0);
    let row = query.fetch_one(connection).await?;
    let mut fields = Fields::new(&row, "money_days");
    let days: i64 = fields.take("days")?;
    let last_day = fields.take("last_day")?;
    let minute: i64 = fields.take("minute")?;
    let of_minute = fields.total("of_minute")?;
    let is_now = money_minute_of(now, minute) == minute;
    Ok(Month {
        last_day: (days > 0).then_some(last_day),
        minute,
        spent: LedgerSpent {
            money: MoneySpent {
                minute: if is_now { of_minute } else { 0 },
                minute_aside: fields.total("minute_aside")?,
                day: fields.total("today")?,
                month: fields.total("of_month")?,
                aside: fields.total("aside")?,
            },
            tokens: MoneySpent {
                day: fields.total("tokens_today")?,
                month: fields.total("tokens_of_month")?,
                aside: fields.total("tokens_aside")?,
                ..MoneySpent::default()
            },
        },
    })
}

/// What counts against a tenant's limits. A day begins with the first call that asks, and a month with what the
/// usage of its sends says.
async fn begun(connection: &mut PgConnection, tenant: TenantId, now: Timestamp) -> Faulty<Month> {
    let (today, first) = (money_day(now), money_month(now));
    let month = spent(connection, tenant, now).await?;
    if month.last_day == Some(today) {
        return Ok(month);
    }
    let (mut days, mut amounts) = (vec![today], vec![Amount::default()]);
    if month.last_day.is_none() {
        amounts[0] = used(connection, tenant, today, today + 1).await?;
        if first < today {
            days.push(first);
            amounts.push(used(connection, tenant, first, today).await?);
        }
    }
    let begin = sql!("money/begin_days").bind(tenant.0).bind(days);
    let (spent_of, tokens_of) = columns(&amounts);
    let begin = begin.bind(spent_of).bind(tokens_of);
    begin.execute(&mut *connection).await?;
    let forget = sql!("money/forget_days").bind(tenant.0);
    let forget = forget.bind(today - MONEY_DAYS_KEPT);
    forget.execute(&mut *connection).await?;
    spent(connection, tenant, now).await
}

/// Counts what is spent from now on for the minute of this time, where a minute is limited. Returns when calls begin:
/// now, or in the minute that was counted already.
async fn begun_minute(
    connection: &mut PgConnection,
    tenant: TenantId,
    (now, kept): (Timestamp, i64),
) -> Faulty<Timestamp> {
    let minute = money_minute_of(now, kept);
    if minute != kept {
        let begin = sql!("money/begin_minute").bind(tenant.0);
        let begin = begin.bind(money_day(now)).bind(minute);
        begin.execute(connection).await?;
    }
    Ok(now.max(money_minute_begin(minute)))
}

/// What the sends cost that were accepted from a day on and before another one.
async fn used(
    connection: &mut PgConnection,
    tenant: TenantId,
    from: i64,
    until: i64,
) -> Faulty<Amount> {
    let (from, until) = (money_day_begin(from), money_day_begin(until));
    let query = TenantUsageQuery::accepted(tenant, from, until);
    let query = sql!("tenants/usage")
        .bind(query.tenant.0)
        .bind(query.from)
        .bind(query.until);
    let row = query.fetch_one(connection).await?;
    let mut fields = Fields::new(&row, "usage_rows");
    let cost: Option<f64> = fields.take("cost_usd")?;
    let tokens = fields.total("input_tokens")? + fields.total("output_tokens")?;
    Ok(Amount::new(nano_usd(cost.unwrap_or_default()), tokens))
}

/// Amounts as columns: of money, and of tokens.
fn columns(amounts: &[Amount]) -> (Vec<i64>, Vec<i64>) {
    let both = amounts.iter();
    both.map(|amount| (stored_nano(amount.nano_usd), stored_nano(amount.tokens)))
        .unzip()
}

async fn reserve(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    items: &[ReserveMoney],
) -> Faulty<Vec<ReserveMoneyOutcome>> {
    let mut tx = connection.begin().await?;
    let Some((Some(limits), now)) = lock(&mut tx, at, tenant).await? else {
        return Ok(vec![ReserveMoneyOutcome::Unlimited; items.len()]);
    };
    let month = begun(&mut tx, tenant, now).await?;
    let mut begins = now;
    if limits.money.minute.is_some() {
        begins = begun_minute(&mut tx, tenant, (now, month.minute)).await?;
    }
    let mut spent = month.spent;
    let mut had = aside(&mut tx, tenant, items).await?;
    let (mut calls, mut boots, mut amounts) = (Vec::new(), Vec::new(), Vec::new());
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        if let Some(amount) = had.get(&item.call) {
            outcomes.push(ReserveMoneyOutcome::Granted(*amount));
            continue;
        }
        outcomes.push(match limits.room(spent, item.most, item.least) {
            LedgerRoom::Busy => ReserveMoneyOutcome::Busy,
            LedgerRoom::Spent(span, limit) => ReserveMoneyOutcome::Spent(span, limit),
            LedgerRoom::TokensSpent(span, limit) => ReserveMoneyOutcome::TokensSpent(span, limit),
            LedgerRoom::Granted(amount) => {
                spent = spent.with_aside(amount);
                had.insert(item.call, amount);
                calls.push(item.call);
                boots.push(item.boot.0);
                amounts.push(amount);
                ReserveMoneyOutcome::Granted(amount)
            }
        });
    }
    if !calls.is_empty() {
        let (money, tokens) = columns(&amounts);
        let reserve = sql!("money/reserve")
            .bind(tenant.0)
            .bind(money_day(now))
            .bind(begins.0)
            .bind(calls)
            .bind(boots)
            .bind(money)
            .bind(tokens);
        reserve.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(outcomes)
}

/// What these calls have set aside already.
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

/// Follows the limits of a tenant, in the transaction that changes them.
pub(crate) async fn follow(
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

/// What calls have set aside, and what was spent by day.
pub(crate) async fn dump(
    connection: &mut PgConnection,
) -> Faulty<(Vec<DumpAside>, Vec<(TenantId, i64, u64)>)> {
    let rows = sql!("reads/dump_money").fetch_all(&mut *connection).await?;
    let aside = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "money_aside");
        Ok(DumpAside {
            tenant: TenantId(fields.take("tenant")?),
            call: fields.take("call_id")?,
            boot: BootId(fields.take("boot_id")?),
            day: fields.take("day")?,
            amount: fields.total("amount")?,
            at: fields.time("at")?,
        })
    });
    let aside = aside.collect::<Result<_>>()?;
    let rows = sql!("reads/dump_money_days").fetch_all(connection).await?;
    let days = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "money_days");
        let tenant = TenantId(fields.take("tenant")?);
        Ok((tenant, fields.take("day")?, fields.total("spent")?))
    });
    Ok((aside, days.collect::<Result<_>>()?))
}
