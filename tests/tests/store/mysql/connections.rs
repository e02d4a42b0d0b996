//! Connections that fail in the ways in which they do not say so.

use std::time::Duration;

use mainspring_shared::id::TenantId;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, AfterSend, CompleteOutcome, Error, Inspect as _, ReadOnly, Renewal, TenantPatch,
};
use mainspring_store_core::SqlStore;
use mainspring_store_mysql::Settings;
use sqlx::{Connection as _, MySqlConnection};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::mysql::opened::{Opened, open};
use crate::mysql::proxy::Proxy;
use crate::mysql::steps::*;

/// A store that reaches its database through a proxy.
async fn behind_proxy() -> Option<(Opened, Proxy, SqlStore)> {
    let direct = open().await?;
    let proxy = Proxy::start(direct.place.url()).await;
    let store = mainspring_store_mysql::open(&Settings::new(proxy.url.clone())).await;
    Some((direct, proxy, store.expect("opens")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_was_not_answered_is_read_back() {
    let Some((direct, proxy, store)) = behind_proxy().await else {
        return;
    };
    register(&store, 0, 1).await;
    proxy.lose_commit();
    let accepted = accept(&store, 0, opening(1, 1)).await;
    assert!(proxy.has_lost());
    assert_eq!(accepted.step, 1);

    proxy.lose_commit();
    let claimed = claim(&store, 1, 1, 1, 7).await;
    assert!(proxy.has_lost());

    // Read beside the proxy: the snapshot of a dump ends with a COMMIT, too.
    let ids = vec![(key(1).tenant, send(1))];
    let record = direct.store.get_sends(ids).await.expect("reads").remove(0);
    let end = ending(&claimed, &record.expect("exists"), AfterSend::Release);
    let end = as_stored(&direct.store, end).await;
    proxy.lose_commit();
    let outcomes = store.at(time(2)).complete_sends(vec![end]).await;
    assert!(proxy.has_lost());
    let outcomes = outcomes.expect("answers");
    assert!(
        matches!(outcomes[..], [CompleteOutcome::Completed(_)]),
        "{outcomes:?}"
    );
    let dump = direct.store.dump().await.expect("dumps");
    assert_eq!(dump.sessions.len(), 1, "it is stored, and once");
    assert_eq!(dump.sessions[0].messages.len(), 2, "each of them once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_a_lost_connection_had_locked_is_free_at_once() {
    let Some((_direct, proxy, store)) = behind_proxy().await else {
        return;
    };
    accept(&store, 0, opening(1, 1)).await;
    let begun = Instant::now();
    proxy.lose_commit();
    accept(&store, 0, sending(2, 1)).await;
    accept(&store, 0, sending(3, 1)).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

/// How many callers wait for connections that are all in use.
fn waiting(store: &SqlStore) -> u32 {
    let all = store.connections();
    let writers = all.iter().find(|used| used.pool == "writers");
    writers.expect("there is one").waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_every_connection_that_writes_waits() {
    let Some(Opened { store, place }) = open().await else {
        return;
    };
    register(&store, 0, 1).await;
    let mut holder = MySqlConnection::connect(place.url())
        .await
        .expect("connects");
    for sql in ["START TRANSACTION", "SELECT * FROM tenants FOR UPDATE"] {
        sqlx::raw_sql(sql).execute(&mut holder).await.expect(sql);
    }
    let mut writes = JoinSet::new();
    for n in 0..100 {
        let store = store.clone();
        let patch = TenantPatch {
            name: Some(format!("name-{n}")),
            ..TenantPatch::default()
        };
        writes.spawn(async move { store.update_tenant(TenantId::DEFAULT, patch).await });
    }
    while waiting(&store) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        let renewal = store.renew_boot(boot(1), Duration::from_secs(10), 0).await;
        assert!(
            matches!(renewal, Ok(Renewal::Renewed { .. })),
            "{renewal:?}"
        );
    }
    assert!(waiting(&store) > 0, "nobody waited any more");
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut holder)
        .await
        .expect("ends");
    writes.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_fall_silent_stop_work_for_seconds_and_not_for_ever() {
    let Some((_direct, proxy, store)) = behind_proxy().await else {
        return;
    };
    register(&store, 0, 1).await;
    let renew = async || store.renew_boot(boot(1), Duration::from_secs(10), 0).await;
    renew().await.expect("renews");
    accept(&store, 0, opening(1, 1)).await;
    proxy.silence();
    let begun = Instant::now();
    // A process renews its lease all the time, which finds the silence for all its connections.
    let accepting = async {
        loop {
            let items = vec![sending(2, 1)];
            match store.at(time(1)).accept_sends(SCHEDULER, items).await {
                Ok(outcomes) => break outcomes,
                Err(Error::Unavailable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    let (_, outcomes) = tokio::join!(renew(), accepting);
    assert!(
        matches!(outcomes[0], AcceptOutcome::Accepted(_)),
        "{outcomes:?}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    store.check().await.expect("reads, too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_server_that_was_demoted_are_not_used_once_there_is_another() {
    let Some((_direct, proxy, store)) = behind_proxy().await else {
        return;
    };
    accept(&store, 0, opening(1, 1)).await;
    proxy.demote(true);
    let several = |from: u128| {
        let writes = (from..from + 12).map(|n| {
            let store = store.clone();
            async move {
                store
                    .at(time(1))
                    .accept_sends(SCHEDULER, vec![sending(n, 1)])
                    .await
            }
        });
        futures::future::join_all(writes)
    };
    // All connections of the pool lead to the old server.
    let mut refused = 0;
    for outcome in several(100).await {
        if let Err(Error::Unavailable { source }) = &outcome {
            refused += usize::from(source.is::<ReadOnly>());
        }
    }
    assert!(refused > 0 && proxy.refused() > 0);
    proxy.demote(false);
    let begun = Instant::now();
    for outcome in several(200).await {
        let outcome = outcome.expect("the name means a server that writes");
        assert!(
            matches!(outcome[0], AcceptOutcome::Accepted(_)),
            "{outcome:?}"
        );
    }
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}
