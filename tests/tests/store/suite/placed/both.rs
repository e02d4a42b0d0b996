//! A store over two databases whose contents tests can inspect.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::HOME;
use mainspring_shared::store::{Dump, Inspect, Result, Store};
use mainspring_shared::time::Timestamp;
use mainspring_store_placed::{Database, PlacedStore};
use mainspring_store_postgres::PostgresStore;

/// Name of the database that is not the home.
pub(crate) const AWAY: &str = "b";

/// Two databases, and one store over them.
#[derive(Debug)]
pub(crate) struct Both {
    home: PostgresStore,
    there: PostgresStore,
    placed: PlacedStore,
}

impl Both {
    pub(crate) fn new(home: PostgresStore, there: PostgresStore) -> Self {
        let stores: [Arc<dyn Store>; 2] = [Arc::new(home.clone()), Arc::new(there.clone())];
        Self::over(home, there, stores)
    }

    /// `stores` are the same databases with another clock.
    fn over(home: PostgresStore, there: PostgresStore, stores: [Arc<dyn Store>; 2]) -> Self {
        let [store, other] = stores;
        let database = |name: &str, store, placements: &PostgresStore| Database {
            name: name.to_owned(),
            store,
            placements: Arc::new(placements.clone()),
        };
        let placed = PlacedStore::new(
            database(HOME, store, &home),
            vec![database(AWAY, other, &there)],
        );
        Self {
            home,
            there,
            placed,
        }
    }

    pub(crate) async fn close(self) {
        self.home.close().await;
        self.there.close().await;
    }
}

#[async_trait]
impl Inspect for Both {
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        let stores: [Arc<dyn Store>; 2] = [self.home.at(now), self.there.at(now)];
        let (home, there) = (self.home.clone(), self.there.clone());
        Arc::new(Self::over(home, there, stores))
    }

    /// The other database holds the first tenant, whose rows come before those of others. Tables
    /// that every database has are dumped from the home.
    async fn dump(&self) -> Result<Dump> {
        let (home, mut all) = (self.home.dump().await?, self.there.dump().await?);
        all.boots = home.boots;
        all.tenants = home.tenants;
        all.sessions.extend(home.sessions);
        all.blobs.extend(home.blobs);
        all.lists.extend(home.lists);
        all.memories.extend(home.memories);
        all.extractions.extend(home.extractions);
        all.memory_erasures.extend(home.memory_erasures);
        all.runs.extend(home.runs);
        all.agents.extend(home.agents);
        all.skills.extend(home.skills);
        all.seat_limits.extend(home.seat_limits);
        all.seats.extend(home.seats);
        all.money_aside.extend(home.money_aside);
        all.money_days.extend(home.money_days);
        all.agent_money_aside.extend(home.agent_money_aside);
        all.agent_money_days.extend(home.agent_money_days);
        all.timers.extend(home.timers);
        Ok(all)
    }

    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>> {
        let mut all = self.home.rows_of(tenant).await?;
        for (table, count) in self.there.rows_of(tenant).await? {
            *all.entry(table).or_default() += count;
        }
        Ok(all)
    }
}

macro_rules! forward {
    ($noun:ident: $($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl mainspring_shared::store::$noun for Both {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                mainspring_shared::store::$noun::$name(&self.placed, $($arg),*).await
            })*
        }
    };
}

mainspring_shared::store_methods!(forward);
