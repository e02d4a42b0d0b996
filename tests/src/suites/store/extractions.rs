//! Pending extractions from conversations.

use std::time::Duration;

use mainspring_shared::budget::Spent;
use mainspring_shared::id::{ErasureId, MemoryId, SendId, TenantId};
use mainspring_shared::store::{
    AfterSend, ChangeMemory, ClaimExtractions, EXTRACT_AGAIN_MS, EXTRACT_ROUND, EndExtraction,
    EraseMemories, Extraction, ExtractionSpec, Inspect, NewExtraction, NewMemory, SaveMemory,
    UsageRow,
};
use mainspring_shared::stored::Extra;
use mainspring_shared::usage::Purpose;
use serde_json::Map;
use uuid::Uuid;

use super::prelude::*;

const TOKEN: Uuid = Uuid::from_u128(0x70);

/// The extraction due for send 1 of session 1.
pub fn owed(namespace: &str) -> NewExtraction {
    NewExtraction {
        key: key(1),
        send_id: send(1),
        pool: "default".to_owned(),
        spec: ExtractionSpec {
            provider: "builtin".to_owned(),
            namespace: namespace.parse().expect("a namespace"),
            model: Some("cheap".to_owned()),
            spent: Spent::default(),
            ended: 0,
            refund: None,
            extra: Extra::default(),
        },
    }
}

/// A claim of everything that is due.
pub fn claiming(only: Option<(TenantId, SendId)>) -> ClaimExtractions {
    ClaimExtractions {
        pool: "default".to_owned(),
        only,
        token: TOKEN,
        lease: Duration::from_secs(1),
        attempts_max: 2,
        limit: 10,
    }
}

/// The end of the attempt with this token.
pub fn ending_with(token: Uuid) -> EndExtraction {
    EndExtraction {
        key: key(1),
        send_id: send(1),
        token,
        saved: vec![entry(1, "likes tea")],
        changed: Vec::new(),
        usage: vec![UsageRow {
            round: EXTRACT_ROUND,
            attempt: 1,
            model: "cheap".to_owned(),
            usage: cost(7),
        }],
        again_after: None,
        spec: owed("user/1").spec,
        refund: Spent::default(),
    }
}

fn entry(n: u128, text: &str) -> NewMemory {
    NewMemory {
        id: MemoryId(Uuid::from_u128(n)),
        namespace: "user/1".parse().expect("a namespace"),
        text: text.to_owned(),
        metadata: Map::new(),
        source: None,
        expires_at: None,
    }
}

async fn owe(store: &dyn Inspect, ms: i64, item: NewExtraction) {
    let owed = store.at(time(ms)).owe_extraction(item).await;
    owed.expect("the store answers");
}

async fn take(store: &dyn Inspect, ms: i64, item: ClaimExtractions) -> Vec<Extraction> {
    let taken = store.at(time(ms)).claim_extractions(item).await;
    taken.expect("the store answers")
}

async fn end(store: &dyn Inspect, ms: i64, item: EndExtraction) -> bool {
    let ended = store.at(time(ms)).end_extraction(item).await;
    ended.expect("the store answers")
}

/// Send 1 has completed.
async fn completed(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
}

#[expect(clippy::unnecessary_wraps, reason = "as the port gives it")]
fn mine() -> Option<(TenantId, SendId)> {
    Some((TenantId::DEFAULT, send(1)))
}

async fn left(store: &dyn Inspect) -> usize {
    let dump = store.dump().await.expect("the store answers");
    dump.extractions.len()
}

pub async fn an_extraction_waits_for_the_end_of_its_send(store: &dyn Inspect) {
    let claimed = running(store).await;
    owe(store, 15, owed("user/1")).await;
    owe(store, 16, owed("user/2")).await;
    assert_eq!(take(store, 17, claiming(mine())).await, []);
    let due = 17 + EXTRACT_AGAIN_MS;
    assert_eq!(take(store, due - 1, claiming(None)).await, []);
    assert_eq!(take(store, due, claiming(None)).await, []);
    complete(store, due + 1, ending(&claimed, AfterSend::Release)).await;
    let other_pool = ClaimExtractions {
        pool: "gpu".to_owned(),
        ..claiming(mine())
    };
    assert_eq!(take(store, due + 2, other_pool).await, []);
    let taken = take(store, due + 2, claiming(mine())).await;
    let expected = owed("user/1");
    assert_eq!(taken.len(), 1);
    assert_eq!(
        (taken[0].key, taken[0].send_id),
        (expected.key, expected.send_id)
    );
    assert_eq!((&taken[0].spec, taken[0].attempts), (&expected.spec, 1));
    assert_eq!(take(store, due + 3, claiming(mine())).await, []);
}

