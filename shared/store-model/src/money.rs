//! Money and tokens that tenants' calls set aside and spend.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::{
    DumpAside, Money, ReserveMoney, ReserveMoneyOutcome, Result, SettleMoney, TenantUsageQuery,
    Tenants,
};
use mainspring_shared::tenant::{
    Amount, LedgerLimits, LedgerRoom, LedgerSpent, MONEY_ASIDE_MS, MONEY_DAYS_KEPT, money_day,
    money_day_begin, money_minute, money_minute_begin, money_minute_of, money_month,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::memory::ModelStore;
use crate::state::State;

/// What a call has set aside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedMoney {
    boot: BootId,
    day: i64,
    amount: Amount,
    at: Timestamp,
}

#[async_trait]
impl Money for ModelStore {
    async fn reserve_money(&self, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>> {
        let mut outcomes = Vec::with_capacity(items.len());
        for item in items {
            let used = self.used_before(item.tenant).await?;
            let (mut state, now) = self.begin();
            outcomes.push(state.reserve(item, used, now));
        }
        Ok(outcomes)
    }

    async fn settle_money(&self, items: Vec<SettleMoney>) -> Result<()> {
        let (mut state, _) = self.begin();
        for item in items {
            state.settle(item);
        }
        Ok(())
    }

    async fn sweep_money(&self, limit: u32) -> Result<u32> {
        let (mut state, now) = self.begin();
        let aside = state.money_aside.iter();
        let left = aside
            .filter(|(_, it)| it.at.0 < now.0 - MONEY_ASIDE_MS || !state.is_live(it.boot, now));
        let left = left.map(|((tenant, call), _)| SettleMoney {
            tenant: *tenant,
            call: *call,
            cost: None,
        });
        let left: Vec<SettleMoney> = left.take(limit as usize).collect();
        for item in &left {
            state.settle(*item);
        }
        Ok(u32::try_from(left.len()).unwrap_or(u32::MAX))
    }

    async fn spent_money(&self, tenant: TenantId) -> Result<Option<LedgerSpent>> {
        let (state, now) = self.begin();
        let days = money_month(now)..=money_day(now);
        let mut of_month = state.money_days.keys();
        let is_begun = of_month.any(|(of, day)| *of == tenant && days.contains(day));
        Ok(is_begun.then(|| state.money_spent(tenant, now)))
    }

    async fn money_tenants(&self) -> Result<Vec<TenantId>> {
        Ok(self.begin().0.tenants.with_money())
    }
}

impl ModelStore {
    /// What the usage of a tenant's sends says of today, and of the days of the month before it.
    async fn used_before(&self, tenant: TenantId) -> Result<(Amount, Amount)> {
        let now = self.begin().1;
        let (first, today) = (money_month(now), money_day(now));
        let mut sums = [Amount::default(); 2];
        for (sum, (from, until)) in sums.iter_mut().zip([(today, today + 1), (first, today)]) {
            let (from, until) = (money_day_begin(from), money_day_begin(until));
            let query = TenantUsageQuery::accepted(tenant, from, until);
            let used = self.tenant_usage(query).await?;
            *sum = Amount::of(&used.usage);
        }
        Ok((sums[0], sums[1]))
    }
}

impl State {
    fn money_spent(&self, tenant: TenantId, now: Timestamp) -> LedgerSpent {
        let (first, today) = (money_month(now), money_day(now));
        let mut spent = LedgerSpent::default();
        for ((of, day), cost) in &self.money_days {
            if *of == tenant && (first..=today).contains(day) {
                let is_today = u64::from(*day == today);
                spent.money.month += cost.nano_usd;
                spent.money.day += is_today * cost.nano_usd;
                spent.tokens.month += cost.tokens;
                spent.tokens.day += is_today * cost.tokens;
            }
        }
        let counted = self.money_minutes.get(&(tenant, today)).copied();
        let (kept, of_minute) = counted.unwrap_or_default();
        if money_minute_of(now, kept) == kept {
            spent.money.minute = of_minute;
        }
        let began = money_minute_begin(money_minute(now));
        let aside = self.money_aside.iter().filter(|((of, _), _)| *of == tenant);
        for (_, aside) in aside {
            spent.money.aside += aside.amount.nano_usd;
            spent.tokens.aside += aside.amount.tokens;
            if aside.at >= began {
                spent.money.minute_aside += aside.amount.nano_usd;
            }
        }
        spent
    }

