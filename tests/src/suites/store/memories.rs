//! The memories of agents.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use mainspring_shared::id::{ErasureId, MemoryId, SendId, SessionId, TenantId};
use mainspring_shared::memory::{Embedding, MemoryEntry, MemorySource, Namespace};
use mainspring_shared::store::{
    ChangeMemory, ClaimUnembedded, EraseMemories, IdempotencyKey, Inspect, ListMemories, NewMemory,
    SCAN_MAX, SaveMemory, SaveMemoryOutcome, SearchMemories, SetEmbedding,
};
use serde_json::{Map, json};
use uuid::Uuid;

use super::prelude::*;
use super::tenants::tenant;

/// Facts that people told, each with a later query for it.
pub const LABELLED: &[(&str, &str)] = &[
    (
        "Her daughter Mia was born in March 2019",
        "When is Mia's birthday?",
    ),
    (
        "He is allergic to peanuts and shellfish",
        "Does he have any allergies to food like peanuts?",
    ),
    (
        "She drinks her coffee black, without sugar",
        "How does she take coffee?",
    ),
    (
        "The dog is called Rex and is afraid of thunder",
        "What is the name of the dog?",
    ),
    (
        "He works as a nurse at the children's hospital",
        "Where does he work, at which hospital?",
    ),
    (
        "Her car is a blue Volvo from 2011",
        "What car does she drive, a Volvo?",
    ),
    (
        "He plays the cello in an orchestra on Tuesdays",
        "Which instrument does he play in the orchestra?",
    ),
    (
        "She moved from Lisbon to Oslo two years ago",
        "Where did she live before Oslo?",
    ),
    (
        "He supports the football club of his home town",
        "Is he interested in football?",
    ),
    (
        "Her favourite author is Ursula K. Le Guin",
        "Who is her favourite author?",
    ),
    (
        "He wants answers in short bullet points",
        "How long should answers be? Bullet points?",
    ),
    (
        "She is learning Japanese for a trip in autumn",
        "Why does she learn Japanese?",
    ),
    (
        "His sister Anna is a vegetarian",
        "What should I cook for Anna?",
    ),
    (
        "The heating in the flat is broken since Monday",
        "Is the heating working again?",
    ),
    (
        "She has a meeting with the bank on Friday at ten",
        "When is the meeting with the bank?",
    ),
    (
        "He takes medication for blood pressure in the morning",
        "Which medication does he take?",
    ),
    (
        "Her favourite colour is green",
        "Which colour would she like for the kitchen?",
    ),
    (
        "The wifi password is on a note under the router",
        "Where do I find the wifi password?",
    ),
    (
        "He is afraid of flying and prefers trains",
        "Should he take trains or fly to Rome?",
    ),
    (
        "She ran her first marathon in Berlin",
        "Has she ever run a marathon?",
    ),
    (
        "\u{5f7c}\u{5973}\u{559c}\u{6b22}\u{7eff}\u{8336}",
        "\u{7eff}\u{8336}",
    ),
    (
        "M\u{f6}chte im Fr\u{fc}hling einen Garten anlegen",
        "Was ist mit dem Garten?",
    ),
    (
        "Il d\u{e9}teste les champignons",
        "Peut-on lui servir des champignons ?",
    ),
    (
        "He signs contracts only after his lawyer read them",
        "Who reads contracts before he signs?",
    ),
];

fn ns(text: &str) -> Namespace {
    text.parse().expect("a namespace")
}

pub(super) fn id(n: u128) -> MemoryId {
    MemoryId(Uuid::from_u128(n))
}

pub(super) fn new(n: u128, namespace: &str, text: &str) -> NewMemory {
    NewMemory {
        id: id(n),
        namespace: ns(namespace),
        text: text.to_owned(),
        metadata: Map::new(),
        source: None,
        expires_at: None,
    }
}

fn saving(n: u128, namespace: &str, text: &str) -> SaveMemory {
    of_tenant(TenantId::DEFAULT, new(n, namespace, text))
}

fn of_tenant(tenant: TenantId, entry: NewMemory) -> SaveMemory {
    SaveMemory {
        tenant,
        entry,
        idempotency: None,
    }
}

async fn save(store: &dyn Inspect, ms: i64, item: SaveMemory) -> SaveMemoryOutcome {
    let saved = store.at(time(ms)).save_memory(item).await;
    saved.expect("the store answers")
}

