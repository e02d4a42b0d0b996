//! Vectors of agents' memories: computed after the save, and never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{ExtractMode, MemorySpec};
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::memory::{
    Embedded, Embedder, Embedding, MemoryError, PaidCall, VectorsMade,
};
use mainspring_shared::store::TenantUsageQuery;
use mainspring_shared::time::Clock;
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_tests::world::{Backing, Fault, FaultPlan, Faulty, World, alone};
use serde_json::json;
use uuid::Uuid;

use super::memory::{done, id, know, memory, personal, rememberer, session_of};

/// Embeddings that recognize animals, and can be made unavailable.
#[derive(Debug)]
struct Animals {
    clock: Arc<dyn Clock>,
    away: AtomicBool,
    asked: AtomicU32,
    /// Tokens of all answers that were billed.
    billed: AtomicU64,
}

#[async_trait]
impl Embedder for Animals {
    async fn embed(&self, texts: Vec<String>) -> Embedded {
        let paid = Some(paid(&texts, false));
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!texts[0].contains("panic"), "scripted");
        if self.away.load(Ordering::Relaxed) {
            self.clock.sleep(Duration::from_hours(1)).await;
        }
        if texts[0].contains("too long") {
            return Embedded::nothing(MemoryError::Refused {
                why: "scripted".to_owned(),
            });
        }
        // A refusal is quicker than real work.
        self.clock.sleep(Duration::from_millis(200)).await;
        let about = |text: &String| {
            let animal = ["kitten", "cat", "pet"]
                .iter()
                .any(|word| text.contains(word));
            let vector = if animal {
                vec![1.0, 0.0]
            } else {
                vec![0.0, 1.0]
            };
            let model = "animals".to_owned();
            Embedding { model, vector }
        };
        let tokens = paid.as_ref().map_or(0, |paid| paid.usage.input_tokens);
        self.billed.fetch_add(tokens, Ordering::Relaxed);
        Embedded {
            vectors: Ok(texts.iter().map(about).collect()),
            paid,
        }
    }

    fn expected(&self, texts: &[String]) -> PaidCall {
        paid(texts, true)
    }
}

/// A call that costs one token per word, at a dollar per million.
fn paid(texts: &[String], estimated: bool) -> PaidCall {
    let words = texts.iter().map(|text| text.split_whitespace().count());
    let input_tokens = words.sum::<usize>() as u64;
    PaidCall {
        model: "animals".to_owned(),
        usage: Usage {
            input_tokens,
            cost_usd: Some(input_tokens as f64 / 1e6),
            estimated,
            ..Usage::default()
        },
    }
}

/// A world whose workers compute vectors.
async fn of_animals() -> (World, Arc<Animals>) {
    of_animals_over(&Backing::Model).await
}

async fn of_animals_over(backing: &Backing) -> (World, Arc<Animals>) {
    let mut world = World::over(backing, |_, _, _| {}).await;
    let animals = Arc::new(Animals {
        clock: world.clock(),
        away: AtomicBool::new(false),
        asked: AtomicU32::new(0),
        billed: AtomicU64::new(0),
    });
    world.embedder = Some((animals.clone(), Duration::from_millis(500)));
    (world, animals)
}

#[tokio::test(start_paused = true)]
async fn vectors_are_made_behind_the_save_whoever_saved() {
    let (world, animals) = of_animals().await;
    // Saved through the API, which computes no vectors; one text breaks any attempt to embed it.
    know(&world, 1, "user/ann", "Ann has a kitten").await;
    know(&world, 2, "user/ann", "panic").await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_secs(11)).await;
    let key = session_of(&world, 1, Some("ann"), rememberer(personal())).await;
    let spec = MemorySpec {
        extract: ExtractMode::AfterSend,
        ..personal()
    };
    let extracting = session_of(&world, 2, Some("ann"), rememberer(spec)).await;
    let facts = json!({"memories": [{"text": "her cat died in May"}]});
    let saving = world.send(extracting, &format!("extract {facts}")).await;
    done(&world, saving).await;
    // An entry that a worker itself saved does not wait for its next scan for others' entries.
    world.pass(Duration::from_secs(1)).await;
    let send = world.send(key, "what about a pet?").await;
    let found = memory(&done(&world, send).await);
    assert_eq!(found.entries.len(), 2, "{found:?}");
    assert!(!found.entries.contains(&id(2).to_string()), "{found:?}");
    // Entries with a vector are not embedded again; one that cannot get a vector is retried at its
    // own pace.
    let before = animals.asked.load(Ordering::Relaxed);
    world.pass(Duration::from_mins(6)).await;
    assert_eq!(animals.asked.load(Ordering::Relaxed), before + 1);
    world.audit().await;
}

