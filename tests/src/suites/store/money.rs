//! Money and tokens: what a tenant's calls reserve and spend.

use mainspring_shared::agent::AgentName;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::store::{
    AcceptSend, AuditOptions, DeleteTenantOutcome, DumpAside, Inspect, NewTenant, ReserveMoney,
    ReserveMoneyOutcome, SettleMoney, TenantPatch,
};
use mainspring_shared::tenant::{
    Amount, LedgerSpent, Limits, MONEY_ASIDE_MS, MoneySpan, MoneySpent, Payer, Usd, money_day,
    money_month,
};
use uuid::Uuid;

use super::prelude::*;
use super::tenants::new;

/// The default tenant, which always exists.
pub(super) const MINE: TenantId = TenantId::DEFAULT;

/// A day in milliseconds. Cases start on the first day of a month.
pub(super) const DAY: i64 = 24 * 60 * 60 * 1_000;

/// A millionth of a dollar, the unit of limits, in billionths of a dollar.
pub(super) const MICRO: u64 = 1_000;

fn of(day: Option<u64>, month: Option<u64>) -> Limits {
    Limits {
        usd_per_day: day.map(Usd),
        usd_per_month: month.map(Usd),
        ..Limits::default()
    }
}

/// Limits the default tenant to this many millionths of a dollar.
pub(super) async fn limit(store: &dyn Inspect, ms: i64, day: Option<u64>, month: Option<u64>) {
    let patch = TenantPatch {
        limits: Some(of(day, month)),
        ..TenantPatch::default()
    };
    let changed = store.at(time(ms)).update_tenant(MINE, patch).await;
    changed.expect("the store answers");
}

/// A call by process 1 that costs at most this many millionths of a dollar.
pub(super) fn asking(call: u128, most: u64) -> ReserveMoney {
    ReserveMoney {
        tenant: MINE,
        agent: None,
        call: Uuid::from_u128(call),
        boot: boot(1),
        most: Amount::new(most * MICRO, 0),
        least: Amount::new(MICRO.min(most * MICRO), 0),
        ahead: Amount::default(),
    }
}

pub(super) fn costing(call: u128, cost: Option<u64>) -> SettleMoney {
    SettleMoney {
        tenant: MINE,
        call: Uuid::from_u128(call),
        cost: cost.map(|cost| Amount::new(cost * MICRO, 0)),
    }
}

/// The outcomes of reservations requested together.
pub(super) async fn reserve(
    store: &dyn Inspect,
    ms: i64,
    items: Vec<ReserveMoney>,
) -> Vec<ReserveMoneyOutcome> {
    let outcomes = store.at(time(ms)).reserve_money(items).await;
    outcomes.expect("the store answers")
}

pub(super) fn granted(most: u64) -> ReserveMoneyOutcome {
    ReserveMoneyOutcome::Granted(Amount::new(most * MICRO, 0))
}

pub(super) async fn settle(store: &dyn Inspect, ms: i64, items: Vec<SettleMoney>) {
    let settled = store.at(time(ms)).settle_money(items).await;
    settled.expect("the store answers");
}

pub(super) async fn sweep(store: &dyn Inspect, ms: i64) -> u32 {
    let swept = store.at(time(ms)).sweep_money(100).await;
    swept.expect("the store answers")
}

/// Spent in the day, spent in the month, and reserved, in millionths of a dollar.
async fn spent(store: &dyn Inspect, ms: i64) -> Option<(u64, u64, u64)> {
    spent_of(store, ms, None).await
}

/// The same for an agent, if one is given.
pub(super) async fn spent_of(
    store: &dyn Inspect,
    ms: i64,
    agent: Option<AgentName>,
) -> Option<(u64, u64, u64)> {
    let spent = store.at(time(ms)).spent_money(MINE, agent).await;
    let spent = spent.expect("the store answers");
    spent.map(|LedgerSpent { money, .. }| {
        let MoneySpent {
            day, month, aside, ..
        } = money;
        (day / MICRO, month / MICRO, aside / MICRO)
    })
}