pub(super) async fn enter(store: &dyn Inspect, n: u128, namespace: &str, text: &str) {
    let saved = save(store, n as i64, saving(n, namespace, text)).await;
    assert!(matches!(saved, SaveMemoryOutcome::Saved(_)), "{saved:?}");
}

fn question(namespace: &str, query: &str) -> SearchMemories {
    SearchMemories::new(TenantId::DEFAULT, ns(namespace), query, 5)
}

async fn found(store: &dyn Inspect, ms: i64, query: SearchMemories) -> Vec<MemoryId> {
    let found = store.at(time(ms)).search_memories(query).await;
    let found = found.expect("the store answers");
    found.into_iter().map(|entry| entry.id).collect()
}

async fn get(store: &dyn Inspect, ms: i64, id: MemoryId) -> Option<MemoryEntry> {
    let entry = store.at(time(ms)).get_memory(TenantId::DEFAULT, id).await;
    entry.expect("the store answers")
}

async fn listed(store: &dyn Inspect, namespace: Option<&str>) -> Vec<MemoryId> {
    let mut all = Vec::new();
    loop {
        let query = ListMemories {
            tenant: TenantId::DEFAULT,
            namespace: namespace.map(ns),
            before: all.last().copied(),
            limit: 2,
        };
        let page = store.at(time(1_000)).list_memories(query).await;
        let page = page.expect("the store answers");
        all.extend(page.data.into_iter().map(|entry| entry.id));
        if !page.more {
            return all;
        }
    }
}

pub(super) fn erasure(n: u128, namespace: &str, limit: u32) -> EraseMemories {
    EraseMemories {
        tenant: TenantId::DEFAULT,
        namespace: ns(namespace),
        erasure: ErasureId(Uuid::from_u128(n)),
        fingerprint: "of a person".to_owned(),
        by: "operator".to_owned(),
        limit,
    }
}

pub async fn an_entry_is_kept_whole(store: &dyn Inspect) {
    let entry = NewMemory {
        text: "likes \u{1f980} & \"tea\"\nand\\or 'cake'".to_owned(),
        metadata: Map::from_iter([("a".to_owned(), json!([1, null, {"b": "c"}]))]),
        source: Some(MemorySource {
            session_id: SessionId(Uuid::from_u128(7)),
            send_id: SendId(Uuid::from_u128(8)),
            from_seq: Some(3),
            to_seq: Some(5),
        }),
        expires_at: Some(time(500)),
        ..new(1, "user/42/a%2Fb", "")
    };
    let expected = entry.clone().at(time(10));
    let saved = save(store, 10, of_tenant(TenantId::DEFAULT, entry)).await;
    assert_eq!(saved, SaveMemoryOutcome::Saved(expected.clone()));
    assert_eq!(get(store, 20, id(1)).await, Some(expected));
}

pub async fn what_is_entered_twice_is_there_once(store: &dyn Inspect) {
    enter(store, 1, "user/1", "one").await;
    let again = save(store, 50, saving(1, "user/2", "other")).await;
    let first = get(store, 60, id(1)).await.expect("it is there");
    assert_eq!(again, SaveMemoryOutcome::Known(first.clone()));
    assert_eq!((first.text.as_str(), first.created_at), ("one", time(1)));
    let keyed = |n: u128, hash: u8| SaveMemory {
        idempotency: Some(IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "POST /v1/memories".to_owned(),
            key: "k".to_owned(),
            body_hash: [hash; 32],
        }),
        ..saving(n, "user/1", "two")
    };
    let made = save(store, 70, keyed(2, 1)).await;
    assert!(matches!(made, SaveMemoryOutcome::Saved(_)), "{made:?}");
    match save(store, 80, keyed(3, 1)).await {
        SaveMemoryOutcome::Known(entry) => assert_eq!(entry.id, id(2)),
        other => panic!("the same entry was expected: {other:?}"),
    }
    assert_eq!(
        save(store, 90, keyed(3, 2)).await,
        SaveMemoryOutcome::Mismatch
    );
    assert_eq!(get(store, 90, id(3)).await, None);
    let deleted = store.delete_memory(TenantId::DEFAULT, None, id(2)).await;
    assert!(deleted.expect("the store answers"));
    assert_eq!(save(store, 95, keyed(4, 1)).await, SaveMemoryOutcome::Gone);
}

