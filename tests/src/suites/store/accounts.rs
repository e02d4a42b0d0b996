//! Bookkeeping for memory entries: who erased them, what their vectors cost, and where they came from.

use mainspring_shared::id::{ErasureId, SendId, SessionId, TenantId};
use mainspring_shared::memory::{MemorySource, PaidCall};
use mainspring_shared::store::{
    AfterSend, AuditOptions, ChangeMemory, EraseMemories, Erasure, Inspect, ListErasures,
    NewMemory, PaidVectors, SaveMemory, SetEmbedding, TenantUsageQuery,
};
use mainspring_shared::usage::{Purpose, Usage};
use uuid::Uuid;

use super::memories::{embedding, enter, erasure, id, new};
use super::prelude::*;

async fn erasures(store: &dyn Inspect, query: ListErasures) -> (Vec<Erasure>, bool) {
    let page = store.list_erasures(query).await;
    let page = page.expect("the store answers");
    (page.data, page.more)
}

pub async fn erasures_are_listed_without_what_they_erased(store: &dyn Inspect) {
    enter(store, 1, "user/1", "secret").await;
    for (n, fingerprint) in [(1, "of one"), (2, "of another"), (3, "of one")] {
        let item = EraseMemories {
            fingerprint: fingerprint.to_owned(),
            by: format!("key_{n}"),
            ..erasure(n, "user/1", 10)
        };
        let done = store.at(time(50 + n as i64)).erase_memories(item).await;
        done.expect("the store answers");
    }
    let all = ListErasures {
        tenant: TenantId::DEFAULT,
        fingerprint: None,
        before: None,
        limit: 2,
    };
    let (page, more) = erasures(store, all.clone()).await;
    let ids = |page: &[Erasure]| page.iter().map(|it| it.id.0.as_u128()).collect::<Vec<_>>();
    assert_eq!((ids(&page), more), (vec![3, 2], true));
    let rest = ListErasures {
        before: Some(page[1].id),
        ..all.clone()
    };
    let first = Erasure {
        id: ErasureId(Uuid::from_u128(1)),
        namespace_sha256: "of one".to_owned(),
        deleted: 1,
        by: Some("key_1".to_owned()),
        erased_at: time(51),
    };
    assert_eq!(erasures(store, rest).await, (vec![first], false));
    let of_one = ListErasures {
        fingerprint: Some("of one".to_owned()),
        ..all.clone()
    };
    assert_eq!(ids(&erasures(store, of_one).await.0), [3, 1]);
    let theirs = ListErasures {
        tenant: TenantId(2),
        ..all
    };
    assert_eq!(erasures(store, theirs).await, (Vec::new(), false));
}

/// A paid embedding call of `n` tokens.
pub fn paid_vectors(n: u128, payer: Option<(SessionId, SendId)>) -> PaidVectors {
    PaidVectors {
        id: Uuid::from_u128(n),
        payer,
        call: PaidCall {
            model: "vectors".to_owned(),
            usage: Usage {
                input_tokens: n as u64,
                ..Usage::default()
            },
        },
    }
}

async fn tenant_used(store: &dyn Inspect, tenant: TenantId) -> (u64, u64) {
    let query = TenantUsageQuery {
        tenant,
        from: Uuid::nil(),
        until: Uuid::max(),
    };
    let used = store.tenant_usage(query).await.expect("the store answers");
    (used.calls, used.usage.input_tokens)
}