pub(super) async fn sound(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn a_call_has_as_much_as_fits_besides_the_others(store: &dyn Inspect) {
    register(store, 1).await;
    let without = reserve(store, 1, vec![asking(1, 5)]).await;
    assert_eq!(without, [ReserveMoneyOutcome::Unlimited]);
    assert_eq!(spent(store, 1).await, None);
    limit(store, 2, Some(100), None).await;
    let asked = vec![asking(1, 60), asking(2, 30), asking(3, 20), asking(4, 10)];
    let busy = ReserveMoneyOutcome::Busy;
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(60), granted(30), busy, granted(10)]);
    assert_eq!(spent(store, 11).await, Some((0, 0, 100)));
    settle(store, 20, vec![costing(1, Some(25)), costing(2, None)]).await;
    assert_eq!(spent(store, 21).await, Some((55, 55, 10)));
    // Only part of the amount is left, and it is granted once the fourth call is settled.
    assert_eq!(reserve(store, 30, vec![asking(5, 50)]).await, [busy]);
    settle(store, 31, vec![costing(4, Some(0))]).await;
    assert_eq!(reserve(store, 32, vec![asking(5, 50)]).await, [granted(45)]);
    settle(store, 40, vec![costing(5, Some(45))]).await;
    let none = ReserveMoneyOutcome::Spent(Payer::Tenant, MoneySpan::Day, 100 * MICRO);
    assert_eq!(reserve(store, 50, vec![asking(6, 50)]).await, [none]);
    // Free calls continue.
    assert_eq!(reserve(store, 51, vec![asking(7, 0)]).await, [granted(0)]);
    sound(store, 60).await;
}

pub async fn calls_that_race_never_pass_a_limit(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), Some(1_000)).await;
    let race = |from: u128, ms: i64| async move {
        let calls = (from..from + 24).map(|n| async move {
            // Some are requested together.
            let items = vec![asking(2 * n, 7), asking(2 * n + 1, 7)];
            reserve(store, ms, items).await
        });
        let outcomes = futures::future::join_all(calls).await.concat();
        outcomes.iter().filter(|it| **it == granted(7)).count()
    };
    assert_eq!(race(0, 10).await, 14, "98 of 100");
    let all = (0..48).map(|n| costing(n, Some(3)));
    let settled = all.map(|item| settle(store, 20, vec![item]));
    futures::future::join_all(settled).await;
    assert_eq!(spent(store, 21).await, Some((42, 42, 0)));
    assert_eq!(race(100, 30).await, 8, "56 of 58");
    sound(store, 40).await;
}

pub async fn a_repeat_reserves_and_settles_once(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), None).await;
    for ms in [10, 11] {
        assert_eq!(reserve(store, ms, vec![asking(1, 60)]).await, [granted(60)]);
    }
    assert_eq!(spent(store, 12).await, Some((0, 0, 60)));
    for ms in [20, 21] {
        settle(store, ms, vec![costing(1, Some(10))]).await;
        assert_eq!(spent(store, 22).await, Some((10, 10, 0)));
    }
    // A call that was never reserved.
    settle(store, 30, vec![costing(9, Some(10))]).await;
    assert_eq!(spent(store, 31).await, Some((10, 10, 0)));
}

pub async fn what_a_dead_boot_has_set_aside_counts_as_spent(store: &dyn Inspect) {
    register(store, 1).await;
    register_at(store, 5_000, 2).await;
    limit(store, 0, Some(100), None).await;
    let theirs = ReserveMoney {
        boot: boot(2),
        ..asking(2, 30)
    };
    reserve(store, 10, vec![asking(1, 20), theirs]).await;
    assert_eq!(sweep(store, TTL).await, 0, "both have their leases");
    assert_eq!(sweep(store, TTL + 1).await, 1);
    assert_eq!(spent(store, TTL + 2).await, Some((20, 20, 30)));
    // A boot that was merely late can no longer change anything.
    settle(store, TTL + 3, vec![costing(1, Some(1))]).await;
    assert_eq!(spent(store, TTL + 4).await, Some((20, 20, 30)));
    let stopped = store.at(time(TTL + 5)).stop_boot(boot(2)).await;
    stopped.expect("the store answers");
    assert_eq!(sweep(store, TTL + 6).await, 1);
    assert_eq!(sweep(store, TTL + 7).await, 0);
    assert_eq!(spent(store, TTL + 8).await, Some((50, 50, 0)));
    sound(store, TTL + 9).await;
}