pub async fn an_entry_is_changed_in_what_is_named(store: &dyn Inspect) {
    enter(store, 1, "user/1", "likes tea").await;
    let nothing = ChangeMemory {
        tenant: TenantId::DEFAULT,
        id: id(1),
        text: None,
        metadata: None,
        expires_at: None,
        source: None,
    };
    let change = async |ms: i64, item: ChangeMemory| {
        let changed = store.at(time(ms)).change_memory(item).await;
        changed.expect("the store answers")
    };
    let reworded = ChangeMemory {
        text: Some("likes coffee".to_owned()),
        ..nothing.clone()
    };
    let changed = change(20, reworded).await.expect("it is there");
    assert_eq!(changed.text, "likes coffee");
    assert_eq!(
        (changed.created_at, changed.updated_at),
        (time(1), time(20))
    );
    assert_eq!(found(store, 30, question("user/1", "tea")).await, []);
    let full_text = SearchMemories {
        scan_max: 0,
        ..question("user/1", "coffee")
    };
    assert_eq!(found(store, 30, full_text).await, [id(1)]);
    let marked = ChangeMemory {
        metadata: Some(Map::from_iter([("a".to_owned(), json!(1))])),
        expires_at: Some(Some(time(100))),
        ..nothing.clone()
    };
    let changed = change(40, marked).await.expect("it is there");
    assert_eq!(changed.text, "likes coffee");
    assert_eq!(get(store, 50, id(1)).await, Some(changed));
    let unknown = ChangeMemory {
        id: id(9),
        ..nothing.clone()
    };
    assert_eq!(change(60, unknown).await, None);
    assert_eq!(change(100, nothing).await, None);
}

pub async fn a_namespace_shows_what_is_below_it_and_nothing_beside_it(store: &dyn Inspect) {
    tenant(store, "blue").await;
    enter(store, 1, "user/4", "the cat").await;
    enter(store, 2, "user/4/work", "the cat at work").await;
    enter(store, 3, "user/42", "another cat").await;
    enter(store, 4, "team", "the cat of all").await;
    let other = of_tenant(TenantId(2), new(5, "user/4", "a cat elsewhere"));
    save(store, 5, other).await;
    assert_eq!(listed(store, Some("user/4")).await, [id(2), id(1)]);
    assert_eq!(listed(store, Some("user")).await, [id(3), id(2), id(1)]);
    assert_eq!(listed(store, None).await, [id(4), id(3), id(2), id(1)]);
    for scan_max in [0, SCAN_MAX] {
        let ask = |namespace: &str| SearchMemories {
            scan_max,
            ..question(namespace, "a cat")
        };
        let of = async |namespace: &str| -> BTreeSet<MemoryId> {
            found(store, 10, ask(namespace)).await.into_iter().collect()
        };
        assert_eq!(of("user/4").await, BTreeSet::from([id(1), id(2)]));
        assert_eq!(of("user/42").await, BTreeSet::from([id(3)]));
        assert_eq!(of("user/4/work").await, BTreeSet::from([id(2)]));
        assert_eq!(of("user/5").await, BTreeSet::new());
    }
    let foreign = store.get_memory(TenantId::DEFAULT, id(5)).await;
    assert_eq!(foreign.expect("the store answers"), None);
    let delete = async |within: &str, of: MemoryId| {
        let deleted = store
            .delete_memory(TenantId::DEFAULT, Some(ns(within)), of)
            .await;
        deleted.expect("the store answers")
    };
    assert!(!delete("user/4", id(3)).await);
    assert!(!delete("user/4", id(5)).await);
    assert!(delete("user/4", id(2)).await);
    assert!(!delete("user/4", id(2)).await);
}

pub async fn the_right_entry_is_among_the_first_five(store: &dyn Inspect) {
    for ((text, _), n) in LABELLED.iter().zip(1..) {
        enter(store, n, "user/1", text).await;
        // The same text in another namespace.
        enter(store, 1_000 + n, "user/2", text).await;
    }
    for scan_max in [0, SCAN_MAX] {
        let mut right = 0;
        for ((_, query), n) in LABELLED.iter().zip(1..) {
            let query = SearchMemories {
                scan_max,
                ..question("user/1", query)
            };
            let found = found(store, 5_000, query).await;
            assert!(found.iter().all(|one| one.0.as_u128() < 1_000), "{found:?}");
            right += usize::from(found.contains(&id(n)));
        }
        let all = LABELLED.len();
        assert!(right * 10 >= all * 9, "{right} of {all} were found");
    }
}

