//! Money and tokens that tenants' calls set aside and spend: all under the lock of the tenant's row, tenant by tenant.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store;
use mainspring_shared::store::{
    DumpAside, Money, ReserveMoney, ReserveMoneyOutcome, SettleMoney, TenantUsageQuery,
    places_by_tenant,
};
use mainspring_shared::tenant::{
    Amount, LedgerLimits, LedgerRoom, LedgerSpent, Limits, MONEY_ASIDE_MS, MONEY_DAYS_KEPT,
    MoneySpent, money_day, money_day_begin, money_minute, money_minute_begin, money_minute_of,
    money_month, stored_nano,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::{query_as, query_scalar, statement};
use crate::rows::Cells;
use crate::store::{SqlStore, Tx, clock};
use crate::tenants;

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
        // Mostly there is none, and nobody has to wait for a writer.
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
            self.settle_money(items).await?;
        }
        Ok(count)
    }

    async fn spent_money(&self, tenant: TenantId) -> store::Result<Option<LedgerSpent>> {
        let at = self.at;
        self.read(move |conn| {
            Box::pin(async move {
                let now = clock(conn, at).await?;
                let found = spent(conn, tenant, now).await?;
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

/// The limits of a tenant, locked; none where nothing limits its money and its tokens.
async fn limits(tx: &mut Tx, tenant: TenantId) -> Result<Option<LedgerLimits>> {
    let row = statement(sql!("money/lock")).bind(tenant.0);
    let Some(row) = row.fetch_optional(tx.conn()).await? else {
        return Ok(None);
    };
    let limits: Limits = Cells::new(&row, "tenants").json("limits")?;
    Ok(LedgerLimits::of(&limits))
}

/// What is known of a tenant's month.
struct Month {
    /// The last of its days that has a row.
    last_day: Option<i64>,
    /// The last minute of the day that was counted.
    minute: i64,
    spent: LedgerSpent,
}

async fn spent(conn: &mut Conn, tenant: TenantId, now: Timestamp) -> Result<Month> {
    let row = statement(sql!("money/spent"))
        .bind(tenant.0)
        .bind(money_month(now))
        .bind(money_day(now))
        .bind(money_minute_begin(money_minute(now)).0)
        .fetch_one(conn)
        .await?;
    let mut cells = Cells::new(&row, "money_days");
    let days: i64 = cells.get("days")?;
    let last_day = cells.get("last_day")?;
    let minute: i64 = cells.get("minute")?;
    let mut sum = |column| cells.get(column).map(i64::unsigned_abs);
    let of_minute = sum("of_minute")?;
    let is_now = money_minute_of(now, minute) == minute;
    Ok(Month {
        last_day: (days > 0).then_some(last_day),
        minute,
        spent: LedgerSpent {
            money: MoneySpent {
                minute: if is_now { of_minute } else { 0 },
                minute_aside: sum("minute_aside")?,
                day: sum("today")?,
                month: sum("of_month")?,
                aside: sum("aside")?,
            },
            tokens: MoneySpent {
                day: sum("tokens_today")?,
                month: sum("tokens_of_month")?,
                aside: sum("tokens_aside")?,
                ..MoneySpent::default()
            },
        },
    })
}

/// What counts against a tenant's limits. A day begins with the first call that asks, and a month with what the
/// usage of its sends says.
async fn begun(tx: &mut Tx, tenant: TenantId) -> Result<Month> {
    let now = tx.now;
    let (today, first) = (money_day(now), money_month(now));
    let month = spent(tx.conn(), tenant, now).await?;
    if month.last_day == Some(today) {
        return Ok(month);
    }
    let mut of_today = Amount::default();
    if month.last_day.is_none() {
        of_today = used(tx, tenant, today, today + 1).await?;
        if first < today {
            let before = used(tx, tenant, first, today).await?;
            begin_day(tx, tenant, first, before).await?;
        }
    }
    begin_day(tx, tenant, today, of_today).await?;
    statement(sql!("money/forget_days"))
        .bind(tenant.0)
        .bind(today - MONEY_DAYS_KEPT)
        .execute(tx.conn())
        .await?;
    spent(tx.conn(), tenant, now).await
}

/// Counts what is spent from now on for the minute of this time, where a minute is limited. Returns when calls begin:
/// now, or in the minute that was counted already.
async fn begun_minute(tx: &mut Tx, tenant: TenantId, kept: i64) -> Result<Timestamp> {
    let now = tx.now;
    let minute = money_minute_of(now, kept);
    if minute != kept {
        statement(sql!("money/begin_minute"))
            .bind(tenant.0)
            .bind(money_day(now))
            .bind(minute)
            .execute(tx.conn())
            .await?;
    }
    Ok(now.max(money_minute_begin(minute)))
}

/// What the sends cost that were accepted from a day on and before another one.
async fn used(tx: &mut Tx, tenant: TenantId, from: i64, until: i64) -> Result<Amount> {
    let (from, until) = (money_day_begin(from), money_day_begin(until));
    let query = TenantUsageQuery::accepted(tenant, from, until);
    let used = tenants::usage(tx.conn(), query).await?;
    Ok(Amount::of(&used.usage))
}

async fn begin_day(tx: &mut Tx, tenant: TenantId, day: i64, spent: Amount) -> Result<()> {
    statement(sql!("money/begin_day"))
        .bind(tenant.0)
        .bind(day)
        .bind(stored_nano(spent.nano_usd))
        .bind(stored_nano(spent.tokens))
        .execute(tx.conn())
        .await
        .map(drop)
}

async fn reserve(tx: &mut Tx, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>> {
    let mut outcomes = vec![ReserveMoneyOutcome::Unlimited; items.len()];
    for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
        let Some(limits) = limits(tx, tenant).await? else {
            continue;
        };
        let month = begun(tx, tenant).await?;
        let mut begins = tx.now;
        if limits.money.minute.is_some() {
            begins = begun_minute(tx, tenant, month.minute).await?;
        }
        let mut spent = month.spent;
        for place in places {
            let granted = reserve_one(tx, &items[place], limits, (spent, begins)).await?;
            if let (ReserveMoneyOutcome::Granted(amount), true) = granted {
                spent = spent.with_aside(amount);
            }
            outcomes[place] = granted.0;
        }
    }
    Ok(outcomes)
}

/// The outcome for a call that begins at this time, and whether that is anything new.
async fn reserve_one(
    tx: &mut Tx,
    item: &ReserveMoney,
    limits: LedgerLimits,
    (spent, begins): (LedgerSpent, Timestamp),
) -> Result<(ReserveMoneyOutcome, bool)> {
    if let Some(aside) = aside(tx, item.tenant, item.call).await? {
        return Ok((ReserveMoneyOutcome::Granted(aside.amount), false));
    }
    let outcome = match limits.room(spent, item.most, item.least) {
        LedgerRoom::Busy => ReserveMoneyOutcome::Busy,
        LedgerRoom::Spent(span, limit) => ReserveMoneyOutcome::Spent(span, limit),
        LedgerRoom::TokensSpent(span, limit) => ReserveMoneyOutcome::TokensSpent(span, limit),
        LedgerRoom::Granted(amount) => {
            let now = tx.now;
            statement(sql!("money/reserve"))
                .bind(item.tenant.0)
                .bind(item.call)
                .bind(item.boot.0)
                .bind(money_day(now))
                .bind(stored_nano(amount.nano_usd))
                .bind(stored_nano(amount.tokens))
                .bind(begins.0)
                .execute(tx.conn())
                .await?;
            ReserveMoneyOutcome::Granted(amount)
        }
    };
    Ok((outcome, true))
}

/// What a call has set aside, and when it began.
struct Aside {
    amount: Amount,
    day: i64,
    minute: i64,
}

async fn aside(tx: &mut Tx, tenant: TenantId, call: Uuid) -> Result<Option<Aside>> {
    let names = ["amount", "tokens", "day", "at"];
    let found: Option<(i64, i64, i64, i64)> = query_as(sql!("money/aside"), names)
        .bind(tenant.0)
        .bind(call)
        .fetch_optional(tx.conn())
        .await?;
    Ok(found.map(|(amount, tokens, day, at)| Aside {
        amount: Amount::new(amount.unsigned_abs(), tokens.unsigned_abs()),
        day,
        minute: money_minute(Timestamp(at)),
    }))
}

async fn settle(tx: &mut Tx, items: Vec<SettleMoney>) -> Result<()> {
    for (tenant, places) in places_by_tenant(&items, |item| item.tenant) {
        limits(tx, tenant).await?;
        for item in places.into_iter().map(|place| items[place]) {
            let Some(aside) = aside(tx, tenant, item.call).await? else {
                continue;
            };
            let cost = item.cost.unwrap_or(aside.amount);
            statement(sql!("money/settle"))
                .bind(tenant.0)
                .bind(item.call)
                .bind(aside.day)
                .bind(stored_nano(cost.nano_usd))
                .bind(stored_nano(cost.tokens))
                .bind(aside.minute)
                .execute(tx.conn())
                .await?;
        }
    }
    Ok(())
}

/// What boots without a lease have set aside, and what is too old.
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

/// Follows the limits of a tenant, in the transaction that changes them.
pub(crate) async fn follow(tx: &mut Tx, tenant: TenantId, limits: &Limits) -> Result<()> {
    if LedgerLimits::of(limits).is_some() {
        return Ok(());
    }
    let lift = statement(sql!("money/lift")).bind(tenant.0);
    lift.execute(tx.conn()).await.map(drop)
}

/// What calls have set aside, and what was spent by day.
pub(crate) async fn dump(conn: &mut Conn) -> Result<(Vec<DumpAside>, Vec<(TenantId, i64, u64)>)> {
    let rows = statement(sql!("money/dump")).fetch_all(&mut *conn).await?;
    let aside = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "money_aside");
        Ok(DumpAside {
            tenant: TenantId(cells.get("tenant")?),
            call: cells.get("call_id")?,
            boot: BootId(cells.get("boot_id")?),
            day: cells.get("day")?,
            amount: cells.get("amount").map(i64::unsigned_abs)?,
            at: cells.time("at")?,
        })
    });
    let aside = aside.collect::<Result<_>>()?;
    let names = ["tenant", "day", "spent"];
    let days: Vec<(i32, i64, i64)> = query_as(sql!("money/dump_days"), names)
        .fetch_all(conn)
        .await?;
    let days = days
        .into_iter()
        .map(|(tenant, day, spent)| (TenantId(tenant), day, spent.unsigned_abs()));
    Ok((aside, days.collect()))
}