pub async fn what_is_set_aside_for_too_long_counts_as_spent(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), None).await;
    reserve(store, 10, vec![asking(1, 20)]).await;
    let renewed = MONEY_ASIDE_MS - 1_000;
    let late = store.at(time(renewed));
    let renew = late.renew_boot(boot(1), millis(TTL), 1).await;
    renew.expect("the store answers");
    assert_eq!(sweep(store, MONEY_ASIDE_MS + 10).await, 0);
    assert_eq!(sweep(store, MONEY_ASIDE_MS + 11).await, 1);
    assert_eq!(spent(store, MONEY_ASIDE_MS - 1).await, Some((20, 20, 0)));
}

pub async fn a_day_begins_with_nothing_but_what_is_under_way(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, Some(100), Some(250)).await;
    reserve(store, 10, vec![asking(1, 40), asking(2, 60)]).await;
    settle(store, 20, vec![costing(1, Some(40))]).await;
    let spent_up = ReserveMoneyOutcome::Busy;
    let asked = reserve(store, DAY - 1, vec![asking(3, 5)]).await;
    assert_eq!(asked, [spent_up]);
    // The other call is still in flight, and counts for its own day once it is settled.
    let outcomes = reserve(store, DAY, vec![asking(4, 41), asking(5, 40)]).await;
    assert_eq!(outcomes, [ReserveMoneyOutcome::Busy, granted(40)]);
    settle(
        store,
        DAY + 1,
        vec![costing(2, Some(50)), costing(5, Some(30))],
    )
    .await;
    assert_eq!(spent(store, DAY + 2).await, Some((30, 120, 0)));
    let days = store.dump().await.expect("the store answers").money_days;
    let today = money_day(time(DAY));
    assert_eq!(
        days,
        [(MINE, today - 1, 90 * MICRO), (MINE, today, 30 * MICRO)]
    );
    sound(store, DAY + 3).await;
}

pub async fn a_month_is_the_sum_of_its_days(store: &dyn Inspect) {
    register(store, 1).await;
    limit(store, 0, None, Some(100)).await;
    for n in 0..3 {
        let ms = DAY * i64::try_from(n).expect("few");
        assert_eq!(reserve(store, ms, vec![asking(n, 30)]).await, [granted(30)]);
        settle(store, ms, vec![costing(n, Some(30))]).await;
    }
    assert_eq!(
        reserve(store, 3 * DAY, vec![asking(8, 30)]).await,
        [granted(10)]
    );
    settle(store, 3 * DAY, vec![costing(8, Some(10))]).await;
    let none = ReserveMoneyOutcome::Spent(Payer::Tenant, MoneySpan::Month, 100 * MICRO);
    assert_eq!(
        reserve(store, 31 * DAY - 1, vec![asking(9, 30)]).await,
        [none]
    );
    assert_eq!(
        reserve(store, 31 * DAY, vec![asking(9, 30)]).await,
        [granted(30)]
    );
    assert_eq!(spent(store, 31 * DAY).await, Some((0, 0, 30)));
    settle(store, 31 * DAY + 1, vec![costing(9, None)]).await;
    // More than a year later, these days are forgotten.
    let late = 500 * DAY;
    reserve(store, late, vec![asking(10, 1)]).await;
    let days = store.dump().await.expect("the store answers").money_days;
    let begun: Vec<i64> = days.iter().map(|(_, day, _)| *day).collect();
    let (first, today) = (money_month(time(late)), money_day(time(late)));
    assert_eq!(begun, [first, today]);
}