#[test]
fn embeddings_that_are_away_neither_fail_nor_delay_a_send() {
    Backing::each(|backing| alone(without_embeddings(backing)));
}

async fn without_embeddings(backing: &Backing) {
    let (world, animals) = of_animals_over(backing).await;
    animals.away.store(true, Ordering::Relaxed);
    know(&world, 1, "user/ann", "Ann has a kitten called Rex").await;
    let _worker = world.worker("w", world.store.clone());
    let key = session_of(&world, 1, Some("ann"), rememberer(personal())).await;
    let begun = world.clock().monotonic();
    let rounds = json!([[["memory_save", {"text": "the cat likes fish"}]]]);
    let send = world
        .send(key, &format!("plan {rounds}\n\nwho is Rex?"))
        .await;
    let record = done(&world, send).await;
    let took = world
        .clock()
        .monotonic()
        .checked_sub(begun)
        .expect("time goes on");
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    // The word search answers, within the question's own time limit.
    let shown = memory(&record);
    assert_eq!(shown.entries, [id(1).to_string()]);
    let note = shown.note.expect("it says what was wrong");
    assert!(note.contains("only words were searched"), "{note}");
    // During the outage they are called a few times now and then, not once per entry.
    for n in 10..40 {
        know(&world, n, "user/bob", &format!("cat number {n}")).await;
    }
    let before = animals.asked.load(Ordering::Relaxed);
    world.pass(Duration::from_mins(5)).await;
    let asked = animals.asked.load(Ordering::Relaxed) - before;
    assert!(asked <= 100, "{asked} questions in five minutes");
    // Once they are back, everything gets its vector.
    animals.away.store(false, Ordering::Relaxed);
    world.pass(Duration::from_mins(8)).await;
    let ask = world.send(key, "which pet?").await;
    assert_eq!(memory(&done(&world, ask).await).entries.len(), 2);
    world.audit().await;
}

/// The embeddings are available, and still serve the texts that they accept.
#[tokio::test(start_paused = true)]
async fn texts_that_the_embeddings_refuse_hold_up_no_others() {
    let (world, animals) = of_animals().await;
    for n in 0..20 {
        know(&world, n, "user/bob", &format!("too long {n}")).await;
    }
    know(&world, 20, "user/ann", "Ann has a kitten").await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_secs(15)).await;
    let asked = animals.asked.load(Ordering::Relaxed);
    assert_eq!(asked, 21, "each once");
    let key = session_of(&world, 1, Some("ann"), rememberer(personal())).await;
    let send = world.send(key, "which pet?").await;
    assert_eq!(
        memory(&done(&world, send).await).entries,
        [id(20).to_string()]
    );
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_leaves_vectors_to_the_next() {
    for fault in Fault::ALL {
        let (world, _animals) = of_animals().await;
        for at in 0..3 {
            know(&world, at, "user/ann", &format!("kitten number {at}")).await;
            let plan = FaultPlan { at: 0, fault };
            let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
            world.worker(&format!("w{at}"), faulty.clone());
            world.pass(Duration::from_secs(30)).await;
            faulty.kill();
        }
        let _last = world.worker("last", world.store.clone());
        world.pass(Duration::from_mins(6)).await;
        let key = session_of(&world, 1, Some("ann"), rememberer(personal())).await;
        let send = world.send(key, "a pet?").await;
        assert_eq!(
            memory(&done(&world, send).await).entries.len(),
            3,
            "{fault:?}"
        );
        world.audit().await;
    }
}