/// Embeddings are charged to their send, or to the tenant if there is none; each call counts once.
pub async fn vectors_are_paid_for_once_by_whoever_there_is(store: &dyn Inspect) {
    register(store, 1).await;
    accept(store, 0, opening(1, 1)).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    let (calls, tokens) = tenant_used(store, TenantId::DEFAULT).await;
    enter(store, 1, "user/1", "likes tea").await;
    let payer = Some((key(1).session, send(1)));
    let item = SetEmbedding {
        tenant: TenantId::DEFAULT,
        id: id(1),
        text: "likes tea".to_owned(),
        embedding: Some(embedding("m", &[1.0])),
        paid: Some(paid_vectors(7, payer)),
    };
    for _ in 0..2 {
        let set = store.at(time(30)).set_embedding(item.clone()).await;
        assert!(set.expect("the store answers"));
    }
    let usage = store.session_usage(key(1)).await;
    let own = usage.expect("the store answers").expect("it is there").own;
    let embedded = own.iter().filter(|part| part.purpose == Purpose::Embed);
    let embedded: Vec<_> = embedded
        .map(|part| (part.calls, part.usage.input_tokens))
        .collect();
    assert_eq!(embedded, [(1, 7)]);
    // A call for an unknown send, a call for a text that has changed since, and a call that
    // produced nothing.
    let unknown = Some((key(1).session, send(9)));
    let other = SetEmbedding {
        text: "likes coffee".to_owned(),
        paid: Some(paid_vectors(11, unknown)),
        ..item.clone()
    };
    let failed = SetEmbedding {
        embedding: None,
        paid: Some(paid_vectors(13, None)),
        ..item
    };
    for item in [other, failed] {
        let set = store.at(time(40)).set_embedding(item).await;
        assert!(!set.expect("the store answers"));
    }
    for _ in 0..2 {
        let paid = vec![paid_vectors(17, None), paid_vectors(19, payer)];
        let done = store.pay_for_vectors(TenantId::DEFAULT, paid).await;
        done.expect("the store answers");
    }
    let sum = 7 + 11 + 13 + 17 + 19;
    assert_eq!(
        tenant_used(store, TenantId::DEFAULT).await,
        (calls + 5, tokens + sum)
    );
    assert_eq!(tenant_used(store, TenantId(2)).await, (0, 0));
    let found = store.audit(AuditOptions::default()).await;
    assert_eq!(found.expect("the store answers"), []);
}

/// Calls too old to be shown are deleted when newer ones are recorded.
pub async fn vectors_of_long_ago_are_forgotten(store: &dyn Inspect) {
    let day = |n: u128| Uuid::from_u128((n * 86_400_000) << 80);
    let paid = |n| PaidVectors {
        id: day(n),
        ..paid_vectors(1, None)
    };
    for days in [&[1, 60][..], &[90], &[102, 155]] {
        let paid = days.iter().copied().map(paid).collect();
        let done = store.pay_for_vectors(TenantId::DEFAULT, paid).await;
        done.expect("the store answers");
    }
    let query = |from, until| TenantUsageQuery {
        tenant: TenantId::DEFAULT,
        from,
        until,
    };
    let left = async |from, until| {
        let used = store.tenant_usage(query(from, until)).await;
        used.expect("the store answers").calls
    };
    assert_eq!(left(day(0), day(56)).await, 0);
    assert_eq!(left(day(56), day(1_000)).await, 4);
}

pub async fn a_changed_entry_keeps_where_it_came_from(store: &dyn Inspect) {
    let source = |n: u128| MemorySource {
        session_id: key(n).session,
        send_id: send(n),
        from_seq: Some(1),
        to_seq: Some(2),
    };
    let item = SaveMemory {
        tenant: TenantId::DEFAULT,
        entry: NewMemory {
            source: Some(source(1)),
            ..new(1, "user/1", "likes coffee")
        },
        idempotency: None,
    };
    store.save_memory(item).await.expect("the store answers");
    let changed = async |text: Option<&str>, from: Option<MemorySource>| {
        let change = ChangeMemory {
            tenant: TenantId::DEFAULT,
            id: id(1),
            text: text.map(str::to_owned),
            metadata: None,
            expires_at: None,
            source: from,
        };
        let changed = store.change_memory(change).await;
        changed.expect("the store answers").expect("it is there")
    };
    changed(Some("likes tea"), Some(source(2))).await;
    // Neither a repeat nor a change by a person adds a source.
    changed(Some("likes tea"), Some(source(2))).await;
    changed(None, None).await;
    let now = changed(Some("likes mate"), Some(source(3))).await;
    assert_eq!(now.source, Some(source(3)));
    assert_eq!(now.earlier_sources, [source(1), source(2)]);
    let read = store.get_memory(TenantId::DEFAULT, id(1)).await;
    assert_eq!(read.expect("the store answers"), Some(now));
    for n in 4..=30 {
        changed(None, Some(source(n))).await;
    }
    let now = changed(None, None).await;
    assert_eq!(now.earlier_sources.len(), 20);
    assert_eq!(now.earlier_sources.last(), Some(&source(29)));
}
