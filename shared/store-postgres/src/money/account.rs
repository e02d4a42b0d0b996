//! An account of the ledger: that of a tenant, or of one of its agents.

use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store::TenantUsageQuery;
use mainspring_shared::tenant::{
    Amount, LedgerAccount, LedgerLimits, LedgerSpent, MONEY_DAYS_KEPT, MoneySpent, Payer,
    money_day, money_day_begin, money_minute, money_minute_begin, money_minute_of, money_month,
    nano_usd, stored_nano,
};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;

use super::Faulty;
use crate::retry::{PgQuery, sql};
use crate::rows::Fields;

/// The owner of an account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) tenant: TenantId,
    /// The agent; `None` for the tenant's own account.
    pub(super) holder: Option<KeyId>,
}

impl Owner {
    /// Picks the statement for tenants or the one for agents, and binds the owner.
    fn of(self, tenants: PgQuery, agents: PgQuery) -> PgQuery {
        match self.holder {
            None => tenants.bind(self.tenant.0),
            Some(holder) => agents.bind(self.tenant.0).bind(holder.0),
        }
    }
}

/// An account in which calls are about to make reservations.
pub(super) struct Account {
    pub(super) holder: Option<KeyId>,
    pub(super) ledger: LedgerAccount,
    /// When these calls count as started: now, or in the minute that is already being counted, if
    /// that is later.
    pub(super) begins: Timestamp,
}

impl Account {
    /// Starts its day, and its minute if that is limited.
    pub(super) async fn open(
        connection: &mut PgConnection,
        owner: Owner,
        limits: LedgerLimits,
        now: Timestamp,
    ) -> Faulty<Self> {
        let month = begun(connection, owner, now).await?;
        let mut begins = now;
        if limits.money.minute.is_some() {
            begins = begun_minute(connection, owner, (now, month.minute)).await?;
        }
        let of = if owner.holder.is_some() {
            Payer::Agent
        } else {
            Payer::Tenant
        };
        Ok(Self {
            holder: owner.holder,
            ledger: LedgerAccount {
                of,
                limits,
                spent: month.spent,
            },
            begins,
        })
    }
}

/// The state of an account in its month.
pub(super) struct Month {
    /// The last of its days with a row.
    pub(super) last_day: Option<i64>,
    /// The last minute that was counted.
    minute: i64,
    pub(super) spent: LedgerSpent,
}

pub(super) async fn spent(
    connection: &mut PgConnection,
    owner: Owner,
    now: Timestamp,
) -> Faulty<Month> {
    let query = owner
        .of(sql!("money/spent"), sql!("money/agent_spent"))
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

/// The spending that counts against an account's limits. A day starts with the first call that
/// reserves in it, and a tenant's month with the recorded usage of its sends.
async fn begun(connection: &mut PgConnection, owner: Owner, now: Timestamp) -> Faulty<Month> {
    let today = money_day(now);
    let month = spent(connection, owner, now).await?;
    if month.last_day == Some(today) {
        return Ok(month);
    }
    match owner.holder {
        None => begin_days(connection, owner.tenant, now, month.last_day.is_none()).await?,
        Some(holder) => {
            let begin = sql!("money/agent_begin_day");
            let begin = begin.bind(owner.tenant.0).bind(holder.0).bind(today);
            begin.execute(&mut *connection).await?;
        }
    }
    let forget = owner.of(sql!("money/forget_days"), sql!("money/agent_forget_days"));
    let forget = forget.bind(today - MONEY_DAYS_KEPT);
    forget.execute(&mut *connection).await?;
    spent(connection, owner, now).await
}

/// Starts a tenant's day and, with `with_month`, its month.
async fn begin_days(
    connection: &mut PgConnection,
    tenant: TenantId,
    now: Timestamp,
    with_month: bool,
) -> Faulty<()> {
    let (today, first) = (money_day(now), money_month(now));
    let (mut days, mut amounts) = (vec![today], vec![Amount::default()]);
    if with_month {
        amounts[0] = used(connection, tenant, today, today + 1).await?;
        if first < today {
            days.push(first);
            amounts.push(used(connection, tenant, first, today).await?);
        }
    }
    let begin = sql!("money/begin_days").bind(tenant.0).bind(days);
    let (spent_of, tokens_of) = columns(&amounts);
    let begin = begin.bind(spent_of).bind(tokens_of);
    begin.execute(connection).await?;
    Ok(())
}

/// Starts the minute of this time, to which spending counts from now on. Returns when calls count
/// as started: now, or in the minute that is already being counted, if that is later.
async fn begun_minute(
    connection: &mut PgConnection,
    owner: Owner,
    (now, kept): (Timestamp, i64),
) -> Faulty<Timestamp> {
    let minute = money_minute_of(now, kept);
    if minute != kept {
        let begin = owner.of(sql!("money/begin_minute"), sql!("money/agent_begin_minute"));
        let begin = begin.bind(money_day(now)).bind(minute);
        begin.execute(connection).await?;
    }
    Ok(now.max(money_minute_begin(minute)))
}

/// The cost of the sends that were accepted from day `from` on and before day `until`.
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

/// Amounts as columns: money and tokens.
pub(super) fn columns(amounts: &[Amount]) -> (Vec<i64>, Vec<i64>) {
    let both = amounts.iter();
    both.map(|amount| (stored_nano(amount.nano_usd), stored_nano(amount.tokens)))
        .unzip()
}