pub async fn an_attempt_is_stored_once_with_what_it_cost(store: &dyn Inspect) {
    completed(store).await;
    owe(store, 30, owed("user/1")).await;
    take(store, 40, claiming(mine())).await;
    let before = session_tokens(store).await;
    assert!(end(store, 60, ending_with(TOKEN)).await);
    assert!(!end(store, 70, ending_with(TOKEN)).await);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.memories.len(), 1);
    assert_eq!(dump.extractions, []);
    let rows = dump.sessions[0].usage.iter();
    assert_eq!(
        rows.filter(|(_, round, _)| *round == EXTRACT_ROUND).count(),
        1
    );
    assert!(session_tokens(store).await > before);
    let usage = store.session_usage(key(1)).await;
    let own = usage
        .expect("the store answers")
        .expect("the session is there")
        .own;
    let extracted = own.iter().filter(|part| part.purpose == Purpose::Extract);
    assert_eq!(extracted.map(|part| part.calls).sum::<u64>(), 1);
}

/// The attempts of the extractions that were charged.
async fn extracting_rows(store: &dyn Inspect) -> Vec<i32> {
    let dump = store.dump().await.expect("the store answers");
    let rows = dump.sessions.iter().flat_map(|session| &session.usage);
    let rows = rows.filter(|(_, round, _)| *round == EXTRACT_ROUND);
    rows.map(|(_, _, attempt)| *attempt).collect()
}

async fn session_tokens(store: &dyn Inspect) -> u64 {
    let usage = store
        .session_usage(key(1))
        .await
        .expect("the store answers");
    let own = usage.expect("the session is there").own;
    let purposes: Vec<Purpose> = own.iter().map(|part| part.purpose).collect();
    assert!(!purposes.contains(&Purpose::Fold), "{purposes:?}");
    own.iter()
        .map(|model| model.usage.input_tokens + model.usage.output_tokens)
        .sum()
}

pub async fn an_attempt_whose_worker_died_is_followed_by_another(store: &dyn Inspect) {
    completed(store).await;
    owe(store, 30, owed("user/1")).await;
    assert_eq!(take(store, 40, claiming(mine())).await.len(), 1);
    assert_eq!(take(store, 1_039, claiming(None)).await, []);
    let second = ClaimExtractions {
        token: Uuid::from_u128(2),
        ..claiming(None)
    };
    let taken = take(store, 1_040, second).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].attempts, 2);
    // The first worker reports late: only its cost is stored, once.
    for ms in [1_050, 1_051] {
        assert!(!end(store, ms, ending_with(TOKEN)).await);
    }
    assert_eq!(extracting_rows(store).await, [1]);
    let mut again = EndExtraction {
        saved: Vec::new(),
        again_after: Some(Duration::from_millis(500)),
        ..ending_with(Uuid::from_u128(2))
    };
    again.usage[0].attempt = 2;
    assert!(end(store, 1_060, again).await);
    assert_eq!(extracting_rows(store).await, [1, 2]);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.memories.len(), 0);
    assert_eq!(left(store).await, 1);
    // After the last attempt it is given up.
    assert_eq!(take(store, 1_559, claiming(None)).await, []);
    assert_eq!(left(store).await, 1);
    assert_eq!(take(store, 1_560, claiming(None)).await, []);
    assert_eq!(left(store).await, 0);
}

pub async fn an_entry_is_brought_up_to_date(store: &dyn Inspect) {
    completed(store).await;
    let item = SaveMemory {
        tenant: TenantId::DEFAULT,
        entry: entry(5, "likes coffee"),
        idempotency: None,
    };
    store
        .at(time(25))
        .save_memory(item)
        .await
        .expect("the store answers");
    owe(store, 30, owed("user/1")).await;
    take(store, 40, claiming(mine())).await;
    let item = EndExtraction {
        saved: Vec::new(),
        changed: vec![ChangeMemory {
            tenant: TenantId::DEFAULT,
            id: MemoryId(Uuid::from_u128(5)),
            text: Some("likes tea now".to_owned()),
            metadata: None,
            expires_at: None,
            source: None,
        }],
        ..ending_with(TOKEN)
    };
    assert!(end(store, 50, item).await);
    let dump = store.dump().await.expect("the store answers");
    let texts: Vec<_> = dump
        .memories
        .iter()
        .map(|(_, entry)| entry.text.as_str())
        .collect();
    assert_eq!(texts, ["likes tea now"]);
}