pub async fn every_store_gives_the_same_order(store: &dyn Inspect) {
    for (text, n) in ["tea", "tea and cake", "tea", "cake", "green tea with milk"]
        .iter()
        .zip(1..)
    {
        enter(store, n, "user/1", text).await;
    }
    let order = found(store, 50, question("user/1", "Tea?")).await;
    assert_eq!(order, [id(3), id(1), id(2), id(5)]);
    let few = SearchMemories {
        limit: 2,
        ..question("user/1", "cakes, TEAS")
    };
    assert_eq!(found(store, 50, few).await, [id(2), id(4)]);
    assert_eq!(found(store, 50, question("user/1", " ?! ")).await, []);
}

pub async fn questions_mean_nothing_to_a_database(store: &dyn Inspect) {
    enter(store, 1, "user/1", "plain").await;
    for query in [
        "\" OR 1=1 --",
        "' | !plain",
        "plain* NEAR(",
        "+plain -plain \"~@",
        "words:plain ^plain {plain}",
        "\\ $1 ? % _ \0",
    ] {
        for scan_max in [0, SCAN_MAX] {
            let ask = SearchMemories {
                scan_max,
                ..question("user/1", query)
            };
            let expected: &[MemoryId] = if query.contains("plain") {
                &[id(1)]
            } else {
                &[]
            };
            assert_eq!(found(store, 10, ask).await, expected, "{query:?}");
        }
    }
}

pub(super) fn embedding(model: &str, vector: &[f32]) -> Embedding {
    Embedding {
        model: model.to_owned(),
        vector: vector.to_vec(),
    }
}

async fn embed(store: &dyn Inspect, n: u128, text: &str, embedding: Embedding) -> bool {
    let item = SetEmbedding {
        tenant: TenantId::DEFAULT,
        id: id(n),
        text: text.to_owned(),
        embedding: Some(embedding),
        paid: None,
    };
    let set = store.set_embedding(item).await;
    set.expect("the store answers")
}

pub async fn vectors_find_what_words_do_not(store: &dyn Inspect) {
    for (n, text, vector) in [
        (1, "a kitten", [1.0, 0.1]),
        (2, "the tax return", [0.0, 1.0]),
        (3, "a cat", [0.9, 0.0]),
    ] {
        enter(store, n, "user/1", text).await;
        assert!(embed(store, n, text, embedding("m", &vector)).await);
    }
    for (n, text, vector) in [
        (4, "of another model", embedding("other", &[1.0, 0.0])),
        (5, "of another size", embedding("m", &[1.0, 0.0, 0.0])),
        (6, "of no direction", embedding("m", &[0.0, 0.0])),
    ] {
        enter(store, n, "user/1", text).await;
        assert!(embed(store, n, text, vector).await);
    }
    enter(store, 7, "user/1", "without a vector").await;
    enter(store, 8, "user/2", "a cat of somebody else").await;
    let theirs = embedding("m", &[1.0, 0.0]);
    assert!(embed(store, 8, "a cat of somebody else", theirs).await);
    let ask = SearchMemories {
        embedding: Some(embedding("m", &[1.0, 0.0])),
        ..question("user/1", "cat")
    };
    assert_eq!(found(store, 20, ask.clone()).await, [id(3), id(1)]);
    // A changed text is not found by the vector of the old one.
    let reworded = ChangeMemory {
        tenant: TenantId::DEFAULT,
        id: id(1),
        text: Some("a puppy".to_owned()),
        metadata: None,
        expires_at: None,
        source: None,
    };
    let changed = store.at(time(30)).change_memory(reworded).await;
    changed.expect("the store answers");
    assert_eq!(found(store, 40, ask.clone()).await, [id(3)]);
    // Nor does it accept a vector computed from the old one.
    let late = embed(store, 1, "a kitten", embedding("m", &[1.0, 0.1]));
    assert!(!late.await);
    assert_eq!(found(store, 40, ask.clone()).await, [id(3)]);
    assert!(embed(store, 1, "a puppy", embedding("m", &[1.0, 0.2])).await);
    assert_eq!(found(store, 40, ask).await, [id(3), id(1)]);
}

