//! Money and tokens of agents that have limits of their own, in addition to their tenant's.

use mainspring_shared::agent::{AgentLimits, AgentName};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    DeleteTenantOutcome, DumpAside, Inspect, PublishAgent, PublishOutcome, ReserveMoney,
    ReserveMoneyOutcome, SettleMoney,
};
use mainspring_shared::tenant::{Amount, MONEY_AHEAD_PARTS, MoneySpan, Payer, Usd, money_day};
use uuid::Uuid;

use super::agents::{agent_key, publishing};
use super::money::{
    DAY, MICRO, MINE, asking, costing, granted, limit, reserve, settle, sound, spent_of, sweep,
};
use super::prelude::*;
use super::tenants::new;

const BUSY: ReserveMoneyOutcome = ReserveMoneyOutcome::Busy;

fn name(agent: &str) -> AgentName {
    agent_key(agent).name
}

pub(super) fn of_day(day: u64) -> AgentLimits {
    AgentLimits {
        usd_per_day: Some(Usd(day)),
        ..AgentLimits::default()
    }
}

/// Sets these limits for an agent of the default tenant.
pub(super) async fn limit_agent(store: &dyn Inspect, ms: i64, agent: &str, limits: AgentLimits) {
    let item = PublishAgent {
        limits: Some(limits),
        ..publishing(agent, "Do.")
    };
    let published = store.at(time(ms)).publish_agent(item).await;
    let published = published.expect("the store answers");
    assert!(matches!(published, PublishOutcome::Published { .. }));
}

/// A call by an agent that costs at most this many millionths of a dollar.
pub(super) fn asked_by(agent: &str, call: u128, most: u64) -> ReserveMoney {
    ReserveMoney {
        agent: Some(name(agent)),
        ..asking(call, most)
    }
}

/// An agent's account: spent in the day, spent in the month, and reserved.
async fn spent_by(store: &dyn Inspect, ms: i64, agent: &str) -> Option<(u64, u64, u64)> {
    spent_of(store, ms, Some(name(agent))).await
}

pub async fn a_call_counts_for_its_agent_and_for_the_tenant(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), None).await;
    limit_agent(store, 1, "support", of_day(50)).await;
    limit_agent(store, 1, "writer", of_day(80)).await;
    limit_agent(store, 1, "free", AgentLimits::default()).await;
    let asked = vec![
        asked_by("support", 1, 30),
        // Not enough is left until the first call is settled.
        asked_by("support", 2, 30),
        asked_by("support", 3, 20),
        asked_by("writer", 4, 40),
        // The tenant has ten left.
        asked_by("writer", 5, 11),
        asked_by("free", 6, 4),
        asked_by("unknown", 7, 4),
        asking(8, 2),
        asking(9, 1),
    ];
    let outcomes = reserve(store, 10, asked).await;
    let expected = [
        granted(30),
        BUSY,
        granted(20),
        granted(40),
        BUSY,
        granted(4),
        granted(4),
        granted(2),
        BUSY,
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(spent_of(store, 11, None).await, Some((0, 0, 100)));
    assert_eq!(spent_by(store, 11, "support").await, Some((0, 0, 50)));
    assert_eq!(spent_by(store, 11, "writer").await, Some((0, 0, 40)));
    assert_eq!(spent_by(store, 11, "free").await, None);
    let settled = vec![
        costing(1, Some(25)),
        costing(3, None),
        costing(4, Some(1)),
        costing(6, Some(0)),
        costing(8, Some(2)),
    ];
    settle(store, 20, settled).await;
    assert_eq!(spent_of(store, 21, None).await, Some((48, 48, 4)));
    assert_eq!(spent_by(store, 21, "support").await, Some((45, 45, 0)));
    assert_eq!(spent_by(store, 21, "writer").await, Some((1, 1, 0)));
    // The smaller of what the agent has left and what the tenant has left.
    let outcomes = reserve(store, 30, vec![asked_by("support", 10, 60)]).await;
    assert_eq!(outcomes, [granted(5)]);
    settle(store, 31, vec![costing(7, Some(4)), costing(10, Some(5))]).await;
    let outcomes = reserve(store, 32, vec![asked_by("writer", 11, 60)]).await;
    assert_eq!(outcomes, [granted(43)]);
    settle(store, 33, vec![costing(11, Some(0))]).await;
    // This agent has spent its limit; other agents of the tenant may continue.
    let none = ReserveMoneyOutcome::Spent(Payer::Agent, MoneySpan::Day, 50 * MICRO);
    let asked = vec![asked_by("support", 12, 5), asked_by("writer", 13, 43)];
    assert_eq!(reserve(store, 40, asked).await, [none, granted(43)]);
    settle(store, 41, vec![costing(13, None)]).await;
    let none = ReserveMoneyOutcome::Spent(Payer::Tenant, MoneySpan::Day, 100 * MICRO);
    for agent in ["support", "writer"] {
        let outcomes = reserve(store, 42, vec![asked_by(agent, 14, 5)]).await;
        assert_eq!(outcomes, [none], "{agent}");
    }
    sound(store, 50).await;
}

