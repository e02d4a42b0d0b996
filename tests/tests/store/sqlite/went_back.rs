//! A database that went back in time is noticed by the lease that it forgot.

use mainspring_shared::store::{Boots as _, Renewal};
use mainspring_store_core::SqlStore;

use super::opened::{Opened, execute, reachable};
use super::steps::*;

async fn renewed(store: &SqlStore) -> bool {
    let renewal = store
        .renew_boot(boot(1), std::time::Duration::from_secs(10), 0)
        .await;
    matches!(renewal.expect("the store answers"), Renewal::Renewed { .. })
}

#[tokio::test]
async fn a_lease_that_is_older_than_it_was_is_told() {
    let Some(Opened { store, place }) = reachable().await else {
        return;
    };
    register(&store, 0, 1).await;
    assert!(renewed(&store).await && renewed(&store).await);
    assert_eq!((store.went_back(), store.losses()), (None, 0));
    execute(&place, "UPDATE boots SET lease_until = lease_until - 500").await;
    assert!(renewed(&store).await);
    assert_eq!(store.went_back(), None, "a crash of the server may do that");
    execute(&place, "UPDATE boots SET lease_until = lease_until - 5000").await;
    assert!(renewed(&store).await);
    let told = store.went_back().expect("it went back");
    assert!(told.by.as_secs() >= 5, "{told:?}");
    assert_eq!(store.losses(), 1, "what was read before is not trusted");
    assert!(renewed(&store).await);
    assert_eq!(store.losses(), 1, "it is noticed once");
}

#[tokio::test]
async fn a_lease_that_was_never_there_is_told() {
    let Some(Opened { store, place }) = reachable().await else {
        return;
    };
    assert!(!renewed(&store).await);
    assert_eq!(store.went_back(), None, "it never was");
    register(&store, 0, 1).await;
    assert!(renewed(&store).await);
    execute(&place, "DELETE FROM boots").await;
    assert!(!renewed(&store).await);
    assert!(store.went_back().is_some());
    assert_eq!(store.losses(), 1);
}
