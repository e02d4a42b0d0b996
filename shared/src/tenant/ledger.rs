//! The ledger: money and token accounts of tenants, and of agents with limits of their own.

use super::money::{MONEY_AHEAD_PARTS, MoneyLimits, MoneySpan, MoneySpent, nano_usd};
use crate::tenant::Limits;
use crate::usage::Usage;

/// The cost of a call, or of several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Money, in billionths of a dollar.
    pub nano_usd: u64,
    /// Tokens, input and output.
    pub tokens: u64,
}

impl Amount {
    /// An amount of money and tokens.
    pub const fn new(nano_usd: u64, tokens: u64) -> Self {
        Self { nano_usd, tokens }
    }

    /// The amount of this usage.
    pub fn of(usage: &Usage) -> Self {
        Self {
            nano_usd: nano_usd(usage.cost_usd.unwrap_or_default()),
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        }
    }

    /// The sum.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// The difference; `None` if `other` is more in money or tokens.
    #[must_use]
    pub fn less(self, other: Self) -> Option<Self> {
        Some(Self {
            nano_usd: self.nano_usd.checked_sub(other.nano_usd)?,
            tokens: self.tokens.checked_sub(other.tokens)?,
        })
    }

    /// The difference of money and of tokens, each not below zero.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_sub(other.nano_usd),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    /// A multiple of the amount.
    #[must_use]
    pub const fn times(self, times: u64) -> Self {
        Self {
            nano_usd: self.nano_usd.saturating_mul(times),
            tokens: self.tokens.saturating_mul(times),
        }
    }
}

/// The owner of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payer {
    /// The tenant, for all its calls.
    Tenant,
    /// A published agent, for the calls of all its versions.
    Agent,
}

/// Limits of money and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerLimits {
    /// Money, in billionths of a dollar.
    pub money: MoneyLimits,
    /// Tokens.
    pub tokens: MoneyLimits,
}

impl LedgerLimits {
    /// The limits of a tenant; `None` if neither its money nor its tokens are limited.
    pub fn of(limits: &Limits) -> Option<Self> {
        let tokens = |tokens: u64| tokens.min(i64::MAX as u64);
        let of = Self {
            money: MoneyLimits::of(limits).unwrap_or_default(),
            tokens: MoneyLimits {
                // The limit of tokens per minute refuses sends, based on past usage; no call waits
                // for it.
                minute: None,
                day: limits.tokens_per_day.map(tokens),
                month: limits.tokens_per_month.map(tokens),
            },
        };
        (of != Self::default()).then_some(of)
    }
}

/// What currently counts against the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerSpent {
    /// Money, in billionths of a dollar.
    pub money: MoneySpent,
    /// Tokens.
    pub tokens: MoneySpent,
}

impl LedgerSpent {
    /// The cost of the finished calls of the minute, the day or the month.
    pub const fn of(&self, span: MoneySpan) -> Amount {
        match span {
            MoneySpan::Minute => Amount::new(self.money.minute, self.tokens.minute),
            MoneySpan::Day => Amount::new(self.money.day, self.tokens.day),
            MoneySpan::Month => Amount::new(self.money.month, self.tokens.month),
        }
    }

    /// The same with an additional reservation for calls that start now.
    #[must_use]
    pub const fn with_aside(self, more: Amount) -> Self {
        Self {
            money: self.money.with_aside(more.nano_usd),
            tokens: self.tokens.with_aside(more.tokens),
        }
    }
}

/// The current state of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerAccount {
    /// Its owner.
    pub of: Payer,
    /// Its limits.
    pub limits: LedgerLimits,
    /// What counts against them.
    pub spent: LedgerSpent,
}

/// Whether there is room for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerRoom {
    /// This much may be reserved.
    Granted(Amount),
    /// Not before other calls have ended: their reservations leave no room.
    Busy,
    /// Not before this span ends or this money limit, in billionths of a dollar, is raised.
    Spent(Payer, MoneySpan, u64),
    /// Not before this span ends or this token limit is raised.
    TokensSpent(Payer, MoneySpan, u64),
}

/// The amounts that a call requests from its accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerRequest {
    /// The most it can cost.
    pub most: Amount,
    /// The least that makes it worthwhile.
    pub least: Amount,
    /// An additional amount for calls that the same caller is about to make.
    pub ahead: Amount,
}