/// A send at `ms` that cost a quarter of a dollar.
async fn paid(store: &dyn Inspect, ms: i64, n: u128) {
    let id = u128::from(time(ms).0.unsigned_abs()) << 80 | n;
    let item = AcceptSend {
        id: SendId(Uuid::from_u128(id)),
        ..opening(n, n)
    };
    accept(store, ms, item).await;
    let claimed = claim(store, ms, n, n, n).await;
    append(store, ms, round(&claimed, 0)).await;
}

pub async fn a_first_limit_begins_with_what_the_sends_of_the_month_cost(store: &dyn Inspect) {
    /// A quarter of a dollar in millionths.
    const QUARTER: u64 = 250_000;
    for (n, ms) in [(1, 0), (2, DAY), (3, 2 * DAY), (4, 2 * DAY + 1)] {
        register_at(store, ms, n).await;
        paid(store, ms, n).await;
    }
    limit(store, 2 * DAY + 10, Some(3 * QUARTER), Some(5 * QUARTER)).await;
    let asked = reserve(
        store,
        2 * DAY + 20,
        vec![asking(1, QUARTER), asking(2, QUARTER)],
    )
    .await;
    assert_eq!(asked, [granted(QUARTER), ReserveMoneyOutcome::Busy]);
    let expected = (2 * QUARTER, 4 * QUARTER, QUARTER);
    assert_eq!(spent(store, 2 * DAY + 21).await, Some(expected));
    settle(store, 2 * DAY + 22, vec![costing(1, Some(QUARTER))]).await;
    let none = ReserveMoneyOutcome::Spent(Payer::Tenant, MoneySpan::Day, 3 * QUARTER * MICRO);
    assert_eq!(
        reserve(store, 2 * DAY + 23, vec![asking(3, QUARTER)]).await,
        [none]
    );
    // A raised limit takes effect at once; lifting it drops the account, but not what sends have cost.
    limit(store, 2 * DAY + 30, Some(9 * QUARTER), None).await;
    let more = reserve(store, 2 * DAY + 31, vec![asking(3, QUARTER)]).await;
    assert_eq!(more, [granted(QUARTER)]);
    limit(store, 2 * DAY + 40, None, None).await;
    assert_eq!(spent(store, 2 * DAY + 41).await, None);
    settle(store, 2 * DAY + 42, vec![costing(3, Some(QUARTER))]).await;
    limit(store, 2 * DAY + 50, Some(9 * QUARTER), None).await;
    reserve(store, 2 * DAY + 51, vec![asking(4, 0)]).await;
    let expected = (2 * QUARTER, 4 * QUARTER, 0);
    assert_eq!(spent(store, 2 * DAY + 52).await, Some(expected));
}

pub async fn money_is_a_tenants_own_and_goes_with_it(store: &dyn Inspect) {
    register(store, 1).await;
    let blue = NewTenant {
        limits: of(Some(100), None),
        ..new("blue")
    };
    let created = store.at(time(0)).create_tenant(blue, None).await;
    created.expect("creates");
    let blue = TenantId(2);
    limit(store, 0, Some(50), None).await;
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE, blue]);
    let theirs = ReserveMoney {
        tenant: blue,
        ..asking(1, 80)
    };
    let asked = vec![theirs.clone(), asking(1, 50), theirs.clone()];
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(80), granted(50), granted(80)]);
    let aside = |tenant, most: u64| DumpAside {
        tenant,
        call: Uuid::from_u128(1),
        boot: boot(1),
        day: money_day(time(10)),
        amount: most * MICRO,
        at: time(10),
    };
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.money_aside, [aside(MINE, 50), aside(blue, 80)]);
    let deleted = store.at(time(20)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("answers"), DeleteTenantOutcome::Deleted);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.money_aside, [aside(MINE, 50)]);
    assert_eq!(dump.money_days.len(), 1);
    limit(store, 30, None, None).await;
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, []);
    let unlimited = reserve(store, 31, vec![theirs]).await;
    assert_eq!(unlimited, [ReserveMoneyOutcome::Unlimited]);
}

