//! Schedulers whose clocks are an hour off: keys and money limits use the database's clock.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{ReserveMoney, SettleMoney};
use mainspring_shared::tenant::{Amount, money_day, money_day_begin};
use mainspring_shared::time::{Clock as _, Timestamp};
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked};
use crate::client::Answer;
use crate::world::{Scheduler, World};

const HOUR: i64 = 3_600_000;

/// Two schedulers, one an hour ahead of the database and one an hour behind.
async fn world() -> (World, [Scheduler; 2]) {
    let mut world = World::new().await;
    world.skew = HOUR;
    let early = locked(&world).await;
    world.skew = -HOUR;
    let late = locked(&world).await;
    (world, [early, late])
}

async fn key(api: &Scheduler, expires_at: Timestamp) -> String {
    let body = json!({ "name": "brief", "scopes": ["read"], "expires_at": expires_at });
    let made = ask(api, ROOT, "POST", "/v1/keys", &body).await.ok(201);
    made["key"].as_str().expect("the token").to_owned()
}

#[tokio::test]
async fn keys_expire_by_the_databases_clock() {
    let (world, schedulers) = world().await;
    let now = world.store.now().await.expect("the store answers");
    let half_an_hour = key(&schedulers[0], Timestamp(now.0 + HOUR / 2)).await;
    let brief = key(&schedulers[1], now.after(Duration::from_secs(2))).await;
    for api in &schedulers {
        ask(api, &half_an_hour, "GET", "/v1/sessions", &Value::Null)
            .await
            .ok(200);
        ask(api, &brief, "GET", "/v1/sessions", &Value::Null)
            .await
            .ok(200);
    }
    let end = now.after(Duration::from_secs(2));
    while world.store.now().await.expect("the store answers")
        <= end.after(Duration::from_millis(100))
    {
        SystemClock::new().sleep(Duration::from_millis(50)).await;
    }
    for api in &schedulers {
        let answer = ask(api, &brief, "GET", "/v1/sessions", &Value::Null).await;
        answer.problem(401, "auth.invalid");
        ask(api, &half_an_hour, "GET", "/v1/sessions", &Value::Null)
            .await
            .ok(200);
    }
}

/// Sends until one is refused, which happens once the scheduler knows the limit.
async fn refused(api: &Scheduler) -> Answer {
    let body = json!({ "input": "more", "session": {} });
    for _ in 0..150 {
        let answer = ask(api, ROOT, "POST", "/v1/sends", &body).await;
        if answer.status != 202 {
            answer.problem(402, "limit.money");
            return answer;
        }
        SystemClock::new().sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing is refused");
}

/// Sets a limit of half a dollar and makes a call of the default tenant cost that much.
async fn spend(world: &World, api: &Scheduler, limit: &str) {
    let limits = json!({ "limits": { limit: 0.5 } });
    ask(api, ROOT, "PATCH", "/v1/tenants/ten_1", &limits)
        .await
        .ok(200);
    let most = Amount::new(500_000_000, 0);
    let call = uuid::Uuid::from_u128(7);
    let item = ReserveMoney {
        tenant: TenantId::DEFAULT,
        agent: None,
        call,
        boot: world.boot,
        most,
        least: most,
        ahead: Amount::default(),
    };
    let store = &world.store;
    store.reserve_money(vec![item]).await.expect("it answers");
    let settled = SettleMoney {
        tenant: TenantId::DEFAULT,
        call,
        cost: Some(most),
    };
    store.settle_money(vec![settled]).await.expect("it answers");
}

fn wait(answer: &Answer) -> i64 {
    let wait = answer.header("retry-after");
    wait.and_then(|text| text.parse().ok()).expect("seconds")
}

#[tokio::test]
async fn days_of_money_are_the_databases() {
    let (world, schedulers) = world().await;
    spend(&world, &schedulers[0], "usd_per_day").await;
    for api in &schedulers {
        let answer = refused(api).await;
        let policy = answer.header("ratelimit-policy");
        let expected = "\"usd-day\";q=500000;qu=\"micro-usd\";w=86400";
        assert_eq!(policy, Some(expected));
        let now = world.store.now().await.expect("the store answers");
        let tomorrow = money_day_begin(money_day(now) + 1);
        let left = i64::try_from(tomorrow.since(now).as_secs()).expect("a day");
        let off = wait(&answer) - left;
        assert!(off.abs() <= 5, "{off} s off");
    }
}

#[tokio::test]
async fn minutes_of_money_are_the_databases() {
    let (world, schedulers) = world().await;
    loop {
        let begun = world.store.now().await.expect("the store answers");
        spend(&world, &schedulers[0], "usd_per_minute").await;
        // Start early enough in a minute to ask both schedulers within it.
        if begun.0 % 60_000 < 30_000 {
            break;
        }
        SystemClock::new().sleep(Duration::from_secs(1)).await;
    }
    for api in &schedulers {
        let answer = refused(api).await;
        let policy = answer.header("ratelimit-policy");
        let expected = "\"usd-minute\";q=500000;qu=\"micro-usd\";w=60";
        assert_eq!(policy, Some(expected));
        let now = world.store.now().await.expect("the store answers");
        let left = 60 - now.0 % 60_000 / 1_000;
        let off = wait(&answer) - left;
        assert!(off.abs() <= 5, "{off} s off");
    }
}