pub async fn an_agents_limit_holds_where_its_tenant_has_none(store: &dyn Inspect) {
    register(store, 1).await;
    limit_agent(store, 0, "support", of_day(50)).await;
    limit_agent(store, 0, "other", AgentLimits::default()).await;
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE]);
    let asked = vec![
        asked_by("support", 1, 40),
        asked_by("other", 2, 1_000),
        asking(3, 1_000),
        asked_by("support", 4, 11),
    ];
    let outcomes = reserve(store, 10, asked).await;
    let unlimited = ReserveMoneyOutcome::Unlimited;
    assert_eq!(outcomes, [granted(40), unlimited, unlimited, BUSY]);
    assert_eq!(spent_of(store, 11, None).await, None);
    settle(store, 20, vec![costing(1, Some(30)), costing(2, Some(7))]).await;
    assert_eq!(spent_by(store, 21, "support").await, Some((30, 30, 0)));
    let dump = store.dump().await.expect("the store answers");
    assert_eq!((dump.money_aside, dump.money_days), (vec![], vec![]));
    sound(store, 30).await;
}

pub async fn tokens_of_an_agent_are_its_own(store: &dyn Inspect) {
    register(store, 1).await;
    let limits = AgentLimits {
        tokens_per_day: Some(100),
        tokens_per_month: Some(150),
        ..AgentLimits::default()
    };
    limit_agent(store, 0, "support", limits).await;
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE]);
    let asked = |call: u128, tokens: u64| ReserveMoney {
        most: Amount::new(MICRO, tokens),
        least: Amount::new(0, 10),
        ..asked_by("support", call, 1)
    };
    let granted = |tokens| ReserveMoneyOutcome::Granted(Amount::new(MICRO, tokens));
    let outcomes = reserve(store, 10, vec![asked(1, 60), asked(2, 50)]).await;
    assert_eq!(outcomes, [granted(60), BUSY]);
    let cost = |call: u128, tokens: u64| SettleMoney {
        cost: Some(Amount::new(MICRO, tokens)),
        ..costing(call, None)
    };
    settle(store, 20, vec![cost(1, 55)]).await;
    assert_eq!(reserve(store, 21, vec![asked(3, 60)]).await, [granted(45)]);
    settle(store, 22, vec![cost(3, 40)]).await;
    let none = ReserveMoneyOutcome::TokensSpent(Payer::Agent, MoneySpan::Day, 100);
    assert_eq!(reserve(store, 23, vec![asked(4, 60)]).await, [none]);
    // The next day has only what is left of the month.
    let rest = reserve(store, DAY, vec![asked(5, 60)]).await;
    assert_eq!(rest, [granted(55)]);
    settle(store, DAY + 1, vec![cost(5, 50)]).await;
    let none = ReserveMoneyOutcome::TokensSpent(Payer::Agent, MoneySpan::Month, 150);
    assert_eq!(reserve(store, DAY + 2, vec![asked(6, 60)]).await, [none]);
    let spent = store.at(time(DAY + 3));
    let spent = spent.spent_money(MINE, Some(name("support"))).await;
    let tokens = spent.expect("answers").expect("it began").tokens;
    assert_eq!((tokens.day, tokens.month, tokens.aside), (50, 145, 0));
    sound(store, DAY + 4).await;
}