/// What a session reserved for an extraction but did not use is returned once no worker holds the
/// session.
pub async fn what_an_extraction_did_not_use_is_given_back(store: &dyn Inspect) {
    let claimed = running(store).await;
    let spent = |tokens| Spent {
        tokens,
        ..Spent::default()
    };
    let mut item = ending(&claimed, AfterSend::Release);
    item.totals.session = Some(spent(100));
    owe(store, 15, owed("user/1")).await;
    complete(store, 20, item).await;
    let session_spent = async || {
        let dump = store.dump().await.expect("the store answers");
        dump.sessions[0].hot.spent.expect("it is counted").tokens
    };
    take(store, 40, claiming(mine())).await;
    // A worker holds the session.
    accept(store, 45, sending(2, 1)).await;
    let next = claim(store, 46, 1, 1, 2).await;
    let item = EndExtraction {
        refund: spent(30),
        ..ending_with(TOKEN)
    };
    assert!(end(store, 50, item.clone()).await);
    assert_eq!((session_spent().await, left(store).await), (100, 1));
    // However long it takes, it is not given up after the usual number of attempts.
    let mut due = 50;
    let attempts_max = i64::from(claiming(None).attempts_max);
    for _ in 0..=attempts_max {
        due += EXTRACT_AGAIN_MS;
        let taken = take(store, due, claiming(None)).await;
        assert_eq!(taken[0].spec.refund, Some(spent(30)));
        assert!(end(store, due, item.clone()).await);
        assert_eq!((session_spent().await, left(store).await), (100, 1));
    }
    let mut rest = ending(&next, AfterSend::Release);
    rest.totals.session = Some(spent(110));
    complete(store, due + 10, rest).await;
    due += EXTRACT_AGAIN_MS;
    let taken = take(store, due, claiming(None)).await;
    assert_eq!(taken[0].spec.refund, Some(spent(30)));
    let settled = EndExtraction {
        saved: Vec::new(),
        usage: Vec::new(),
        ..item
    };
    assert!(end(store, due + 1, settled.clone()).await);
    assert_eq!((session_spent().await, left(store).await), (80, 0));
    assert!(!end(store, due + 2, settled).await);
    assert_eq!(session_spent().await, 80);
}

pub async fn what_failed_or_is_gone_is_not_extracted(store: &dyn Inspect) {
    let _ = running(store).await;
    owe(store, 15, owed("user/1")).await;
    let deleted = store
        .at(time(20))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(take(store, 30, claiming(mine())).await, []);
    assert_eq!(left(store).await, 0);
}

pub async fn nothing_is_stored_for_a_deleted_session(store: &dyn Inspect) {
    completed(store).await;
    owe(store, 30, owed("user/1")).await;
    take(store, 40, claiming(mine())).await;
    let at = store.at(time(50));
    let deleted = at.delete_session(key(1), boot(SCHEDULER)).await;
    deleted.expect("the store answers");
    assert!(!end(store, 60, ending_with(TOKEN)).await);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!((dump.memories.len(), dump.extractions.len()), (0, 0));
    assert_eq!(extracting_rows(store).await, [0; 0]);
}

pub async fn an_erased_namespace_takes_what_is_owed_along(store: &dyn Inspect) {
    completed(store).await;
    owe(store, 30, owed("user/1/work")).await;
    take(store, 40, claiming(mine())).await;
    let erase = EraseMemories {
        tenant: TenantId::DEFAULT,
        namespace: "user/1".parse().expect("a namespace"),
        erasure: ErasureId(Uuid::from_u128(1)),
        fingerprint: "print".to_owned(),
        limit: 10,
        by: "operator".to_owned(),
    };
    let erased = store.at(time(50)).erase_memories(erase).await;
    erased.expect("the store answers");
    assert!(!end(store, 60, ending_with(TOKEN)).await);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!((dump.memories.len(), dump.extractions.len()), (0, 0));
    // The call was made, and its session still exists to be charged.
    assert_eq!(extracting_rows(store).await, [1]);
}
