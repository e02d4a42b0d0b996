//! List queries that would read too much.

use std::time::Duration;

use mainspring_shared::error::{Code, Coded};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::columns::expand;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{AuditOptions, Inspect as _, ListSends};
use mainspring_store_postgres::{PostgresStore, Settings};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::postgres::world::{TENANT, World, to, with_world};

fn all() -> ListSends {
    ListSends {
        tenant: TENANT,
        session: None,
        status: None,
        before: None,
        limit: 10,
    }
}

/// A connection that locks out everyone else from this table.
async fn holding(world: &World, table: &str) -> PgConnection {
    let mut connection = world.connection().await;
    connection.execute("BEGIN").await.expect("begins");
    let lock = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    connection
        .execute(AssertSqlSafe(lock))
        .await
        .expect("locks");
    connection
}

#[tokio::test]
async fn a_list_that_takes_too_long_is_given_up_soon() {
    with_world("list_timeout", async |world| {
        let key = world.session().await;
        world.send(1, to(key)).await;
        let settings = Settings {
            readers: 1,
            read_timeout: Duration::from_millis(300),
            ..world.settings.clone()
        };
        let store = PostgresStore::open(&settings).await.expect("opens");
        assert_eq!(store.list_sends(all()).await.expect("lists").data.len(), 1);
        let held = holding(world, "sends").await;
        let given_up = tokio::time::timeout(Duration::from_secs(4), store.list_sends(all())).await;
        let error = given_up.expect("within its time").expect_err("is given up");
        assert_eq!(error.code(), Code::StoreUnavailable);
        assert!(error.retry_after().is_some());
        held.close().await.expect("closes");
        assert_eq!(store.list_sends(all()).await.expect("lists").data.len(), 1);
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn an_audit_keeps_no_list_waiting() {
    with_world("audit_apart", async |world| {
        let key = world.session().await;
        world.send(1, to(key)).await;
        let settings = Settings {
            readers: 1,
            ..world.settings.clone()
        };
        let store = PostgresStore::open(&settings).await.expect("opens");
        let held = holding(world, "usage_rows").await;
        let later = store.at(world.time(2));
        let audit = later.audit(AuditOptions::default());
        let list = tokio::time::timeout(Duration::from_secs(4), store.list_sends(all()));
        let mut audit = std::pin::pin!(audit);
        tokio::select! {
            biased;
            _ = &mut audit => panic!("the audit did not wait"),
            list = list => {
                let list = list.expect("a list in time").expect("lists");
                assert_eq!(list.data.len(), 1);
            }
        }
        held.close().await.expect("closes");
        assert!(audit.await.expect("audits").is_empty());
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn failed_sends_are_found_without_going_through_all_others() {
    with_world("list_failed", async |world| {
        let mut connection = world.connection().await;
        let list = expand(include_str!(
            "../../../../shared/store-postgres/sql/sends/list.sql"
        ));
        let asked = format!("PREPARE listed AS {list}");
        for statement in [
            "SET plan_cache_mode = force_custom_plan",
            "SET enable_seqscan = off",
            "SET enable_sort = off",
            asked.as_str(),
        ] {
            let statement = statement.to_owned();
            connection
                .execute(AssertSqlSafe(statement))
                .await
                .expect("it is taken");
        }
        let explain = "EXPLAIN EXECUTE listed (1, NULL, 'failed', NULL, 51, false)";
        let plan: Vec<(String,)> = sqlx::query_as(explain)
            .fetch_all(&mut connection)
            .await
            .expect("explains");
        let plan: Vec<String> = plan.into_iter().map(|(line,)| line).collect();
        assert!(plan.join("\n").contains("sends_not_completed"), "{plan:?}");
        connection.close().await.expect("closes");
        let none = ListSends {
            status: Some(SendStatus::Failed),
            ..all()
        };
        assert!(
            world
                .store
                .list_sends(none)
                .await
                .expect("lists")
                .data
                .is_empty()
        );
    })
    .await;
}