/// Whether there is room for a call in all of its accounts.
///
/// [`MoneyLimits::room`] applies to each account, for money and for tokens: the call gets as much
/// as all of them leave, or nothing. If several limits are spent, the first one is reported. The
/// amount ahead is granted in full or not at all: only if it and `most` together are at most one of
/// [`MONEY_AHEAD_PARTS`] parts of what every limit leaves.
pub fn check_ledger(accounts: &[LedgerAccount], request: LedgerRequest) -> LedgerRoom {
    let LedgerRequest { most, least, ahead } = request;
    let mut wanted = most;
    for LedgerAccount { of, limits, spent } in accounts {
        let money = limits
            .money
            .wanted(spent.money, most.nano_usd, least.nano_usd);
        match money {
            Ok(nano_usd) => wanted.nano_usd = wanted.nano_usd.min(nano_usd),
            Err((span, limit)) => return LedgerRoom::Spent(*of, span, limit),
        }
        let tokens = limits
            .tokens
            .wanted(spent.tokens, most.tokens, least.tokens);
        match tokens {
            Ok(tokens) => wanted.tokens = wanted.tokens.min(tokens),
            Err((span, limit)) => return LedgerRoom::TokensSpent(*of, span, limit),
        }
    }
    let fits = |amount: Amount| {
        accounts.iter().all(|LedgerAccount { limits, spent, .. }| {
            limits.money.fits(spent.money, amount.nano_usd)
                && limits.tokens.fits(spent.tokens, amount.tokens)
        })
    };
    let both = most.and(ahead);
    if ahead != Amount::default() && fits(both.times(MONEY_AHEAD_PARTS)) {
        LedgerRoom::Granted(both)
    } else if fits(wanted) {
        LedgerRoom::Granted(wanted)
    } else {
        LedgerRoom::Busy
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(day: Option<u64>, month: Option<u64>) -> MoneyLimits {
        MoneyLimits {
            minute: None,
            day,
            month,
        }
    }

    fn spent(day: u64, month: u64) -> MoneySpent {
        MoneySpent {
            day,
            month,
            ..MoneySpent::default()
        }
    }

    fn request(most: Amount, least: Amount) -> LedgerRequest {
        LedgerRequest {
            most,
            least,
            ..LedgerRequest::default()
        }
    }

    /// An account with a money limit per day.
    fn account(of: Payer, day: u64) -> LedgerAccount {
        LedgerAccount {
            of,
            limits: LedgerLimits {
                money: limits(Some(day), None),
                ..LedgerLimits::default()
            },
            spent: LedgerSpent::default(),
        }
    }

    #[test]
    fn a_call_gets_money_and_tokens_or_neither() {
        let of = LedgerLimits {
            money: limits(Some(100), None),
            tokens: limits(None, Some(50)),
        };
        let now = |money: u64, tokens: u64| LedgerSpent {
            money: spent(money, money),
            tokens: spent(0, tokens),
        };
        let amount = Amount::new;
        let (most, least) = (amount(60, 30), amount(10, 5));
        let (day, month) = (MoneySpan::Day, MoneySpan::Month);
        for payer in [Payer::Tenant, Payer::Agent] {
            for (spent, expected) in [
                (now(0, 0), LedgerRoom::Granted(most)),
                (now(70, 0), LedgerRoom::Granted(amount(30, 30))),
                (now(70, 41), LedgerRoom::Granted(amount(30, 9))),
                (now(70, 46), LedgerRoom::TokensSpent(payer, month, 50)),
                (now(91, 46), LedgerRoom::Spent(payer, day, 100)),
                (now(0, 0).with_aside(amount(0, 21)), LedgerRoom::Busy),
                (now(0, 0).with_aside(amount(41, 0)), LedgerRoom::Busy),
            ] {
                let account = LedgerAccount {
                    of: payer,
                    limits: of,
                    spent,
                };
                let room = check_ledger(&[account], request(most, least));
                assert_eq!(room, expected, "{spent:?}");
            }
        }
        let tokens = Limits {
            tokens_per_day: Some(7),
            ..Limits::default()
        };
        let expected = LedgerLimits {
            tokens: limits(Some(7), None),
            ..LedgerLimits::default()
        };
        assert_eq!(LedgerLimits::of(&tokens), Some(expected));
        assert_eq!(LedgerLimits::of(&Limits::default()), None);
    }

    #[test]
    fn what_is_wished_ahead_is_little_of_what_every_limit_leaves_or_is_not_given() {
        let amount = |usd| Amount::new(usd, 0);
        let limit = 100 * MONEY_AHEAD_PARTS;
        let ahead = |ahead| LedgerRequest {
            ahead,
            ..request(amount(10), amount(1))
        };
        let free = account(Payer::Tenant, limit);
        let mut used = account(Payer::Agent, limit);
        for (spent, aside, wished, granted) in [
            (0, 0, 90, 100),
            (0, 0, 91, 10),
            (0, 0, 0, 10),
            (10 * MONEY_AHEAD_PARTS, 10 * MONEY_AHEAD_PARTS, 70, 80),
            (10 * MONEY_AHEAD_PARTS, 10 * MONEY_AHEAD_PARTS, 71, 10),
            (limit - 5, 0, 1, 5),
        ] {
            used.spent.money = self::spent(spent, spent).with_aside(aside);
            for accounts in [[free, used], [used, free]] {
                let room = check_ledger(&accounts, ahead(amount(wished)));
                assert_eq!(
                    room,
                    LedgerRoom::Granted(amount(granted)),
                    "{spent} {wished}"
                );
            }
        }
        // Tokens are not limited.
        let room = check_ledger(&[free], ahead(Amount::new(90, u64::MAX)));
        assert_eq!(room, LedgerRoom::Granted(Amount::new(100, u64::MAX)));
        assert_eq!(amount(7).less(amount(7)), Some(Amount::default()));
        assert_eq!(amount(7).less(Amount::new(0, 1)), None);
    }

    #[test]
    fn a_call_of_an_agent_gets_what_both_accounts_leave() {
        let (day, amount) = (MoneySpan::Day, |usd| Amount::new(usd, 0));
        let now = |of, limit, spent: u64, aside: u64| LedgerAccount {
            spent: LedgerSpent {
                money: self::spent(spent, spent),
                ..LedgerSpent::default()
            }
            .with_aside(amount(aside)),
            ..account(of, limit)
        };
        let tenant = |spent, aside| now(Payer::Tenant, 100, spent, aside);
        let agent = |spent, aside| now(Payer::Agent, 50, spent, aside);
        for (tenant, agent, expected) in [
            (tenant(0, 0), agent(0, 0), LedgerRoom::Granted(amount(50))),
            (tenant(0, 0), agent(30, 0), LedgerRoom::Granted(amount(20))),
            (tenant(90, 0), agent(0, 0), LedgerRoom::Granted(amount(10))),
            // The agent's limit leaves room for the tenant's other calls.
            (tenant(0, 80), agent(30, 0), LedgerRoom::Granted(amount(20))),
            (tenant(0, 81), agent(30, 0), LedgerRoom::Busy),
            (tenant(0, 0), agent(30, 1), LedgerRoom::Busy),
            (
                tenant(96, 0),
                agent(46, 0),
                LedgerRoom::Spent(Payer::Tenant, day, 100),
            ),
            (
                tenant(0, 0),
                agent(46, 0),
                LedgerRoom::Spent(Payer::Agent, day, 50),
            ),
        ] {
            let room = check_ledger(&[tenant, agent], request(amount(60), amount(5)));
            assert_eq!(room, expected, "{tenant:?} {agent:?}");
        }
    }

    proptest! {
        /// Whatever calls of two agents cost up to what they were granted, no account exceeds its
        /// limit, and a call that is told to wait has another one to wait for.
        #[test]
        fn no_account_passes_its_limit(
            tenant in 0_u64..200,
            agents in [0_u64..200, 0_u64..200],
            calls in prop::collection::vec((0_usize..2, 0_u64..80, 0_u64..80, any::<bool>()), 0..60),
        ) {
            let mut own = account(Payer::Tenant, tenant);
            let mut of_agents = agents.map(|limit| account(Payer::Agent, limit));
            let mut open: Vec<(usize, u64)> = Vec::new();
            for (agent, most, cost, ends) in calls {
                let least = most / 4;
                let amount = |usd| Amount::new(usd, 0);
                match check_ledger(&[own, of_agents[agent]], request(amount(most), amount(least))) {
                    LedgerRoom::Granted(granted) => {
                        prop_assert!((least..=most).contains(&granted.nano_usd));
                        own.spent = own.spent.with_aside(granted);
                        of_agents[agent].spent = of_agents[agent].spent.with_aside(granted);
                        open.push((agent, granted.nano_usd));
                    }
                    LedgerRoom::Busy => prop_assert!(!open.is_empty()),
                    LedgerRoom::Spent(Payer::Tenant, ..) => {
                        prop_assert!(own.spent.money.day + least > tenant);
                    }
                    LedgerRoom::Spent(Payer::Agent, ..) => {
                        prop_assert!(of_agents[agent].spent.money.day + least > agents[agent]);
                    }
                    LedgerRoom::TokensSpent(..) => prop_assert!(false, "unlimited"),
                }
                if ends && let Some((agent, granted)) = open.pop() {
                    let cost = cost.min(granted);
                    for account in [&mut own, &mut of_agents[agent]] {
                        let money = &mut account.spent.money;
                        money.aside -= granted;
                        money.day += cost;
                        money.month += cost;
                    }
                }
                for account in [own].iter().chain(&of_agents) {
                    let MoneySpent { day, aside, .. } = account.spent.money;
                    prop_assert!(day + aside <= account.limits.money.day.unwrap_or_default());
                }
            }
        }
    }
}