pub async fn entries_without_vectors_are_taken_by_one_at_a_time(store: &dyn Inspect) {
    let take = async |ms: i64, limit: u32| -> Vec<(MemoryId, String)> {
        let claim = ClaimUnembedded {
            lease: Duration::from_millis(100),
            limit,
        };
        let taken = store.at(time(ms)).claim_unembedded(claim).await;
        let taken = taken.expect("the store answers").into_iter();
        let mut taken: Vec<_> = taken.map(|one| (one.id, one.text)).collect();
        taken.sort();
        taken
    };
    let (one, two, three) = (
        (id(1), "one".to_owned()),
        (id(2), "two".to_owned()),
        (id(3), "three".to_owned()),
    );
    for (n, text) in [(1, "one"), (2, "two"), (3, "three")] {
        enter(store, n, "user/1", text).await;
    }
    // The ones waiting longest come first, and are leased to one taker at a time.
    assert_eq!(take(10, 2).await, [one.clone(), two.clone()]);
    assert_eq!(take(11, 2).await, [three]);
    assert_eq!(take(12, 2).await, []);
    assert!(embed(store, 1, "one", embedding("m", &[1.0])).await);
    // Entries still without a vector when the lease expires are taken again.
    assert_eq!(take(110, 2).await, [two]);
    assert!(embed(store, 2, "two", embedding("m", &[1.0])).await);
    assert!(embed(store, 3, "three", embedding("m", &[1.0])).await);
    assert_eq!(take(1_000, 5).await, []);
    // A changed text needs a new vector.
    let reworded = ChangeMemory {
        tenant: TenantId::DEFAULT,
        id: id(1),
        text: Some("uno".to_owned()),
        metadata: None,
        expires_at: None,
        source: None,
    };
    let changed = store.at(time(1_100)).change_memory(reworded).await;
    changed.expect("the store answers");
    assert_eq!(take(1_200, 5).await, [(id(1), "uno".to_owned())]);
}

pub async fn what_has_expired_is_not_found_and_goes(store: &dyn Inspect) {
    for n in 1..=3 {
        let entry = NewMemory {
            expires_at: (n < 3).then(|| time(100)),
            ..new(n, "user/1", "milk")
        };
        save(store, 10, of_tenant(TenantId::DEFAULT, entry)).await;
    }
    assert!(get(store, 99, id(1)).await.is_some());
    assert_eq!(get(store, 100, id(1)).await, None);
    for scan_max in [0, SCAN_MAX] {
        let ask = SearchMemories {
            scan_max,
            ..question("user/1", "milk")
        };
        assert_eq!(found(store, 100, ask).await, [id(3)]);
    }
    let expire = async |ms: i64| {
        let expired = store.at(time(ms)).expire_memories(1).await;
        expired.expect("the store answers")
    };
    assert_eq!(expire(99).await, 0);
    assert_eq!(
        (expire(100).await, expire(100).await, expire(100).await),
        (1, 1, 0)
    );
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.memories.len(), 1);
}

pub async fn a_namespace_is_erased_in_pieces_and_leaves_a_record(store: &dyn Inspect) {
    for n in 1..=5 {
        let namespace = if n == 5 { "user/1/below" } else { "user/1" };
        enter(store, n, namespace, "secret").await;
    }
    enter(store, 6, "user/10", "secret").await;
    let mut deleted = 0;
    loop {
        let step = store
            .at(time(50))
            .erase_memories(erasure(1, "user/1", 2))
            .await;
        let step = step.expect("the store answers");
        deleted += step.deleted;
        if !step.more {
            break;
        }
    }
    assert_eq!(deleted, 5);
    assert_eq!(listed(store, None).await, [id(6)]);
    for scan_max in [0, SCAN_MAX] {
        let ask = SearchMemories {
            scan_max,
            ..question("user", "secret")
        };
        assert_eq!(found(store, 60, ask).await, [id(6)]);
    }
    let dump = store.dump().await.expect("the store answers");
    let record = (TenantId::DEFAULT, "of a person".to_owned(), 5);
    assert_eq!(dump.memory_erasures, [record]);
}

pub async fn writers_at_once_enter_each_entry_once(store: &dyn Inspect) {
    let writers = (0..24_u128).map(|n| {
        let item = saving(1 + n % 4, "user/1", &format!("of writer {n}"));
        async move { save(store, 10, item).await }
    });
    let outcomes = join_all(writers).await;
    let saved = outcomes.iter();
    let saved = saved.filter(|outcome| matches!(outcome, SaveMemoryOutcome::Saved(_)));
    assert_eq!(saved.count(), 4);
    assert_eq!(listed(store, None).await.len(), 4);
}