pub async fn tokens_are_set_aside_and_spent_beside_money(store: &dyn Inspect) {
    register(store, 1).await;
    let limits = Limits {
        usd_per_day: Some(Usd(100)),
        tokens_per_day: Some(1_000),
        tokens_per_month: Some(1_500),
        ..Limits::default()
    };
    let patch = TenantPatch {
        limits: Some(limits),
        ..TenantPatch::default()
    };
    let changed = store.at(time(0)).update_tenant(MINE, patch).await;
    changed.expect("the store answers");
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE]);
    let asking = |call: u128, most: u64, tokens: u64| ReserveMoney {
        most: Amount::new(most * MICRO, tokens),
        least: Amount::new(0, 10),
        ..asking(call, most)
    };
    let granted =
        |most: u64, tokens| ReserveMoneyOutcome::Granted(Amount::new(most * MICRO, tokens));
    let busy = ReserveMoneyOutcome::Busy;
    let asked = vec![
        asking(1, 10, 600),
        asking(2, 10, 500),
        asking(3, 95, 100),
        asking(4, 90, 400),
    ];
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(10, 600), busy, busy, granted(90, 400)]);
    let costing = |call: u128, tokens: Option<u64>| SettleMoney {
        cost: tokens.map(|tokens| Amount::new(MICRO, tokens)),
        ..costing(call, None)
    };
    settle(
        store,
        20,
        vec![costing(1, Some(250)), costing(4, Some(150))],
    )
    .await;
    let tokens = async |ms| {
        let spent = store.at(time(ms)).spent_money(MINE, None).await;
        let tokens = spent.expect("answers").expect("it began").tokens;
        (tokens.day, tokens.month, tokens.aside)
    };
    assert_eq!(tokens(21).await, (400, 400, 0));
    // The rest of the day is granted, then nothing; an unknown cost counts as the full reservation.
    let rest = reserve(store, 30, vec![asking(5, 1, 900)]).await;
    assert_eq!(rest, [granted(1, 600)]);
    settle(store, 31, vec![costing(5, None)]).await;
    let none = ReserveMoneyOutcome::TokensSpent(Payer::Tenant, MoneySpan::Day, 1_000);
    assert_eq!(reserve(store, 32, vec![asking(6, 1, 20)]).await, [none]);
    // The next day has only what is left of the month.
    let rest = reserve(store, DAY, vec![asking(7, 1, 900)]).await;
    assert_eq!(rest, [granted(1, 500)]);
    settle(store, DAY + 1, vec![costing(7, Some(495))]).await;
    assert_eq!(tokens(DAY + 2).await, (495, 1_495, 0));
    let none = ReserveMoneyOutcome::TokensSpent(Payer::Tenant, MoneySpan::Month, 1_500);
    assert_eq!(
        reserve(store, DAY + 3, vec![asking(8, 1, 20)]).await,
        [none]
    );
    sound(store, DAY + 4).await;
}