pub async fn calls_of_agents_that_race_never_pass_a_limit(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), None).await;
    limit_agent(store, 0, "support", of_day(40)).await;
    limit_agent(store, 0, "writer", of_day(90)).await;
    let race = |from: u128, ms: i64| async move {
        let calls = (from..from + 24).map(|n| async move {
            let items = vec![
                asked_by("support", 2 * n, 7),
                asked_by("writer", 2 * n + 1, 7),
            ];
            reserve(store, ms, items).await
        });
        let outcomes = futures::future::join_all(calls).await;
        let had = |place: usize| {
            let of = outcomes.iter().map(|it| it[place]);
            of.filter(|it| *it == granted(7)).count()
        };
        (had(0), had(1))
    };
    let (support, writer) = race(0, 10).await;
    assert!(support <= 5, "{support}");
    assert_eq!(support + writer, 14, "98 of 100");
    let all = (0..48).map(|n| costing(n, Some(3)));
    let settled = all.map(|item| settle(store, 20, vec![item]));
    futures::future::join_all(settled).await;
    assert_eq!(spent_of(store, 21, None).await, Some((42, 42, 0)));
    let (first, second) = (support as u64 * 3, writer as u64 * 3);
    let of_agents = (
        spent_by(store, 21, "support").await,
        spent_by(store, 21, "writer").await,
    );
    assert_eq!(
        of_agents,
        (Some((first, first, 0)), Some((second, second, 0)))
    );
    sound(store, 30).await;
}

pub async fn a_call_sets_aside_ahead_what_is_little_of_all_limits(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(30 * MONEY_AHEAD_PARTS), None).await;
    limit_agent(store, 0, "support", of_day(30 * MONEY_AHEAD_PARTS)).await;
    limit_agent(store, 0, "writer", of_day(15 * MONEY_AHEAD_PARTS)).await;
    let ahead = |agent, call, ahead: u64| ReserveMoney {
        ahead: Amount::new(ahead * MICRO, 0),
        ..asked_by(agent, call, 10)
    };
    let asked = vec![
        ahead("support", 1, 15),
        ahead("writer", 2, 15),
        ahead("writer", 3, 2),
        // Too little of the tenant's limit is left beyond what the others have reserved.
        ahead("support", 4, 20),
    ];
    for ms in [10, 11] {
        let outcomes = reserve(store, ms, asked.clone()).await;
        assert_eq!(
            outcomes,
            [granted(25), granted(10), granted(12), granted(10)]
        );
    }
    assert_eq!(spent_by(store, 12, "support").await, Some((0, 0, 35)));
    assert_eq!(spent_of(store, 12, None).await, Some((0, 0, 57)));
    // The actual cost is entered, or the whole reservation if the cost is unknown.
    settle(store, 20, vec![costing(1, Some(17)), costing(3, None)]).await;
    assert_eq!(spent_by(store, 21, "support").await, Some((17, 17, 10)));
    assert_eq!(spent_by(store, 21, "writer").await, Some((12, 12, 10)));
    assert_eq!(spent_of(store, 21, None).await, Some((29, 29, 20)));
    sound(store, 30).await;
}

pub async fn a_call_of_an_agent_reserves_and_settles_once(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), None).await;
    limit_agent(store, 0, "support", of_day(50)).await;
    let twice = vec![asked_by("support", 1, 30), asked_by("support", 1, 30)];
    for ms in [10, 11] {
        let outcomes = reserve(store, ms, twice.clone()).await;
        assert_eq!(outcomes, [granted(30), granted(30)]);
    }
    assert_eq!(spent_of(store, 12, None).await, Some((0, 0, 30)));
    assert_eq!(spent_by(store, 12, "support").await, Some((0, 0, 30)));
    // The reservation stands even if only one of the two limits remains.
    limit(store, 13, None, None).await;
    let outcomes = reserve(store, 14, vec![asked_by("support", 1, 50)]).await;
    assert_eq!(outcomes, [granted(30)]);
    for ms in [20, 21] {
        settle(store, ms, vec![costing(1, Some(10))]).await;
        assert_eq!(spent_by(store, 22, "support").await, Some((10, 10, 0)));
        assert_eq!(spent_of(store, 22, None).await, None);
    }
    sound(store, 30).await;
}

pub async fn what_a_dead_boot_has_set_aside_counts_for_its_agents(store: &dyn Inspect) {
    register(store, 1).await;
    register_at(store, 5_000, 2).await;
    limit(store, 0, Some(100), None).await;
    limit_agent(store, 0, "support", of_day(50)).await;
    let theirs = ReserveMoney {
        boot: boot(2),
        ..asked_by("support", 2, 15)
    };
    let asked = vec![asked_by("support", 1, 20), theirs, asking(3, 10)];
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(20), granted(15), granted(10)]);
    assert_eq!(sweep(store, TTL).await, 0, "both have their leases");
    assert_eq!(sweep(store, TTL + 1).await, 2, "each of them once");
    assert_eq!(spent_of(store, TTL + 2, None).await, Some((30, 30, 15)));
    let of_agent = spent_by(store, TTL + 2, "support").await;
    assert_eq!(of_agent, Some((20, 20, 15)));
    // A boot that was merely late can no longer change anything.
    settle(store, TTL + 3, vec![costing(1, Some(1))]).await;
    // Without the tenant's limit, the agent's still applies.
    limit(store, TTL + 4, None, None).await;
    let stopped = store.at(time(TTL + 5)).stop_boot(boot(2)).await;
    stopped.expect("the store answers");
    assert_eq!(sweep(store, TTL + 6).await, 1);
    assert_eq!(sweep(store, TTL + 7).await, 0);
    let of_agent = spent_by(store, TTL + 8, "support").await;
    assert_eq!(of_agent, Some((35, 35, 0)));
    sound(store, TTL + 9).await;
}