/// Covers recall, saving and extraction, and entries that no send wrote.
#[tokio::test(start_paused = true)]
async fn what_vectors_cost_is_accounted_under_its_own_purpose() {
    let (world, animals) = of_animals().await;
    let _worker = world.worker("w", world.store.clone());
    let spec = MemorySpec {
        extract: ExtractMode::AfterSend,
        ..personal()
    };
    let key = session_of(&world, 1, Some("ann"), rememberer(spec)).await;
    let facts = json!({"memories": [{"text": "her cat died in May"}]});
    let rounds = json!([[["memory_save", {"text": "Ann has a kitten"}]]]);
    let text = format!("plan {rounds}\n\nabout a pet\n\nextract {facts}");
    let send = world.send(key, &text).await;
    let record = done(&world, send).await;
    world.pass(Duration::from_mins(1)).await;
    let usage = world.store.session_usage(key).await;
    let own = usage.expect("it answers").expect("it is there").own;
    let of_vectors = own.iter().find(|part| part.purpose == Purpose::Embed);
    let of_vectors = of_vectors.expect("vectors were paid for");
    assert_eq!(of_vectors.model, "animals");
    // Four calls: the input, what the extraction compared, and two entries.
    let (asked, billed) = (
        u64::from(animals.asked.load(Ordering::Relaxed)),
        animals.billed.load(Ordering::Relaxed),
    );
    assert_eq!((of_vectors.calls, asked), (4, 4), "{own:?}");
    assert_eq!(of_vectors.usage.input_tokens, billed);
    let dollars = of_vectors.usage.cost_usd.expect("it has a price");
    assert!((dollars - billed as f64 / 1e6).abs() < 1e-9, "{dollars}");
    // The calls that the send waited for are in its own sum.
    let dump = world.dump().await;
    let session = &dump.sessions[0];
    let rows = session.usage.iter().zip(&session.paid);
    let waited_for = rows.filter(|((_, round, _), _)| *round != -1);
    let waited_for: u64 = waited_for.map(|(_, usage)| usage.input_tokens).sum();
    assert_eq!(record.usage.input_tokens, waited_for);
    // An entry that no send wrote counts towards the tenant's usage.
    know(&world, 7, "user/bob", "Bob has a cat").await;
    world.pass(Duration::from_secs(30)).await;
    let all = TenantUsageQuery {
        tenant: TenantId::DEFAULT,
        from: Uuid::nil(),
        until: Uuid::max(),
    };
    let used = world.store.tenant_usage(all).await.expect("it answers");
    let rows: u64 = session.paid.iter().map(|usage| usage.input_tokens).sum();
    assert_eq!(used.calls, session.paid.len() as u64 + 1);
    assert_eq!(used.usage.input_tokens, rows + 4);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn vectors_for_callers_are_computed_by_the_worker_and_paid_by_their_tenant() {
    let (world, animals) = of_animals().await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_secs(1)).await;
    let pools = world.store.list_tools().await.expect("it answers");
    let published = pools.iter().flat_map(|pool| pool.models.iter().flatten());
    let names: Vec<_> = published.map(|models| models.vectors.as_deref()).collect();
    assert_eq!(names, [Some("animals")]);
    let made = world.vectors("w", "animals", &["one cat", "a car"]).await;
    let vectors = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
    assert_eq!(made, VectorsMade::Vectors { vectors, tokens: 4 });
    let refused = async |model: &str, text: &str| match world.vectors("w", model, &[text]).await {
        VectorsMade::Refused { code, .. } => code,
        made @ VectorsMade::Vectors { .. } => panic!("{made:?}"),
    };
    let away = Code::MemoryUnavailable;
    assert_eq!(refused("other", "cat").await, away);
    assert_eq!(refused("animals", "too long").await, Code::RequestInvalid);
    assert_eq!(refused("animals", "panic").await, away);
    // What a provider does not answer may be billed none the less.
    animals.away.store(true, Ordering::Relaxed);
    assert_eq!(refused("animals", "one more cat").await, away);
    let all = TenantUsageQuery {
        tenant: TenantId::DEFAULT,
        from: Uuid::nil(),
        until: Uuid::max(),
    };
    let used = world.store.tenant_usage(all).await.expect("it answers");
    assert_eq!((used.calls, used.usage.input_tokens), (2, 4 + 3));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn the_vector_of_a_question_is_paid_for_also_where_the_end_of_its_send_comes_too_late() {
    let (world, animals) = of_animals().await;
    let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", faulty.clone());
    let key = session_of(&world, 1, Some("ann"), rememberer(personal())).await;
    let send = world.send(key, "sleep 3000").await;
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(animals.asked.load(Ordering::Relaxed), 1);
    // The embeddings answer while the store is silent, and another worker takes over the session.
    faulty.pause();
    let _second = world.worker("second", world.store.clone());
    done(&world, send).await;
    faulty.wake();
    world.pass(Duration::from_mins(5)).await;
    let usage = world.store.session_usage(key).await;
    let own = usage.expect("it answers").expect("it is there").own;
    let of_vectors = own.iter().find(|part| part.purpose == Purpose::Embed);
    let of_vectors = of_vectors.expect("vectors were paid for");
    let asked = u64::from(animals.asked.load(Ordering::Relaxed));
    assert_eq!(asked, 2, "each worker asks");
    assert_eq!(of_vectors.calls, asked, "{own:?}");
    let billed = animals.billed.load(Ordering::Relaxed);
    assert_eq!(of_vectors.usage.input_tokens, billed);
    world.audit().await;
}
