//! Databases that answer, but cannot be used, or not for writing.

use std::time::Duration;

use mainspring_shared::id::BootId;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{Denial, Error, NewBoot, PROTOCOL, ReadOnly, Role};
use mainspring_shared::tool::Published;
use mainspring_store_postgres::{PostgresStore, Settings};
use tokio::time::Instant;

use crate::postgres::world::{World, at_server, id, to, with_world};

/// How many writes run at once: as many as there are connections for them.
const AT_ONCE: usize = 8;

async fn writes(world: &World) -> Vec<Result<(), Error>> {
    let writes = (0..AT_ONCE).map(|_| async {
        let boot = NewBoot {
            id: BootId(id()),
            role: Role::Worker,
            name: "w".to_owned(),
            pool: "default".to_owned(),
            concurrency: 4,
            ttl: Duration::from_mins(1),
            protocol: PROTOCOL,
            tools: Published::default(),
        };
        world.store.register_boot(boot).await
    });
    futures::future::join_all(writes).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_read_only_for_a_while_is_used_as_soon_as_it_writes() {
    with_world("read_only", async |world| {
        let key = world.session().await;
        let boot = world.boot_now().await;
        let renew = async || world.store.renew_boot(boot, Duration::from_mins(1), 0).await;
        let database = world.settings.url.rsplit_once('/').expect("it names one").1;
        let set = |what: &str| at_server(format!("ALTER DATABASE {database} {what}"));
        let cut = || {
            at_server(format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
            ))
        };
        set("SET default_transaction_read_only = on").await;
        cut().await;
        // All pools fill with connections that take no writes.
        let mut refused = 0;
        for _ in 0..3 {
            for outcome in writes(world).await {
                if let Err(Error::Unavailable { source }) = &outcome {
                    refused += usize::from(source.is::<ReadOnly>());
                }
            }
            let _ = renew().await;
        }
        assert!(refused > 0, "writes were refused");
        let told = world.store.check().await.expect("it answers").writable();
        assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");

        set("RESET default_transaction_read_only").await;
        let begun = Instant::now();
        for _ in 0..3 {
            for outcome in writes(world).await {
                outcome.expect("the database takes writes");
            }
        }
        renew().await.expect("renews");
        world.send(1, to(key)).await;
        let told = world.store.check().await.expect("it answers").writable();
        told.expect("it is told");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_database_that_does_not_store_every_text_is_refused() {
    with_world("latin", async |world| {
        let name = format!("pgit_latin1_{}", std::process::id());
        at_server(format!(
            "CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .await;
        let (base, _) = world.settings.url.rsplit_once('/').expect("it names one");
        let opened = PostgresStore::open(&Settings::new(format!("{base}/{name}"))).await;
        at_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
        let error = opened.expect_err("its encoding is not UTF8");
        let refused = matches!(&error, Error::Denied { why: Denial::Encoding, source } if source.to_string().contains("LATIN1"));
        assert!(refused, "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn too_few_connections_for_this_process_are_told() {
    with_world("few", async |world| {
        let database = world.settings.url.rsplit_once('/').expect("it names one").1;
        let info = world.store.check().await.expect("answers");
        assert_eq!(info.connections_short, None);
        at_server(format!("ALTER DATABASE {database} CONNECTION LIMIT 6")).await;
        let info = world.store.check().await.expect("answers");
        assert_eq!(info.connections_short.map(|(allowed, _)| allowed), Some(6));
    })
    .await;
}