pub async fn an_agents_account_begins_with_nothing_and_goes_with_its_limit(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(1_000), None).await;
    // What an agent spent before it had a limit counts only for the tenant.
    reserve(store, 1, vec![asked_by("support", 1, 70)]).await;
    settle(store, 2, vec![costing(1, Some(70))]).await;
    limit_agent(store, 10, "support", of_day(50)).await;
    assert_eq!(spent_by(store, 11, "support").await, None);
    let outcomes = reserve(store, 12, vec![asked_by("support", 2, 40)]).await;
    assert_eq!(outcomes, [granted(40)]);
    settle(store, 13, vec![costing(2, Some(40))]).await;
    // Changing the amount, publishing a new version or setting other limits keeps the account.
    let others = AgentLimits {
        sends_open: Some(3),
        usd_per_month: Some(Usd(60)),
        ..AgentLimits::default()
    };
    limit_agent(store, 20, "support", others).await;
    let next = publishing("support", "Do well.");
    let published = store.at(time(21)).publish_agent(next).await;
    published.expect("the store answers");
    assert_eq!(spent_by(store, 22, "support").await, Some((40, 40, 0)));
    let outcomes = reserve(store, 23, vec![asked_by("support", 3, 40)]).await;
    assert_eq!(outcomes, [granted(20)]);
    // Without a money limit the account and its reservations are dropped; the tenant's account stays.
    let others = AgentLimits {
        sends_open: Some(3),
        ..AgentLimits::default()
    };
    limit_agent(store, 30, "support", others).await;
    assert_eq!(spent_by(store, 31, "support").await, None);
    assert_eq!(spent_of(store, 31, None).await, Some((110, 110, 20)));
    settle(store, 32, vec![costing(3, Some(15))]).await;
    assert_eq!(spent_of(store, 33, None).await, Some((125, 125, 0)));
    limit_agent(store, 40, "support", of_day(50)).await;
    let outcomes = reserve(store, 41, vec![asked_by("support", 4, 50)]).await;
    assert_eq!(outcomes, [granted(50)]);
    assert_eq!(spent_by(store, 42, "support").await, Some((0, 0, 50)));
    sound(store, 50).await;
}

pub async fn days_and_months_of_an_agent_are_kept_for_more_than_a_year(store: &dyn Inspect) {
    register(store, 1).await;
    let limits = AgentLimits {
        usd_per_day: Some(Usd(50)),
        usd_per_month: Some(Usd(80)),
        ..AgentLimits::default()
    };
    limit_agent(store, 0, "support", limits).await;
    let outcomes = reserve(store, DAY, vec![asked_by("support", 1, 60)]).await;
    assert_eq!(outcomes, [granted(50)]);
    // A call that began on one day counts for that day, and blocks others until it is settled.
    let outcomes = reserve(store, 2 * DAY, vec![asked_by("support", 2, 40)]).await;
    assert_eq!(outcomes, [BUSY]);
    settle(store, 2 * DAY, vec![costing(1, Some(45))]).await;
    let outcomes = reserve(store, 2 * DAY + 1, vec![asked_by("support", 2, 40)]).await;
    assert_eq!(outcomes, [granted(35)]);
    settle(store, 2 * DAY + 2, vec![costing(2, None)]).await;
    let spent = spent_by(store, 2 * DAY + 3, "support").await;
    assert_eq!(spent, Some((35, 80, 0)));
    let holder = name("support").holder();
    let days = async || store.dump().await.expect("answers").agent_money_days;
    let day = |ms: i64, spent: u64| (MINE, holder, money_day(time(ms)), spent * MICRO);
    assert_eq!(days().await, [day(DAY, 45), day(2 * DAY, 35)]);
    let late = 500 * DAY;
    reserve(store, late, vec![asked_by("support", 3, 1)]).await;
    assert_eq!(days().await, [day(late, 0)]);
    sound(store, late + 1).await;
}

