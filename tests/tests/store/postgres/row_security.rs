//! Tenants that the server itself isolates, by row security.

use std::collections::BTreeMap;

use futures::future::join;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::id::{BootId, SessionKey, TenantId};
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{
    AcceptOutcome, CreateOutcome, CreateTenantOutcome, ListSends, ListSessions, NewTenant, Page,
    ReadMessages, SessionPatch, UpdateOutcome, scoped,
};
use mainspring_shared::tenant::{Limits, Retention};
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::postgres::world::{id, new_session, to, with_database};

fn with_row_security(url: &str) -> Settings {
    Settings {
        row_security: true,
        ..Settings::new(url)
    }
}

/// Another tenant.
async fn tenant(store: &PostgresStore, name: &str) -> TenantId {
    let new = NewTenant {
        name: name.to_owned(),
        limits: Limits::default(),
        weight: 1,
        retention: Retention::default(),
        pools: mainspring_shared::tenant::Pools::default(),
    };
    match store
        .create_tenant(new, None)
        .await
        .expect("the store answers")
    {
        CreateTenantOutcome::Created(tenant) => tenant.id,
        other => panic!("not created: {other:?}"),
    }
}

/// Creates a session of a tenant with a send, through steps that tenants share.
async fn session(store: &PostgresStore, tenant: TenantId) -> SessionKey {
    let mut new = new_session(AgentSpec::default());
    new.key.tenant = tenant;
    let key = new.key;
    let created = store.create_sessions(vec![(new, None)]).await;
    assert!(matches!(
        created.expect("creates")[..],
        [CreateOutcome::Created(_)]
    ));
    let accepted = store.accept_sends(BootId(id()), vec![to(key)]).await;
    assert!(matches!(
        accepted.expect("accepts")[..],
        [AcceptOutcome::Accepted(_)]
    ));
    key
}

fn sessions_of(tenant: TenantId) -> ListSessions {
    ListSessions {
        tenant,
        status: None,
        agent: None,
        metadata: BTreeMap::new(),
        before: None,
        limit: 10,
    }
}

fn sends_of(tenant: TenantId) -> ListSends {
    ListSends {
        tenant,
        session: None,
        status: None,
        before: None,
        limit: 10,
    }
}

fn count<T>(page: mainspring_shared::store::Result<Page<T>>) -> usize {
    page.expect("the store answers").data.len()
}

#[tokio::test]
async fn what_is_asked_on_behalf_of_a_tenant_finds_nothing_of_another_one() {
    with_database("row_security", async |url| {
        let store = PostgresStore::open(&with_row_security(&url))
            .await
            .expect("opens");
        let (blue, red) = (tenant(&store, "blue").await, tenant(&store, "red").await);
        let (ours, theirs) = (session(&store, blue).await, session(&store, red).await);
        // Look-ups by key and in lists, as if the code had forgotten whose request it serves.
        let looks = async |store: &PostgresStore, key: SessionKey| {
            let found = store.get_session(key).await.expect("the store answers");
            let read = ReadMessages {
                key,
                after: 0,
                limit: 10,
            };
            let messages = store.read_messages(read).await.expect("the store answers");
            let steps = store
                .read_steps(key, 0, 10)
                .await
                .expect("the store answers");
            let patch = SessionPatch::default();
            let updated = store.update_session(key, patch).await;
            (
                found.is_some(),
                messages.len(),
                !steps.is_empty(),
                count(store.list_sessions(sessions_of(key.tenant)).await),
                count(store.list_sends(sends_of(key.tenant)).await),
                !matches!(updated, Ok(UpdateOutcome::NotFound)),
            )
        };
        let all = (true, 0, true, 1, 1, true);
        let none = (false, 0, false, 0, 0, false);
        assert_eq!(
            looks(&store, theirs).await,
            all,
            "the system sees every tenant"
        );
        assert_eq!(scoped(blue, looks(&store, ours)).await, all);
        assert_eq!(scoped(blue, looks(&store, theirs)).await, none);
        assert_eq!(scoped(red, looks(&store, ours)).await, none);
        // Both tenants concurrently on the same connections, again and again.
        for _ in 0..20 {
            let both = join(
                scoped(blue, looks(&store, theirs)),
                scoped(red, looks(&store, theirs)),
            );
            assert_eq!(both.await, (none, all));
            assert_eq!(looks(&store, ours).await, all);
        }
        // Steps that several tenants share are not bound to one of them.
        let shared = store.accept_sends(BootId(id()), vec![to(ours), to(theirs)]);
        let outcomes = scoped(blue, shared).await.expect("accepts");
        assert!(
            outcomes
                .iter()
                .all(|outcome| matches!(outcome, AcceptOutcome::Accepted(_))),
            "{outcomes:?}"
        );
        store.close().await;
    })
    .await;
}

