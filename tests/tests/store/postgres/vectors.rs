//! Memory vectors, with and without the server's pgvector extension.

use std::io::Write as _;

use mainspring_shared::id::MemoryId;
use mainspring_shared::memory::{Embedding, Namespace};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{NewMemory, SaveMemory, SearchMemories, SetEmbedding};
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings};
use serde_json::Map;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use crate::postgres::world::{TENANT, with_database};

/// Whether the server has the extension; prints a notice if it does not.
async fn available(url: &str) -> bool {
    let mut connection = PgConnection::connect(url).await.expect("connects");
    let asked = "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'";
    let count = connection
        .fetch_one(asked)
        .await
        .expect("the server answers");
    let count: i64 = count.get(0);
    if count == 0 {
        // Write to stderr directly: the harness shows printed output only when a test fails.
        let shown = std::io::stderr().write_all(b"SKIPPED: the server has no pgvector\n");
        shown.expect("standard error is open");
    }
    count > 0
}

/// Reproducible pseudo-random numbers between -1 and 1.
fn vector(seed: u64, size: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..size).map(|_| next()).collect()
}

fn namespace(text: &str) -> Namespace {
    text.parse().expect("a namespace")
}

async fn enter(store: &PostgresStore, n: u64, within: &str, size: usize) {
    let id = MemoryId(Uuid::from_u128(u128::from(n)));
    let entry = NewMemory {
        id,
        namespace: namespace(within),
        text: format!("entry {n}"),
        metadata: Map::new(),
        source: None,
        expires_at: None,
    };
    let item = SaveMemory {
        tenant: TENANT,
        entry,
        idempotency: None,
    };
    store.save_memory(item).await.expect("is saved");
    let set = SetEmbedding {
        tenant: TENANT,
        id,
        text: format!("entry {n}"),
        embedding: Some(Embedding {
            model: "m".to_owned(),
            vector: vector(n, size),
        }),
        paid: None,
    };
    assert!(store.set_embedding(set).await.expect("is stored"));
}

async fn found(store: &PostgresStore, within: &str, seed: u64, size: usize) -> Vec<MemoryId> {
    let mut ask = SearchMemories::new(TENANT, namespace(within), "", 50);
    ask.embedding = Some(Embedding {
        model: "m".to_owned(),
        vector: vector(seed, size),
    });
    let found = store.search_memories(ask).await.expect("is found");
    found.into_iter().map(|entry| entry.id).collect()
}

#[tokio::test]
async fn the_extension_finds_what_the_program_finds() {
    with_database("pgvector", async |url| {
        let without = Settings {
            pgvector: false,
            ..Settings::new(url.clone())
        };
        let exact = PostgresStore::open(&without).await.expect("opens");
        assert!(!exact.has_pgvector());
        for n in 0..20 {
            enter(&exact, n, "user/1", 24).await;
        }
        // The extension is added to a database that already has vectors.
        let inside = PostgresStore::open(&Settings::new(url.clone()))
            .await
            .expect("opens");
        assert_eq!(inside.has_pgvector(), available(&url).await);
        for n in 20..60 {
            enter(&inside, n, "user/1", 24).await;
        }
        // Entries written by a process that started without it, of another vector size, and of
        // another namespace.
        for n in 60..70 {
            enter(&exact, n, "user/1", 24).await;
            enter(&inside, 100 + n, "user/1", 8).await;
            enter(&inside, 200 + n, "user/12", 24).await;
        }
        let mut seen = 0;
        for seed in 1_000..1_020 {
            let by_program = found(&exact, "user/1", seed, 24).await;
            assert_eq!(found(&inside, "user/1", seed, 24).await, by_program);
            assert!(
                by_program.iter().all(|id| id.0.as_u128() < 100),
                "{by_program:?}"
            );
            seen += by_program.len();
        }
        assert!(seen > 20, "only {seen} were near at all");
        assert_eq!(found(&inside, "user/1", 30, 24).await[0].0.as_u128(), 30);
        // A process that may not change the schema uses what is there.
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..Settings::new(url.clone())
        };
        let third = PostgresStore::open(&verify).await.expect("opens");
        assert_eq!(third.has_pgvector(), inside.has_pgvector());
        for store in [exact, inside, third] {
            store.close().await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_may_not_add_the_extension_does_without() {
    with_database("no_pgvector", async |url| {
        let (server, database) = url.rsplit_once('/').expect("the URL names a database");
        let (_, host) = server.rsplit_once('@').expect("the URL names a user");
        let mut admin = PgConnection::connect(&url).await.expect("connects");
        let roles = format!(
            "CREATE ROLE {database}_plain LOGIN; \
             GRANT CREATE, USAGE ON SCHEMA public TO {database}_plain;"
        );
        admin
            .execute(AssertSqlSafe(roles))
            .await
            .expect("the role is made");
        let plain = Settings::new(format!("postgres://{database}_plain@{host}/{database}"));
        let store = PostgresStore::open(&plain)
            .await
            .expect("opens all the same");
        let had = store.has_pgvector();
        for n in 0..5 {
            enter(&store, n, "user/1", 8).await;
        }
        let near = found(&store, "user/1", 3, 8).await;
        store.close().await;
        // Someone with the right to do so adds the extension; the column is added when the store is
        // next opened.
        let mut gained = None;
        if available(&url).await {
            let made = admin.execute("CREATE EXTENSION vector").await;
            made.expect("is created");
            let store = PostgresStore::open(&plain).await.expect("opens");
            gained = Some(store.has_pgvector());
            store.close().await;
        }
        let drop = format!("DROP OWNED BY {database}_plain; DROP ROLE {database}_plain;");
        admin
            .execute(AssertSqlSafe(drop))
            .await
            .expect("the role is dropped");
        assert!(!had);
        assert_eq!(near[0].0.as_u128(), 3);
        assert_ne!(gained, Some(false));
    })
    .await;
}