pub async fn a_minute_of_an_agent_has_its_own_limit(store: &dyn Inspect) {
    const MINUTE: i64 = 60_000;
    register(store, 1).await;
    limit(store, 0, Some(1_000), None).await;
    let limits = AgentLimits {
        usd_per_minute: Some(Usd(100)),
        ..AgentLimits::default()
    };
    limit_agent(store, 0, "support", limits).await;
    let of_minute = async |ms| {
        let spent = store.at(time(ms));
        let spent = spent.spent_money(MINE, Some(name("support"))).await;
        let money = spent.expect("answers").expect("it began").money;
        (money.minute / MICRO, money.minute_aside / MICRO)
    };
    let asked = vec![
        asked_by("support", 1, 60),
        asked_by("support", 2, 40),
        asked_by("support", 3, 1),
        asking(4, 300),
    ];
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(60), granted(40), BUSY, granted(300)]);
    assert_eq!(of_minute(11).await, (0, 100));
    settle(store, 20, vec![costing(1, Some(25))]).await;
    assert_eq!(of_minute(21).await, (25, 40));
    let outcomes = reserve(store, 30, vec![asked_by("support", 5, 36)]).await;
    assert_eq!(outcomes, [BUSY]);
    let outcomes = reserve(store, 31, vec![asked_by("support", 5, 35)]).await;
    assert_eq!(outcomes, [granted(35)]);
    settle(store, 32, vec![costing(5, None)]).await;
    assert_eq!(of_minute(MINUTE - 1).await, (60, 40));
    // The next minute starts at zero, and grants the whole limit to a call that costs more.
    assert_eq!(of_minute(MINUTE).await, (0, 0));
    let asked = vec![asked_by("support", 6, 170), asked_by("support", 7, 1)];
    let outcomes = reserve(store, MINUTE + 1, asked).await;
    assert_eq!(outcomes, [granted(100), BUSY]);
    let settled = vec![costing(2, None), costing(4, None), costing(6, Some(90))];
    settle(store, MINUTE + 2, settled).await;
    assert_eq!(of_minute(MINUTE + 3).await, (90, 0));
    let spent = spent_by(store, MINUTE + 4, "support").await;
    assert_eq!(spent, Some((190, 190, 0)));
    // A call that costs more than the limit at the least is refused.
    let dear = ReserveMoney {
        least: Amount::new(101 * MICRO, 0),
        ..asked_by("support", 8, 120)
    };
    let none = ReserveMoneyOutcome::Spent(Payer::Agent, MoneySpan::Minute, 100 * MICRO);
    assert_eq!(reserve(store, MINUTE + 5, vec![dear]).await, [none]);
    sound(store, MINUTE + 10).await;
}

pub async fn the_accounts_of_agents_go_with_their_tenant(store: &dyn Inspect) {
    register(store, 1).await;
    let created = store.at(time(0)).create_tenant(new("blue"), None).await;
    created.expect("creates");
    let blue = TenantId(2);
    let mut key = agent_key("support");
    key.tenant = blue;
    let item = PublishAgent {
        key,
        limits: Some(of_day(50)),
        ..publishing("support", "Do.")
    };
    let published = store.at(time(1)).publish_agent(item).await;
    published.expect("the store answers");
    limit_agent(store, 1, "support", of_day(50)).await;
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE, blue]);
    // The agent of the same name in another tenant has its own account.
    let theirs = ReserveMoney {
        tenant: blue,
        ..asked_by("support", 1, 40)
    };
    let asked = vec![theirs.clone(), asked_by("support", 1, 30)];
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(40), granted(30)]);
    let holder = name("support").holder();
    let aside = |tenant, most: u64| {
        let aside = DumpAside {
            tenant,
            call: Uuid::from_u128(1),
            boot: boot(1),
            day: money_day(time(10)),
            amount: most * MICRO,
            at: time(10),
        };
        (holder, aside)
    };
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.agent_money_aside, [aside(MINE, 30), aside(blue, 40)]);
    let deleted = store.at(time(20)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("answers"), DeleteTenantOutcome::Deleted);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.agent_money_aside, [aside(MINE, 30)]);
    assert_eq!(dump.agent_money_days.len(), 1);
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE]);
    let unlimited = reserve(store, 21, vec![theirs]).await;
    assert_eq!(unlimited, [ReserveMoneyOutcome::Unlimited]);
}
