//! A tenant with a money or token limit: never exceeded, whatever races and whoever dies, and all
//! reservations are given back.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::budget::Price;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::model::FactsOverride;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason, WaitingOn};
use mainspring_shared::store::TenantPatch;
use mainspring_shared::tenant::{Limits, Usd};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, ModelBehaviour, World};

/// Millionths of a dollar that a token of an answer costs; questions cost nothing.
pub(super) const TOKEN: u64 = 1_000;

/// Maximum tokens of an answer, and the tokens that it actually has.
pub(super) const MOST: u64 = 50;
pub(super) const HAS: u64 = 5;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn world() -> World {
    let mut world = World::new().await;
    let facts = FactsOverride {
        price: Some(Price {
            input: 0.0,
            output: TOKEN as f64,
            ..Price::default()
        }),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world
}

/// Sets a daily limit worth this many tokens.
async fn limit(world: &World, tokens: Option<u64>) {
    let patch = TenantPatch {
        limits: Some(Limits {
            usd_per_day: tokens.map(|tokens| Usd(tokens * TOKEN)),
            ..Limits::default()
        }),
        ..TenantPatch::default()
    };
    let changed = world.store.update_tenant(TenantId::DEFAULT, patch).await;
    changed.expect("the store answers");
}

async fn sends(world: &World, texts: &[&str]) -> Vec<SendId> {
    let mut ids = Vec::new();
    for text in texts {
        let agent = AgentSpec {
            max_tokens: Some(50),
            ..AgentSpec::default()
        };
        let key = world.session(agent).await;
        ids.push(world.send(key, text).await);
    }
    ids
}

/// What the tenant has spent and what it has reserved, in tokens' worth.
async fn money(world: &World) -> (u64, u64) {
    let dump = world.dump().await;
    let nano = TOKEN * 1_000;
    let spent = dump.money_days.iter().map(|(_, _, spent)| spent / nano);
    let aside = dump.money_aside.iter().map(|aside| aside.amount / nano);
    (spent.sum(), aside.sum())
}

fn assert_spent(record: &SendRecord) {
    assert_eq!(record.status, SendStatus::Failed, "{record:#?}");
    assert_eq!(record.stop_reason, Some(StopReason::Budget));
    let error = record.error.as_ref().expect("it failed");
    assert_eq!(error.code, Code::BudgetExceeded);
    assert!(error.message.contains("usd_per_day"), "{}", error.message);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_to_a_cache_is_charged_at_its_own_price() {
    let mut world = World::new().await;
    let facts = FactsOverride {
        price: Some(Price {
            input: 1.0,
            output: 10.0,
            cache_read: Some(0.1),
            cache_write: Some(100.0),
            ..Price::default()
        }),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    world.script.set_behaviour(ModelBehaviour {
        caches: Some((2, 3)),
        ..ModelBehaviour::default()
    });
    limit(&world, Some(1_000)).await;
    let _worker = world.worker("w", world.store.clone());
    let ids = sends(&world, &["hello"]).await;
    let record = world.settle(&ids).await.remove(0);
    let usage = record.usage;
    assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (2, 3));
    let fresh = (usage.input_tokens - 5) as f64;
    let millionths = fresh + 2.0 * 0.1 + 3.0 * 100.0 + usage.output_tokens as f64 * 10.0;
    let cost = usage.cost_usd.expect("a price");
    assert!((cost * 1e6 - millionths).abs() < 1e-6, "{usage:?}");
    let dump = world.dump().await;
    let spent: u64 = dump.money_days.iter().map(|(_, _, spent)| spent).sum();
    assert_eq!(
        spent,
        (millionths * 1e3).round() as u64,
        "the ledger agrees"
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_send_waits_for_what_another_one_has_set_aside() {
    let world = world().await;
    limit(&world, Some(MOST + HAS)).await;
    let _worker = world.worker("w", world.store.clone());
    let ids = sends(&world, &["sleep 2000", "hello"]).await;
    world.pass(SECOND).await;
    assert_eq!(world.script.asked(), 1, "the other one has no room");
    assert_eq!(money(&world).await, (0, MOST));
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    assert_eq!(money(&world).await, (2 * HAS, 0));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_a_minute_waits_for_the_next_one_and_does_not_fail() {
    let world = world().await;
    let patch = TenantPatch {
        limits: Some(Limits {
            // Room for one call in flight and one that has ended.
            usd_per_minute: Some(Usd((MOST + HAS) * TOKEN)),
            ..Limits::default()
        }),
        ..TenantPatch::default()
    };
    let changed = world.store.update_tenant(TenantId::DEFAULT, patch).await;
    changed.expect("the store answers");
    let _worker = world.worker("w", world.store.clone());
    let ids = sends(&world, &["hello"; 7]).await;
    let records = world.settle(&ids).await;
    let mut by_minute = std::collections::BTreeMap::new();
    for record in records {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let ended = record.finished_at.expect("it ended");
        *by_minute.entry(ended.0 / 60_000).or_insert(0) += 1;
    }
    assert!(by_minute.values().all(|of| *of <= 2), "{by_minute:?}");
    assert_eq!(money(&world).await, (7 * HAS, 0));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_long_gives_its_slot_back_and_does_not_fail() {
    let world = world().await;
    limit(&world, Some(MOST)).await;
    let _worker = world.worker("w", world.store.clone());
    let ids = sends(&world, &["sleep 300000", "hello"]).await;
    let mut waited = false;
    for _ in 0..300 {
        world.pass(SECOND).await;
        let record = world.record(ids[1]).await;
        waited |= record.waiting_on == Some(WaitingOn::Retry);
        assert!(!record.status.is_final() || world.script.asked() > 1);
    }
    assert!(waited, "it was parked");
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    assert_eq!(money(&world).await, (2 * HAS, 0));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_spent_limit_ends_sends_with_its_name_and_a_raised_one_does_not() {
    let world = world().await;
    limit(&world, Some(MOST + HAS)).await;
    let _worker = world.worker("w", world.store.clone());
    // Three rounds, each of which is paid for.
    let ids = sends(&world, &["tools 2", "tools 20"]).await;
    let records = world.settle(&ids).await;
    assert_eq!(records[0].status, SendStatus::Completed, "{records:#?}");
    assert_spent(&records[1]);
    let (spent, aside) = money(&world).await;
    // Less is left than the minimum for an answer.
    assert!(spent <= MOST + HAS && spent + 16 > MOST + HAS, "{spent}");
    assert_eq!(aside, 0);
    let (answers, billed) = world.script.billed();
    assert_eq!(answers as u64 * HAS, spent, "{billed:?}");
    // No more model calls are made.
    let asked = world.script.asked();
    let ids = sends(&world, &["hello", "hello"]).await;
    world.settle(&ids).await.iter().for_each(assert_spent);
    assert_eq!(world.script.asked(), asked);
    limit(&world, Some(10 * MOST)).await;
    let ids = sends(&world, &["hello"]).await;
    let records = world.settle(&ids).await;
    assert_eq!(records[0].status, SendStatus::Completed, "{records:#?}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_worker_had_set_aside_counts_as_spent() {
    let never = FaultPlan {
        at: usize::MAX,
        fault: Fault::FailBefore,
    };
    let world = world().await;
    limit(&world, Some(10 * MOST)).await;
    let dies = Arc::new(Faulty::new(world.store.clone(), never));
    let _dies = world.worker("dies", dies.clone());
    let ids = sends(&world, &["sleep 3000"; 3]).await;
    world.pass(SECOND).await;
    assert_eq!(money(&world).await, (0, 3 * MOST));
    dies.kill();
    let _lives = world.worker("lives", world.store.clone());
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    }
    assert_eq!(money(&world).await, (3 * MOST + 3 * HAS, 0));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_broken_off_counts_at_its_most() {
    let world = world().await;
    limit(&world, Some(10 * MOST)).await;
    let _worker = world.worker("w", world.store.clone());
    let agent = AgentSpec {
        max_tokens: Some(50),
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let id = world.send(key, "sleep 60000").await;
    world.pass(SECOND).await;
    world.cancel(key, id).await;
    assert_eq!(world.settle(&[id]).await[0].status, SendStatus::Cancelled);
    world.pass(SECOND).await;
    assert_eq!(money(&world).await, (MOST, 0));
    world.audit().await;
}

/// Whatever fails once, and whichever reply is lost: everything is settled, and nothing twice.
#[tokio::test(start_paused = true)]
async fn a_fault_at_any_write_leaves_nothing_aside() {
    let mut struck = Vec::new();
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Outage] {
        for at in 0.. {
            let world = world().await;
            limit(&world, Some(10 * MOST)).await;
            let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let _worker = world.worker("w", faulty.clone());
            let ids = sends(&world, &["hello", "hello"]).await;
            for record in world.settle(&ids).await {
                assert_eq!(record.status, SendStatus::Completed, "{at}: {record:#?}");
            }
            world.pass(SECOND).await;
            assert_eq!(money(&world).await, (2 * HAS, 0), "{fault:?} at {at}");
            world.audit().await;
            let Some(method) = faulty.failed_method() else {
                break;
            };
            struck.push(method);
            if at > 40 {
                break;
            }
        }
    }
    for method in ["reserve_money", "settle_money"] {
        assert!(struck.contains(&method), "{struck:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_spends_what_there_is_and_no_more() {
    let world = world().await;
    limit(&world, Some(12 * MOST)).await;
    let _workers = ["a", "b", "c", "d"].map(|name| world.worker(name, world.store.clone()));
    let texts = vec!["sleep 500"; 200];
    let ids = sends(&world, &texts).await;
    let mut most = 0;
    loop {
        let (spent, aside) = money(&world).await;
        assert!(spent + aside <= 12 * MOST, "{spent} and {aside}");
        most = most.max(aside);
        let records = world
            .dump()
            .await
            .sessions
            .into_iter()
            .flat_map(|it| it.sends);
        if records.into_iter().all(|record| record.status.is_final()) {
            break;
        }
        world.pass(Duration::from_millis(250)).await;
    }
    assert!(most > 6 * MOST, "many run at once: {most}");
    let records = world.settle(&ids).await;
    let (done, spent): (Vec<_>, Vec<_>) = records
        .iter()
        .partition(|record| record.status == SendStatus::Completed);
    spent.into_iter().for_each(assert_spent);
    let answered = done.len() as u64;
    assert_eq!(money(&world).await, (answered * HAS, 0));
    assert!((12 * MOST - answered * HAS) < 16, "{answered}");
    world.audit().await;
}

/// Sets a daily limit of this many tokens.
async fn limit_tokens(world: &World, tokens: u64) {
    let patch = TenantPatch {
        limits: Some(Limits {
            tokens_per_day: Some(tokens),
            ..Limits::default()
        }),
        ..TenantPatch::default()
    };
    let changed = world.store.update_tenant(TenantId::DEFAULT, patch).await;
    changed.expect("the store answers");
}

/// The tokens that the tenant's calls used today, and those that they have reserved.
async fn tokens(world: &World) -> (u64, u64) {
    let spent = world.store.spent_money(TenantId::DEFAULT, None).await;
    let spent = spent.expect("the store answers").expect("a call was made");
    (spent.tokens.day, spent.tokens.aside)
}

#[tokio::test(start_paused = true)]
async fn tokens_are_bounded_where_nothing_has_a_price() {
    let world = World::new().await;
    limit_tokens(&world, 1_000_000).await;
    let _worker = world.worker("w", world.store.clone());
    let ids = sends(&world, &["sleep 2000"]).await;
    world.pass(SECOND).await;
    let (_, most) = tokens(&world).await;
    assert!(most > MOST, "the question and the longest answer: {most}");
    world.settle(&ids).await;
    let billed = |world: &World| {
        let billed = world.script.billed().1;
        billed.input_tokens + billed.output_tokens
    };
    assert_eq!(tokens(&world).await, (billed(&world), 0));
    let limit = billed(&world) + most + 100;
    limit_tokens(&world, limit).await;
    let ids = sends(&world, &["tools 20", "tools 20"]).await;
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Failed, "{record:#?}");
        assert_eq!(record.stop_reason, Some(StopReason::Budget));
        let error = record.error.as_ref().expect("it failed");
        assert_eq!(error.code, Code::BudgetExceeded);
        let message = &error.message;
        assert!(message.contains("limits.tokens_per_day"), "{message}");
    }
    assert!(world.script.billed().0 > 2, "some of it fits");
    assert_eq!(tokens(&world).await, (billed(&world), 0));
    assert!(billed(&world) <= limit, "{} of {limit}", billed(&world));
    limit_tokens(&world, billed(&world)).await;
    let asked = world.script.asked();
    let ids = sends(&world, &["hello"]).await;
    assert_eq!(world.settle(&ids).await[0].status, SendStatus::Failed);
    assert_eq!(world.script.asked(), asked, "nobody is asked any more");
    limit_tokens(&world, limit + 10 * most).await;
    let ids = sends(&world, &["hello"]).await;
    assert_eq!(world.settle(&ids).await[0].status, SendStatus::Completed);
    world.audit().await;
}
