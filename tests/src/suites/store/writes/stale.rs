//! Stale writers, which must change nothing.

use mainspring_shared::id::LeaseToken;
use mainspring_shared::store::Inspect;

use super::super::prelude::*;
use super::{Write, dumped};

/// Why a writer is stale.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stale {
    /// Its grant was released, and the same process got another one.
    OldToken,
    /// Its process was declared dead, and another took over.
    DeadBoot,
    /// Its grant was lost with an unflushed commit, and its epoch reused.
    ReusedEpoch,
    /// Its grant is valid, but has seen later writes.
    OldNumber,
}

impl Stale {
    pub(super) const ALL: [Self; 4] = [
        Self::OldToken,
        Self::DeadBoot,
        Self::ReusedEpoch,
        Self::OldNumber,
    ];
}

pub(super) async fn changes_nothing(write: &Write, stale: Stale, store: &dyn Inspect) {
    let mut claimed = (write.prepare)(store).await.expect("a session was claimed");
    match stale {
        Stale::OldToken => {
            assert!(release(store, 30, &claimed).await);
            claim(store, 40, 1, 1, 2).await;
        }
        Stale::DeadBoot => {
            register_at(store, TTL + 1, 2).await;
            claim(store, TTL + 1, 2, 1, 2).await;
        }
        Stale::ReusedEpoch => claimed.lease.token = LeaseToken(token(8).0),
        // A release is checked by token only.
        Stale::OldNumber if write.name == "release_sessions" => return,
        Stale::OldNumber => {
            let mut later = changing(&claimed, 0, Vec::new());
            for n in 0..2 {
                later.lease.write = claimed.lease.write + n;
                let stored = store.at(time(50)).append_rounds(vec![later.clone()]).await;
                stored.expect("the store answers");
            }
        }
    }
    let before = dumped(store).await;
    (write.call)(store, Some(&claimed)).await;
    let message = format!("{} by {stale:?}", write.name);
    assert_eq!(dumped(store).await, before, "{message}");
}
