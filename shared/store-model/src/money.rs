//! Money and tokens that calls of tenants and of their agents reserve and spend.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mainspring_shared::agent::{AgentKey, AgentLimits, AgentName};
use mainspring_shared::id::{BootId, KeyId, TenantId};
use mainspring_shared::store::{
    DumpAside, Money, ReserveMoney, ReserveMoneyOutcome, Result, SettleMoney, TenantUsageQuery,
    Tenants,
};
use mainspring_shared::tenant::{
    Amount, LedgerAccount, LedgerLimits, LedgerRoom, LedgerSpent, MONEY_ASIDE_MS, MONEY_DAYS_KEPT,
    Payer, check_ledger, money_day, money_day_begin, money_minute, money_minute_begin,
    money_minute_of, money_month,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::memory::ModelStore;
use crate::state::State;

/// The accounts of tenants and, under their holders, of agents.
pub(crate) type Accounts = BTreeMap<(TenantId, Option<KeyId>), Account>;

/// An account of the ledger.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The reservations of calls.
    aside: BTreeMap<Uuid, ReservedMoney>,
    /// The amounts spent by day.
    days: BTreeMap<i64, Amount>,
    /// By day, the last minute that was counted, and the cost of its calls.
    minutes: BTreeMap<i64, (i64, u64)>,
}

/// A call's reservation.
#[derive(Debug, Clone, Copy)]
struct ReservedMoney {
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
            outcomes.push(state.reserve(&item, used, now));
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
        let mut left = BTreeSet::new();
        for ((tenant, _), account) in &state.tenants.money {
            let calls = account
                .aside
                .iter()
                .filter(|(_, it)| it.at.0 < now.0 - MONEY_ASIDE_MS || !state.is_live(it.boot, now));
            left.extend(calls.map(|(call, _)| (*tenant, *call)));
        }
        let mut swept = 0;
        for (tenant, call) in left.into_iter().take(limit as usize) {
            state.settle(SettleMoney {
                tenant,
                call,
                cost: None,
            });
            swept += 1;
        }
        Ok(swept)
    }

    async fn spent_money(
        &self,
        tenant: TenantId,
        agent: Option<AgentName>,
    ) -> Result<Option<LedgerSpent>> {
        let (state, now) = self.begin();
        let holder = agent.map(|agent| agent.holder());
        let account = state.tenants.money.get(&(tenant, holder));
        let begun = account.filter(|account| account.has_begun(now));
        Ok(begun.map(|account| account.spent(now)))
    }

    async fn money_tenants(&self) -> Result<Vec<TenantId>> {
        let (state, _) = self.begin();
        let mut found: BTreeSet<TenantId> = state.tenants.rows.with_money().into_iter().collect();
        let agents = state.agents.named.iter();
        let limited = agents.filter(|(_, kept)| kept.limits().ledger().is_some());
        found.extend(limited.map(|(key, _)| key.tenant));
        Ok(found.into_iter().collect())
    }
}

impl ModelStore {
    /// The recorded usage of a tenant's sends of today, and of the earlier days of the month.
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

impl Account {
    /// Whether the account has a day in this month.
    fn has_begun(&self, now: Timestamp) -> bool {
        let mut days = self.days.range(money_month(now)..=money_day(now));
        days.next().is_some()
    }

    fn spent(&self, now: Timestamp) -> LedgerSpent {
        let (first, today) = (money_month(now), money_day(now));
        let mut spent = LedgerSpent::default();
        for (day, cost) in self.days.range(first..=today) {
            let is_today = u64::from(*day == today);
            spent.money.month += cost.nano_usd;
            spent.money.day += is_today * cost.nano_usd;
            spent.tokens.month += cost.tokens;
            spent.tokens.day += is_today * cost.tokens;
        }
        let (kept, of_minute) = self.minutes.get(&today).copied().unwrap_or_default();
        if money_minute_of(now, kept) == kept {
            spent.money.minute = of_minute;
        }
        let began = money_minute_begin(money_minute(now));
        for aside in self.aside.values() {
            spent.money.aside += aside.amount.nano_usd;
            spent.tokens.aside += aside.amount.tokens;
            if aside.at >= began {
                spent.money.minute_aside += aside.amount.nano_usd;
            }
        }
        spent
    }

    /// Begins the day. If it is the first one of the month, also stores the amounts that were used
    /// before: those of today, and of earlier days.
    fn begin(&mut self, used: Option<(Amount, Amount)>, now: Timestamp) {
        let today = money_day(now);
        if let Some((of_today, before)) = used.filter(|_| !self.has_begun(now)) {
            self.days.insert(money_month(now), before);
            self.days.insert(today, of_today);
        }
        self.days.entry(today).or_default();
        self.days.retain(|day, _| *day >= today - MONEY_DAYS_KEPT);
    }

    /// Starts counting the minute of this time, if it is not the counted one. Returns the start
    /// time of calls.
    fn begin_minute(&mut self, now: Timestamp) -> Timestamp {
        let (kept, spent) = self.minutes.entry(money_day(now)).or_default();
        let minute = money_minute_of(now, *kept);
        if minute != *kept {
            (*kept, *spent) = (minute, 0);
        }
        now.max(money_minute_begin(minute))
    }

