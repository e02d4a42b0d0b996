//! An account of the ledger, of a tenant or of one of its agents.

use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store::{ReserveMoney, TenantUsageQuery};
use mainspring_shared::tenant::{
    Amount, LedgerAccount, LedgerLimits, LedgerSpent, MONEY_DAYS_KEPT, MoneySpent, Payer,
    money_day, money_day_begin, money_minute, money_minute_begin, money_minute_of, money_month,
    stored_nano,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::db::{Conn, Statement, sql};
use crate::fault::Result;
use crate::query::{Query, statement};
use crate::rows::Cells;
use crate::store::Tx;
use crate::tenants;

/// The owner of an account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) tenant: TenantId,
    /// The agent; none for the tenant's own account.
    pub(super) holder: Option<KeyId>,
}

impl Owner {
    /// The statement for this owner: `tenants`, or `agents` if it is an agent.
    pub(super) fn of(self, tenants: &'static Statement, agents: &'static Statement) -> Query {
        match self.holder {
            None => statement(tenants).bind(self.tenant.0),
            Some(holder) => statement(agents).bind(self.tenant.0).bind(holder.0),
        }
    }
}

/// An account in which calls are about to reserve something.
#[derive(Debug)]
pub(super) struct Account {
    owner: Owner,
    pub(super) ledger: LedgerAccount,
    /// The start time of these calls: now, or the start of the last counted minute if that is
    /// later.
    begins: Timestamp,
}

impl Account {
    /// Begins its day, and its minute if minutes are limited.
    pub(super) async fn open(tx: &mut Tx, owner: Owner, limits: LedgerLimits) -> Result<Self> {
        let month = begun(tx, owner).await?;
        let mut begins = tx.now;
        if limits.money.minute.is_some() {
            begins = begun_minute(tx, owner, month.minute).await?;
        }
        let of = if owner.holder.is_some() {
            Payer::Agent
        } else {
            Payer::Tenant
        };
        Ok(Self {
            owner,
            ledger: LedgerAccount {
                of,
                limits,
                spent: month.spent,
            },
            begins,
        })
    }

    /// Reserves an amount for a call.
    pub(super) async fn set_aside(
        &mut self,
        tx: &mut Tx,
        item: &ReserveMoney,
        amount: Amount,
    ) -> Result<()> {
        let now = tx.now;
        self.owner
            .of(sql!("money/reserve"), sql!("money/agent_reserve"))
            .bind(item.call)
            .bind(item.boot.0)
            .bind(money_day(now))
            .bind(stored_nano(amount.nano_usd))
            .bind(stored_nano(amount.tokens))
            .bind(self.begins.0)
            .execute(tx.conn())
            .await?;
        self.ledger.spent = self.ledger.spent.with_aside(amount);
        Ok(())
    }
}

/// The state of an account in the current month.
pub(super) struct Month {
    /// The last day that has a row.
    pub(super) last_day: Option<i64>,
    /// The last minute that was counted on that day.
    minute: i64,
    pub(super) spent: LedgerSpent,
}

pub(super) async fn spent(conn: &mut Conn, owner: Owner, now: Timestamp) -> Result<Month> {
    let row = owner
        .of(sql!("money/spent"), sql!("money/agent_spent"))
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

/// What counts against an account's limits. A day is started by its first call; a tenant's first
/// day of a month is started with the recorded usage of its sends.
async fn begun(tx: &mut Tx, owner: Owner) -> Result<Month> {
    let now = tx.now;
    let (today, first) = (money_day(now), money_month(now));
    let month = spent(tx.conn(), owner, now).await?;
    if month.last_day == Some(today) {
        return Ok(month);
    }
    if let Some(holder) = owner.holder {
        statement(sql!("money/agent_begin_day"))
            .bind(owner.tenant.0)
            .bind(holder.0)
            .bind(today)
            .execute(tx.conn())
            .await?;
    } else {
        let tenant = owner.tenant;
        let mut of_today = Amount::default();
        if month.last_day.is_none() {
            of_today = used(tx, tenant, today, today + 1).await?;
            if first < today {
                let before = used(tx, tenant, first, today).await?;
                begin_day(tx, tenant, first, before).await?;
            }
        }
        begin_day(tx, tenant, today, of_today).await?;
    }
    owner
        .of(sql!("money/forget_days"), sql!("money/agent_forget_days"))
        .bind(today - MONEY_DAYS_KEPT)
        .execute(tx.conn())
        .await?;
    spent(tx.conn(), owner, now).await
}

/// Starts counting the minute of this time, if it is not the counted one. Returns the start time of
/// calls: now, or the start of the counted minute if that is later.
async fn begun_minute(tx: &mut Tx, owner: Owner, kept: i64) -> Result<Timestamp> {
    let now = tx.now;
    let minute = money_minute_of(now, kept);
    if minute != kept {
        owner
            .of(sql!("money/begin_minute"), sql!("money/agent_begin_minute"))
            .bind(money_day(now))
            .bind(minute)
            .execute(tx.conn())
            .await?;
    }
    Ok(now.max(money_minute_begin(minute)))
}

/// The cost of the sends that were accepted from a day on and before another one.
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

/// A call's reservation in an account, and when the call began.
pub(super) struct Aside {
    pub(super) owner: Owner,
    pub(super) amount: Amount,
    pub(super) day: i64,
    pub(super) minute: i64,
}

/// A call's reservations, in one account or in two.
pub(super) async fn aside(tx: &mut Tx, tenant: TenantId, call: Uuid) -> Result<Vec<Aside>> {
    let rows = statement(sql!("money/aside"))
        .bind(tenant.0)
        .bind(call)
        .fetch_all(tx.conn())
        .await?;
    let aside = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "money_aside");
        let holder: Option<Uuid> = cells.get("holder")?;
        let amount: i64 = cells.get("amount")?;
        let tokens: i64 = cells.get("tokens")?;
        Ok(Aside {
            owner: Owner {
                tenant,
                holder: holder.map(KeyId),
            },
            amount: Amount::new(amount.unsigned_abs(), tokens.unsigned_abs()),
            day: cells.get("day")?,
            minute: money_minute(cells.time("at")?),
        })
    });
    aside.collect()
}
