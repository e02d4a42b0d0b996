//! An unavailable database affects only its own tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{AcceptOutcome, Error, Renewal, SweepReady};
use mainspring_store_postgres::PostgresStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::placed::world::{
    TTL, accept, claim, complete, moment, settings, to, together, with_world,
};

/// A proxy to a server that can be cut.
struct CutProxy {
    port: u16,
    is_cut: Arc<AtomicBool>,
    /// Whether nothing gets through any more.
    has_cut: Arc<AtomicBool>,
}

impl CutProxy {
    async fn to(address: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("has an address").port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let has_cut = Arc::new(AtomicBool::new(false));
        let (cut, told) = (is_cut.clone(), has_cut.clone());
        tokio::spawn(async move {
            let mut links = JoinSet::new();
            loop {
                let accepted = tokio::time::timeout(Duration::from_millis(20), listener.accept());
                let accepted = accepted.await;
                if cut.load(Ordering::Relaxed) {
                    links.shutdown().await;
                    told.store(true, Ordering::Relaxed);
                    continue;
                }
                let Ok(Ok((mut near, _))) = accepted else {
                    continue;
                };
                let address = address.clone();
                links.spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(address).await {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Self {
            port,
            is_cut,
            has_cut,
        }
    }

    /// Cuts the proxy; returns once nothing gets through.
    async fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        while !self.has_cut.load(Ordering::Relaxed) {
            moment().await;
        }
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }

    /// The URL of a database, through this proxy.
    fn url(&self, url: &str) -> String {
        let (credentials, rest) = url.rsplit_once('@').expect("has a user");
        let (_, database) = rest.split_once('/').expect("has a database");
        format!("{credentials}@127.0.0.1:{}/{database}", self.port)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_database_is_away_the_tenants_of_others_go_on() {
    with_world("away", async |world| {
        let (_, rest) = world.urls[1].rsplit_once('@').expect("has a user");
        let (address, _) = rest.split_once('/').expect("has a database");
        let proxy = CutProxy::to(address.to_owned()).await;
        let behind = settings(&proxy.url(&world.urls[1]));
        let mut stores = world.stores.clone();
        let there = PostgresStore::open(&behind).await.expect("opens");
        stores.insert("b", there.clone());
        let placed = together(&stores);

        let (here, away) = (world.tenant("here").await, world.tenant("away").await);
        world.take(away, "b").await;
        let boot = crate::placed::world::new_boot();
        placed.register_boot(boot.clone()).await.expect("registers");
        let boot = boot.id;
        let (near, far) = (world.session(here).await, world.session(away).await);
        accept(&placed, far).await;
        let held = claim(&placed, boot, far).await;

        proxy.cut().await;
        let cut_at = Instant::now();
        let mut slowest = Duration::ZERO;
        while cut_at.elapsed() < Duration::from_secs(4) {
            let begin = Instant::now();
            // Both in one group, as a batch of clients' sends would be.
            let items = vec![to(near), to(far)];
            let outcomes = placed.accept_sends(boot, items).await.expect("answers");
            assert!(
                matches!(outcomes[0], AcceptOutcome::Accepted(_)),
                "{outcomes:?}"
            );
            assert_eq!(outcomes[1], AcceptOutcome::Locked);
            complete(&placed, &claim(&placed, boot, near).await).await;
            let renewed = placed.renew_boot(boot, TTL, 1).await.expect("renews");
            assert!(matches!(renewed, Renewal::Renewed { .. }));
            let ready = SweepReady {
                pool: None,
                older_than_ms: 0,
                after: None,
                limit: 10,
            };
            placed.sweep_ready(ready).await.expect("sweeps");
            slowest = slowest.max(begin.elapsed());
            moment().await;
        }
        assert!(slowest < Duration::from_secs(6), "{slowest:?}");
        // The clients of the tenant that is away repeat all the time. Nobody of theirs finds out for
        // all whether its database is back.
        let stop = tokio_util::sync::CancellationToken::new();
        let hammer = async {
            while !stop.is_cancelled() {
                let _ = placed.accept_sends(boot, vec![to(far)]).await;
                moment().await;
            }
        };
        let others = async {
            let begun = Instant::now();
            let mut slowest = Duration::ZERO;
            while begun.elapsed() < Duration::from_secs(3) {
                let begin = Instant::now();
                let outcomes = placed.accept_sends(boot, vec![to(near), to(far)]).await;
                let outcomes = outcomes.expect("answers");
                assert!(
                    matches!(outcomes[0], AcceptOutcome::Accepted(_)),
                    "{outcomes:?}"
                );
                slowest = slowest.max(begin.elapsed());
                // Else its queue would be full.
                complete(&placed, &claim(&placed, boot, near).await).await;
            }
            stop.cancel();
            slowest
        };
        let ((), slowest) = tokio::join!(hammer, others);
        assert!(slowest < Duration::from_millis(900), "{slowest:?}");
        let alone = placed.accept_sends(boot, vec![to(far)]).await;
        assert!(matches!(alone, Err(Error::Unavailable { .. })), "{alone:?}");

        proxy.mend();
        // It completes with its old grant: nobody declared it dead.
        loop {
            let ended = placed
                .complete_sends(vec![crate::placed::world::answer(&held)])
                .await;
            match ended.as_deref() {
                Ok([mainspring_shared::store::CompleteOutcome::Completed(_)]) => break,
                Ok([mainspring_shared::store::CompleteOutcome::Locked])
                | Err(Error::Unavailable { .. }) => {
                    moment().await;
                }
                other => panic!("not completed: {other:?}"),
            }
        }
        accept(&placed, far).await;
        there.close().await;
        world.assert_sound().await;
    })
    .await;
}

/// A worker that is cut off from one database must not go on with what others may have taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_one_database_does_not_renew_has_lapsed_for_its_tenants_only() {
    with_world("lapsed", async |world| {
        let (_, rest) = world.urls[1].rsplit_once('@').expect("has a user");
        let (address, _) = rest.split_once('/').expect("has a database");
        let proxy = CutProxy::to(address.to_owned()).await;
        let behind = settings(&proxy.url(&world.urls[1]));
        let mut stores = world.stores.clone();
        let there = PostgresStore::open(&behind).await.expect("opens");
        stores.insert("b", there.clone());
        let placed = together(&stores);
        let (here, away) = (world.tenant("here").await, world.tenant("away").await);
        world.take(away, "b").await;
        let boot = crate::placed::world::new_boot();
        placed.register_boot(boot.clone()).await.expect("registers");
        let (boot, ttl) = (boot.id, Duration::from_secs(3));
        let lapsed = || (placed.has_lapsed(boot, here), placed.has_lapsed(boot, away));
        // Both databases have renewed it, and the catalogue is known.
        accept(&placed, world.session(away).await).await;
        placed.renew_boot(boot, ttl, 1).await.expect("renews");
        assert_eq!(lapsed(), (false, false));
        proxy.cut().await;
        let cut_at = Instant::now();
        while !lapsed().1 {
            placed
                .renew_boot(boot, ttl, 1)
                .await
                .expect("one of them renews it");
            assert!(!lapsed().0);
            assert!(
                cut_at.elapsed() < ttl,
                "others may have its sessions by now"
            );
            moment().await;
        }
        proxy.mend();
        while lapsed().1 {
            placed.renew_boot(boot, ttl, 1).await.expect("renews");
            assert!(
                cut_at.elapsed() < Duration::from_secs(30),
                "it is not renewed again"
            );
            moment().await;
        }
        there.close().await;
    })
    .await;
}