    fn settle(&mut self, item: SettleMoney) {
        let Some(aside) = self.aside.remove(&item.call) else {
            return;
        };
        let cost = item.cost.unwrap_or(aside.amount);
        if let Some(spent) = self.days.get_mut(&aside.day) {
            *spent = spent.and(cost);
        }
        if let Some((minute, spent)) = self.minutes.get_mut(&aside.day)
            && *minute == money_minute(aside.at)
        {
            *spent += cost.nano_usd;
        }
    }
}

impl State {
    /// The accounts against which a call counts, and their limits.
    fn limited(&self, item: &ReserveMoney) -> Vec<(Option<KeyId>, LedgerLimits)> {
        let tenant = self.tenants.rows.get(item.tenant);
        let own = tenant.and_then(|tenant| LedgerLimits::of(&tenant.limits));
        let agent = item.agent.as_ref().and_then(|name| {
            let key = AgentKey {
                tenant: item.tenant,
                name: name.clone(),
            };
            let limits = self.agents.named.get(&key)?.limits().ledger()?;
            Some((Some(name.holder()), limits))
        });
        let own = own.map(|limits| (None, limits));
        own.into_iter().chain(agent).collect()
    }

    fn reserve(
        &mut self,
        item: &ReserveMoney,
        used: (Amount, Amount),
        now: Timestamp,
    ) -> ReserveMoneyOutcome {
        let limited = self.limited(item);
        if limited.is_empty() {
            return ReserveMoneyOutcome::Unlimited;
        }
        let (mut ledger, mut begins) = (Vec::new(), Vec::new());
        for (holder, limits) in &limited {
            let account = self
                .tenants
                .money
                .entry((item.tenant, *holder))
                .or_default();
            let of = match holder {
                Some(_) => Payer::Agent,
                None => Payer::Tenant,
            };
            account.begin((of == Payer::Tenant).then_some(used), now);
            begins.push(match limits.money.minute {
                Some(_) => account.begin_minute(now),
                None => now,
            });
            ledger.push(LedgerAccount {
                of,
                limits: *limits,
                spent: account.spent(now),
            });
        }
        let mut all = self
            .tenants
            .money
            .iter()
            .filter(|((of, _), _)| *of == item.tenant);
        let known = all.find_map(|(_, account)| account.aside.get(&item.call));
        if let Some(known) = known {
            return ReserveMoneyOutcome::Granted(known.amount);
        }
        let room = check_ledger(&ledger, item.ledger_request());
        if let LedgerRoom::Granted(amount) = room {
            for ((holder, _), at) in limited.into_iter().zip(begins) {
                let account = self.tenants.money.entry((item.tenant, holder)).or_default();
                let aside = ReservedMoney {
                    boot: item.boot,
                    day: money_day(now),
                    amount,
                    at,
                };
                account.aside.insert(item.call, aside);
            }
        }
        room.into()
    }

    fn settle(&mut self, item: SettleMoney) {
        let all = self.tenants.money.iter_mut();
        for (_, account) in all.filter(|((of, _), _)| *of == item.tenant) {
            account.settle(item);
        }
    }

    /// Removes a tenant's own account once nothing limits its money; agents' accounts stay.
    pub(crate) fn lift_money(&mut self, tenant: TenantId) {
        self.tenants.money.remove(&(tenant, None));
    }

    /// Removes the accounts of a tenant and of its agents.
    pub(crate) fn forget_money(&mut self, tenant: TenantId) {
        self.tenants.money.retain(|(of, _), _| *of != tenant);
    }

    /// Number of rows that a database would have for a tenant's accounts, by table.
    pub(crate) fn money_rows(&self, tenant: TenantId) -> [(&'static str, u64); 4] {
        let (mut own, mut of_agents) = ((0, 0), (0, 0));
        let all = self.tenants.money.iter();
        for ((_, holder), account) in all.filter(|((of, _), _)| *of == tenant) {
            let (aside, days) = match holder {
                None => &mut own,
                Some(_) => &mut of_agents,
            };
            *aside += account.aside.len() as u64;
            *days += account.days.len() as u64;
        }
        [
            ("money_aside", own.0),
            ("money_days", own.1),
            ("agent_money_aside", of_agents.0),
            ("agent_money_days", of_agents.1),
        ]
    }
}

/// Adapts the ledger to changed limits of an agent.
pub(crate) fn apply_agent_limits(
    accounts: &mut Accounts,
    key: &AgentKey,
    (before, after): (&AgentLimits, &AgentLimits),
) {
    if before.ledger().is_some() != after.ledger().is_some() {
        accounts.remove(&(key.tenant, Some(key.name.holder())));
    }
}

/// The content of the ledger, for a dump.
#[derive(Debug, Default)]
pub(crate) struct Dumped {
    pub(crate) aside: Vec<DumpAside>,
    pub(crate) days: Vec<(TenantId, i64, u64)>,
    pub(crate) agent_aside: Vec<(KeyId, DumpAside)>,
    pub(crate) agent_days: Vec<(TenantId, KeyId, i64, u64)>,
}

/// The reservations of calls, and the amounts spent by day.
pub(crate) fn dump(accounts: &Accounts) -> Dumped {
    let mut dumped = Dumped::default();
    for ((tenant, holder), account) in accounts {
        let aside = account.aside.iter().map(|(call, aside)| DumpAside {
            tenant: *tenant,
            call: *call,
            boot: aside.boot,
            day: aside.day,
            amount: aside.amount.nano_usd,
            at: aside.at,
        });
        let days = account.days.iter();
        let days = days.map(|(day, spent)| (*day, spent.nano_usd));
        match holder {
            None => {
                dumped.aside.extend(aside);
                dumped
                    .days
                    .extend(days.map(|(day, spent)| (*tenant, day, spent)));
            }
            Some(holder) => {
                dumped
                    .agent_aside
                    .extend(aside.map(|aside| (*holder, aside)));
                dumped
                    .agent_days
                    .extend(days.map(|(day, spent)| (*tenant, *holder, day, spent)));
            }
        }
    }
    dumped
        .agent_aside
        .sort_by_key(|(_, aside)| (aside.tenant, aside.call));
    dumped
}