    /// Counts what is spent from now on for the minute of this time. Returns when calls begin.
    fn begin_minute(&mut self, tenant: TenantId, now: Timestamp) -> Timestamp {
        let counted = self.money_minutes.entry((tenant, money_day(now)));
        let (kept, spent) = counted.or_default();
        let minute = money_minute_of(now, *kept);
        if minute != *kept {
            (*kept, *spent) = (minute, 0);
        }
        now.max(money_minute_begin(minute))
    }

    fn reserve(
        &mut self,
        item: ReserveMoney,
        (of_today, before): (Amount, Amount),
        now: Timestamp,
    ) -> ReserveMoneyOutcome {
        let tenant = self.tenants.get(item.tenant);
        let Some(limits) = tenant.and_then(|tenant| LedgerLimits::of(&tenant.limits)) else {
            return ReserveMoneyOutcome::Unlimited;
        };
        let (first, today) = (money_month(now), money_day(now));
        let day = |day: i64| (item.tenant, day);
        let mut days = self.money_days.range(day(first)..=day(today));
        if days.next().is_none() {
            self.money_days.insert(day(first), before);
            self.money_days.insert(day(today), of_today);
        }
        self.money_days.entry(day(today)).or_default();
        self.money_days
            .retain(|(of, day), _| *of != item.tenant || *day >= today - MONEY_DAYS_KEPT);
        let call = (item.tenant, item.call);
        if let Some(known) = self.money_aside.get(&call) {
            return ReserveMoneyOutcome::Granted(known.amount);
        }
        let mut begins = now;
        if limits.money.minute.is_some() {
            begins = self.begin_minute(item.tenant, now);
        }
        let spent = self.money_spent(item.tenant, now);
        match limits.room(spent, item.most, item.least) {
            LedgerRoom::Busy => ReserveMoneyOutcome::Busy,
            LedgerRoom::Spent(span, limit) => ReserveMoneyOutcome::Spent(span, limit),
            LedgerRoom::TokensSpent(span, limit) => ReserveMoneyOutcome::TokensSpent(span, limit),
            LedgerRoom::Granted(amount) => {
                let aside = ReservedMoney {
                    boot: item.boot,
                    day: today,
                    amount,
                    at: begins,
                };
                self.money_aside.insert(call, aside);
                ReserveMoneyOutcome::Granted(amount)
            }
        }
    }

    fn settle(&mut self, item: SettleMoney) {
        let Some(aside) = self.money_aside.remove(&(item.tenant, item.call)) else {
            return;
        };
        let (of, cost) = ((item.tenant, aside.day), item.cost.unwrap_or(aside.amount));
        if let Some(spent) = self.money_days.get_mut(&of) {
            *spent = spent.and(cost);
        }
        if let Some((minute, spent)) = self.money_minutes.get_mut(&of)
            && *minute == money_minute(aside.at)
        {
            *spent += cost.nano_usd;
        }
    }

    /// Nothing limits a tenant's money any more.
    pub(crate) fn lift_money(&mut self, tenant: TenantId) {
        self.money_aside
            .retain(|(of, _): &(_, Uuid), _| *of != tenant);
        self.money_days.retain(|(of, _), _| *of != tenant);
        self.money_minutes.retain(|(of, _), _| *of != tenant);
    }
}

/// What calls have set aside.
pub(crate) fn dump(state: &State) -> Vec<DumpAside> {
    let aside = state.money_aside.iter();
    let aside = aside.map(|((tenant, call), aside)| DumpAside {
        tenant: *tenant,
        call: *call,
        boot: aside.boot,
        day: aside.day,
        amount: aside.amount.nano_usd,
        at: aside.at,
    });
    aside.collect()
}