/// Every table with a tenant column, as the tenants' role sees it: even a statement that names no
/// tenant at all must not find another tenant's rows.
#[tokio::test]
async fn no_table_shows_the_role_of_tenants_another_ones_rows() {
    with_database("row_walls", async |url| {
        let store = PostgresStore::open(&with_row_security(&url)).await.expect("opens");
        let (blue, red) = (tenant(&store, "blue").await, tenant(&store, "red").await);
        session(&store, blue).await;
        session(&store, red).await;
        let mut connection = PgConnection::connect(&url).await.expect("connects");
        let tables = connection
            .fetch_all(
                "SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
                 WHERE c.relkind = 'r' AND a.attname = 'tenant' AND c.relnamespace = 'public'::regnamespace",
            )
            .await
            .expect("are listed");
        assert!(tables.len() > 30, "only {} tables", tables.len());
        let mut with_rows = 0;
        for table in tables {
            let table: String = table.get(0);
            let mut seen = BTreeMap::new();
            for (who, before) in [
                ("all", "RESET ROLE".to_owned()),
                ("blue", format!("SET ROLE mainspring_tenant; SET mainspring.tenant = '{}'", blue.0)),
                ("nobody", "SET ROLE mainspring_tenant; SET mainspring.tenant = ''".to_owned()),
            ] {
                let set = connection.execute(sqlx::raw_sql(AssertSqlSafe(before))).await;
                set.expect("the role is taken");
                let query = format!("SELECT DISTINCT t.tenant FROM {table} t ORDER BY 1");
                let rows = connection.fetch_all(AssertSqlSafe(query)).await;
                let rows = rows.unwrap_or_else(|error| panic!("{table} as {who}: {error}"));
                let tenants: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
                seen.insert(who, tenants);
            }
            if seen["all"].contains(&red.0) {
                with_rows += 1;
                assert_eq!(seen["blue"], [blue.0], "{table}");
            }
            assert!(seen["nobody"].is_empty(), "{table}: {:?}", seen["nobody"]);
        }
        // Sessions, their hot rows, sends, steps, open sends, inbox or messages: without rows the
        // test proves nothing.
        assert!(with_rows >= 4, "rows of both tenants in {with_rows} tables");
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_step_that_fails_leaves_no_connection_behind_the_wall() {
    with_database("row_failed", async |url| {
        let settings = Settings {
            writers: 1,
            claimers: 1,
            readers: 1,
            ..with_row_security(&url)
        };
        let store = PostgresStore::open(&settings).await.expect("opens");
        let blue = tenant(&store, "blue").await;
        let red = tenant(&store, "red").await;
        let (ours, theirs) = (session(&store, blue).await, session(&store, red).await);
        // The step fails on a lock that somebody else holds, in the middle of a tenant's step.
        let mut other = PgConnection::connect(&url).await.expect("connects");
        other
            .execute("BEGIN; LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
            .await
            .expect("is locked");
        let patch = || SessionPatch::default();
        let failed = scoped(blue, store.update_session(ours, patch())).await;
        assert!(failed.is_err(), "{failed:?}");
        other.execute("ROLLBACK").await.expect("is unlocked");
        let seen = store.update_session(theirs, patch()).await;
        assert!(
            !matches!(seen.expect("the store answers"), UpdateOutcome::NotFound),
            "the system sees every tenant"
        );
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn who_may_not_make_the_wall_is_told_what_is_missing() {
    with_database("row_rights", async |url| {
        let (server, database) = url.rsplit_once('/').expect("the URL names a database");
        let (_, host) = server.rsplit_once('@').expect("the URL names a user");
        let owner = format!("{database}_owner");
        let as_owner = format!("postgres://{owner}@{host}/{database}");
        let mut admin = PgConnection::connect(&url).await.expect("connects");
        let roles = format!(
            "CREATE ROLE {owner} LOGIN NOSUPERUSER NOCREATEROLE; \
             GRANT ALL ON SCHEMA public TO {owner}; GRANT ALL ON DATABASE {database} TO {owner};"
        );
        let made = admin.execute(AssertSqlSafe(roles)).await;
        made.expect("the role is made");
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..with_row_security(&as_owner)
        };
        let refused = async |settings: &Settings| {
            let error = PostgresStore::open(settings).await.expect_err("is refused");
            assert_eq!(error.code(), Code::StoreDenied, "{error}");
            let cause = std::error::Error::source(&error).expect("says why");
            cause.to_string()
        };
        // The tables' owner is not a member of the tenants' role, and may not add itself.
        PostgresStore::open(&Settings::new(&as_owner))
            .await
            .expect("opens without it");
        let said = refused(&verify).await;
        assert!(said.contains("CREATE ROLE mainspring_tenant"), "{said}");
        let said = refused(&with_row_security(&as_owner)).await;
        assert!(said.contains("GRANT mainspring_tenant"), "{said}");
        // Do what the message says by hand; then the owner's migration does the rest.
        admin
            .execute(AssertSqlSafe(format!(
                "DO $$ BEGIN CREATE ROLE mainspring_tenant NOLOGIN; \
                 EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$; \
                 GRANT mainspring_tenant TO {owner};"
            )))
            .await
            .expect("is granted");
        let said = refused(&verify).await;
        assert!(said.contains("mainspring migrate"), "{said}");
        let store = PostgresStore::open(&with_row_security(&as_owner))
            .await
            .expect("opens");
        store.close().await;
        let store = PostgresStore::open(&verify).await.expect("is complete");
        let blue = tenant(&store, "blue").await;
        let ours = session(&store, blue).await;
        let seen = scoped(TenantId::DEFAULT, store.get_session(ours)).await;
        assert!(seen.expect("the store answers").is_none());
        let seen = scoped(blue, store.get_session(ours)).await;
        assert!(seen.expect("the store answers").is_some());
        store.close().await;
        admin
            .execute(AssertSqlSafe(format!(
                "DROP OWNED BY {owner} CASCADE; DROP ROLE {owner}"
            )))
            .await
            .expect("the role is dropped");
    })
    .await;
}

#[tokio::test]
async fn a_database_that_was_prepared_by_hand_passes() {
    with_database("row_by_hand", async |url| {
        let mut admin = PgConnection::connect(&url).await.expect("connects");
        for script in [
            mainspring_store_postgres::ddl(),
            mainspring_store_postgres::row_security_ddl(),
        ] {
            let run = admin.execute(sqlx::raw_sql(AssertSqlSafe(script))).await;
            run.expect("the server takes the script");
        }
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            // pgvector's column would be a schema change, which this policy does not make.
            pgvector: false,
            ..with_row_security(&url)
        };
        let store = PostgresStore::open(&verify).await.expect("is complete");
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn many_processes_may_make_the_wall_at_once() {
    with_database("row_at_once", async |url| {
        let settings = with_row_security(&url);
        let opened = (0..6).map(|_| PostgresStore::open(&settings));
        for store in futures::future::join_all(opened).await {
            store.expect("opens").close().await;
        }
    })
    .await;
}