pub async fn a_minute_has_its_own_limit_and_calls_wait_for_the_next(store: &dyn Inspect) {
    const MINUTE: i64 = 60_000;
    register(store, 1).await;
    let limits = Limits {
        usd_per_minute: Some(Usd(100)),
        ..Limits::default()
    };
    let patch = TenantPatch {
        limits: Some(limits),
        ..TenantPatch::default()
    };
    let changed = store.at(time(0)).update_tenant(MINE, patch).await;
    changed.expect("the store answers");
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE]);
    let busy = ReserveMoneyOutcome::Busy;
    let of_minute = async |ms| {
        let spent = store.at(time(ms)).spent_money(MINE, None).await;
        let money = spent.expect("answers").expect("it began").money;
        (money.minute / MICRO, money.minute_aside / MICRO)
    };
    let asked = vec![asking(1, 60), asking(2, 40), asking(3, 1)];
    let outcomes = reserve(store, 10, asked).await;
    assert_eq!(outcomes, [granted(60), granted(40), busy]);
    assert_eq!(of_minute(11).await, (0, 100));
    settle(store, 20, vec![costing(1, Some(25))]).await;
    assert_eq!(of_minute(21).await, (25, 40));
    assert_eq!(reserve(store, 30, vec![asking(4, 36)]).await, [busy]);
    assert_eq!(reserve(store, 31, vec![asking(4, 35)]).await, [granted(35)]);
    settle(store, 32, vec![costing(4, None)]).await;
    assert_eq!(of_minute(MINUTE - 1).await, (60, 40));
    // The next minute starts at zero: a call in flight counts for the minute in which it began.
    assert_eq!(of_minute(MINUTE).await, (0, 0));
    let all = ReserveMoneyOutcome::Granted(Amount::new(100 * MICRO, 0));
    let outcomes = reserve(store, MINUTE + 1, vec![asking(5, 170), asking(6, 1)]).await;
    assert_eq!(outcomes, [all, busy]);
    settle(store, MINUTE + 2, vec![costing(2, Some(40))]).await;
    assert_eq!(of_minute(MINUTE + 3).await, (0, 100));
    settle(store, MINUTE + 4, vec![costing(5, Some(90))]).await;
    assert_eq!(of_minute(MINUTE + 5).await, (90, 0));
    // A request timed before the minute began still counts for it.
    let late = reserve(store, MINUTE - 1, vec![asking(7, 11), asking(8, 10)]).await;
    assert_eq!(late, [busy, granted(10)]);
    settle(store, MINUTE + 6, vec![costing(8, None)]).await;
    assert_eq!(of_minute(MINUTE + 7).await, (100, 0));
    // A call that costs more than the limit at the least is refused.
    let dear = ReserveMoney {
        least: Amount::new(101 * MICRO, 0),
        ..asking(9, 120)
    };
    let none = ReserveMoneyOutcome::Spent(Payer::Tenant, MoneySpan::Minute, 100 * MICRO);
    assert_eq!(reserve(store, MINUTE + 8, vec![dear]).await, [none]);
    assert_eq!(spent(store, MINUTE + 9).await, Some((200, 200, 0)));
    sound(store, MINUTE + 10).await;
}

pub async fn a_limit_of_tokens_alone_begins_with_what_the_sends_of_the_month_took(
    store: &dyn Inspect,
) {
    for (n, ms) in [(1, 0), (2, DAY)] {
        register_at(store, ms, n).await;
        paid(store, ms, n).await;
    }
    let used = mainspring_shared::store::TenantUsageQuery::accepted(MINE, time(0), time(3 * DAY));
    let used = store.tenant_usage(used).await.expect("answers").usage;
    let taken = used.input_tokens + used.output_tokens;
    assert!(taken > 0);
    let limits = Limits {
        tokens_per_month: Some(taken + 5),
        ..Limits::default()
    };
    let patch = TenantPatch {
        limits: Some(limits),
        ..TenantPatch::default()
    };
    let changed = store.at(time(DAY)).update_tenant(MINE, patch).await;
    changed.expect("the store answers");
    let limited = store.money_tenants().await.expect("the store answers");
    assert_eq!(limited, [MINE]);
    let item = ReserveMoney {
        most: Amount::new(7, 100),
        least: Amount::default(),
        ..asking(1, 1)
    };
    let outcomes = reserve(store, DAY + 10, vec![item]).await;
    let rest = ReserveMoneyOutcome::Granted(Amount::new(7, 5));
    assert_eq!(outcomes, [rest]);
    // Lifting the limit drops the account.
    limit(store, DAY + 20, None, None).await;
    let spent = store.at(time(DAY + 21)).spent_money(MINE, None).await;
    assert_eq!(spent.expect("the store answers"), None);
}
