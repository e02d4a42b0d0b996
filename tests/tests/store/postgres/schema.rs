//! The schema and the statements.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mainspring_shared::error::{Code, Coded as _};
use mainspring_shared::store::columns::expand;
use mainspring_shared::store::prelude::*;
use mainspring_shared::store::{Error, SchemaWrong};
use mainspring_shared::tool::CallResult;
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings, ddl};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Column, Connection, Executor, PgConnection, Row, SqlSafeStr, Statement};

use crate::postgres::world::{newest, with_database, with_world};

fn statements(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("can be listed").path();
        if path.is_dir() {
            statements(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Whether a statement that locks some rows and changes them picks them once: a plan may evaluate a subquery
/// of its `FROM` once per row of the table beside it, and each time it locks other rows.
fn picks_once(text: &str) -> bool {
    let code: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    let code = code.join(" ");
    let changes =
        code.contains("UPDATE ") && code.contains(" SET ") || code.contains("DELETE FROM");
    let picks = code.contains("SKIP LOCKED") && code.contains("LIMIT");
    !(changes && picks) || code.contains("AS MATERIALIZED") || code.contains("ANY (ARRAY(")
}

#[tokio::test]
async fn every_statement_prepares() {
    with_world("prepares", async |world| {
        let mut connection = world.connection().await;
        let mut found = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/store-postgres/sql");
        statements(&root, &mut found);
        if !world.store.has_pgvector() {
            // These use a type that the server lacks.
            let of_vectors = |path: &PathBuf| {
                path.ends_with("pgvector/column.sql")
                    || path.ends_with("pgvector/embed.sql")
                    || path.ends_with("pgvector/nearest.sql")
                    || path.ends_with("pgvector/vectors.sql")
            };
            found.retain(|path| !of_vectors(path));
        }
        assert!(found.len() > 50, "only {} statements", found.len());
        for path in found {
            let text = fs::read_to_string(&path).expect("can be read");
            assert!(text.starts_with("-- "), "{} has no head", path.display());
            let text = expand(&text).into_owned();
            assert!(picks_once(&text), "{}", path.display());
            let prepared = connection.prepare(AssertSqlSafe(text).into_sql_str()).await;
            let prepared = prepared.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            // Columns are read by name, so names must be unique.
            let names = prepared.columns().iter().map(Column::name);
            let distinct: BTreeSet<&str> = names.clone().collect();
            assert_eq!(names.len(), distinct.len(), "{}", path.display());
        }
    })
    .await;
}

#[tokio::test]
async fn many_processes_may_create_the_schema_at_once() {
    with_database("at_once", async |url| {
        let settings = Settings::new(url);
        let opened = (0..6).map(|_| PostgresStore::open(&settings));
        for store in futures::future::join_all(opened).await {
            let info = store.expect("opens").check().await.expect("is sound");
            assert_eq!(info.schema, newest());
            assert!(info.server.starts_with("postgres "), "{}", info.server);
        }
    })
    .await;
}

/// The failure of opening a store at this address: the error, its code and its causes.
async fn refused(url: &str) -> (String, Code, String) {
    let error = PostgresStore::open(&Settings::new(url)).await;
    let error = error.expect_err("the server refuses");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    (error.to_string(), error.code(), cause.unwrap_or_default())
}

#[tokio::test]
async fn a_login_a_database_and_a_right_that_are_refused_have_words_of_their_own() {
    with_database("denied", async |url| {
        let (server, database) = url.rsplit_once('/').expect("the URL names a database");
        let (_, host) = server.rsplit_once('@').expect("the URL names a user");
        let login = |user: &str| format!("postgres://{user}@{host}/{database}");

        let (said, code, cause) = refused(&login("nobody_of_this_name")).await;
        assert_eq!(code, Code::StoreDenied, "{said}: {cause}");
        assert_eq!(said, "the database refuses the login");

        let (said, code, cause) = refused(&format!("{url}_elsewhere")).await;
        assert_eq!(code, Code::StoreDenied, "{said}: {cause}");
        assert_eq!(said, "the server has no database of this name");
        assert_eq!(cause, format!("database \"{database}_elsewhere\" does not exist"));

        let mut admin = PgConnection::connect(&url).await.expect("connects");
        let roles = format!(
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC; \
             CREATE ROLE {database}_poor LOGIN; CREATE ROLE {database}_crowded LOGIN CONNECTION LIMIT 0;"
        );
        let made = admin.execute(AssertSqlSafe(roles)).await;
        made.expect("the roles are made");
        let poor = refused(&login(&format!("{database}_poor"))).await;
        let crowded = refused(&login(&format!("{database}_crowded"))).await;
        let drop = format!("DROP ROLE {database}_poor; DROP ROLE {database}_crowded;");
        let dropped = admin.execute(AssertSqlSafe(drop)).await;
        dropped.expect("the roles are dropped");

        let (said, code, cause) = poor;
        assert_eq!(code, Code::StoreDenied, "{said}: {cause}");
        assert_eq!(said, "the database user lacks a privilege");
        assert_eq!(cause, "permission denied for schema public");

        // Others will give their connections back, so this is transient.
        let (said, code, cause) = crowded;
        assert_eq!(code, Code::StoreUnavailable, "{said}: {cause}");
        assert_eq!(cause, "every connection that the server allows is taken");
    })
    .await;
}

#[tokio::test]
async fn verify_changes_nothing_and_says_what_is_missing() {
    with_database("verify", async |url| {
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..Settings::new(url.clone())
        };
        for _ in 0..2 {
            let refused = PostgresStore::open(&verify).await;
            assert!(
                matches!(
                    refused,
                    Err(Error::SchemaMissing {
                        found: 0,
                        needed
                    }) if needed == newest()
                ),
                "{refused:?}"
            );
        }
        let created = PostgresStore::open(&Settings::new(url)).await;
        created.expect("creates the schema");
        PostgresStore::open(&verify).await.expect("finds it");
    })
    .await;
}

#[tokio::test]
async fn a_newer_schema_that_took_something_away_and_a_changed_one_are_refused() {
    with_world("newer", async |world| {
        let mut connection = world.connection().await;
        connection
            .execute(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (99, 'later', TRUE, '\\x00', 0)",
            )
            .await
            .expect("plants a migration");
        // The later migration removed nothing that this program needs: both work, whichever starts
        // first.
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..world.settings.clone()
        };
        for settings in [&world.settings, &verify] {
            let store = PostgresStore::open(settings).await.expect("opens");
            assert_eq!(store.check().await.expect("is sound").schema, 99);
            store.close().await;
        }
        assert_eq!(world.store.check().await.expect("is sound").schema, 99);
        connection
            .execute("UPDATE schema_compatibility SET protocol = 99")
            .await
            .expect("its processes say what this program does not understand");
        let checked = world.store.check().await;
        assert!(
            matches!(checked, Err(Error::ProtocolOlder { demanded: 99, .. })),
            "{checked:?}"
        );
        for settings in [&world.settings, &verify] {
            let opened = PostgresStore::open(settings).await;
            assert!(
                matches!(opened, Err(Error::ProtocolOlder { demanded: 99, .. })),
                "{opened:?}"
            );
        }
        connection
            .execute("UPDATE schema_compatibility SET oldest = 99")
            .await
            .expect("it took something away");
        let checked = world.store.check().await;
        assert!(
            matches!(checked, Err(Error::SchemaNewer { found: 99, known }) if known == newest()),
            "{checked:?}"
        );
        for settings in [&world.settings, &verify] {
            let opened = PostgresStore::open(settings).await;
            assert!(
                matches!(opened, Err(Error::SchemaNewer { found: 99, known }) if known == newest()),
                "{opened:?}"
            );
        }
        connection
            .execute("DELETE FROM _sqlx_migrations WHERE version = 99")
            .await
            .expect("removes it");
        connection
            .execute("UPDATE _sqlx_migrations SET checksum = '\\x00'")
            .await
            .expect("changes a checksum");
        let opened = PostgresStore::open(&world.settings).await;
        assert!(matches!(opened, Err(Error::Refused { .. })), "{opened:?}");
    })
    .await;
}

#[tokio::test]
async fn a_database_made_with_the_printed_ddl_passes_verify() {
    with_database("ddl", async |url| {
        let mut connection = PgConnection::connect(&url).await.expect("connects");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(ddl())))
            .await
            .expect("the DDL runs");
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..Settings::new(url)
        };
        let store = PostgresStore::open(&verify).await.expect("passes");
        assert_eq!(store.check().await.expect("is sound").schema, newest());
        store.close().await;
    })
    .await;
}

/// The first migration, for a database as the previous release left it.
const BEFORE: &str = include_str!("../../../../migrations/postgres/0001_sessions_and_sends.sql");
const AFTER: &str = include_str!("../../../../migrations/postgres/0002_calls_and_inbox.sql");

#[tokio::test]
async fn calls_of_the_release_before_are_carried_over() {
    with_database("carried", async |url| {
        let mut connection = PgConnection::connect(&url).await.expect("connects");
        let rows = r#"
            INSERT INTO tool_calls
                (tenant, session_id, call_id, send_id, round, place, name, arguments, result, failed,
                 settled_at)
            VALUES
                (1, gen_random_uuid(), 'call_a', gen_random_uuid(), 0, 0, 'look', '{}',
                 '{"code":"tool.not_found","message":"there is none"}', TRUE, 7),
                (1, gen_random_uuid(), 'call_b', gen_random_uuid(), 0, 1, 'look', '{"x":1}', '"seen"',
                 FALSE, 8),
                (1, gen_random_uuid(), 'call_c', gen_random_uuid(), 0, 2, 'look', '{}', NULL, FALSE,
                 NULL)"#;
        for script in [BEFORE, rows, AFTER] {
            let run = connection.execute(sqlx::raw_sql(script)).await;
            run.expect("runs");
        }
        let rows = sqlx::query_as::<_, (String, Option<String>, String, Option<i64>)>(
            "SELECT call_id, result, arguments, settled_at FROM tool_calls ORDER BY call_id",
        );
        let rows = rows.fetch_all(&mut connection).await.expect("reads");
        let results: Vec<Option<CallResult>> = rows
            .iter()
            .map(|(_, result, ..)| {
                let text = result.as_deref();
                text.map(|text| serde_json::from_str(text).expect("is a result"))
            })
            .collect();
        let failed = CallResult::error(Code::ToolNotFound, "there is none");
        let seen = CallResult::text("\"seen\"");
        assert_eq!(results, [Some(failed), Some(seen), None]);
        let settled: Vec<_> = rows.iter().map(|(.., at)| *at).collect();
        assert_eq!(settled, [Some(7), Some(8), None]);
        assert_eq!(rows[1].2, r#"{"x":1}"#);
    })
    .await;
}

/// Connection settings of the steps. They make the planner choose the plans it would choose if the
/// table were not empty.
const KEYED: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
    SET enable_bitmapscan = off; SET enable_mergejoin = off; SET random_page_cost = 0.02;
    SET seq_page_cost = 0.02";

/// Number of parameters of a statement.
fn arguments(text: &str) -> usize {
    let numbers = text.split('$').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// A plan that was made while a table was empty is kept as it grows: one that looks up only the
/// tenant and filters every row by the rest of the key would never finish.
#[tokio::test]
async fn no_step_looks_up_half_a_key() {
    with_world("plans", async |world| {
        let mut connection = world.connection().await;
        let set = connection.execute(sqlx::raw_sql(KEYED)).await;
        set.expect("is set");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/store-postgres/sql");
        for noun in [
            "calls", "inbox", "leases", "ledger", "lists", "sends", "sessions",
        ] {
            let mut found = Vec::new();
            statements(&root.join(noun), &mut found);
            for path in found {
                let text = fs::read_to_string(&path).expect("can be read");
                let text = expand(&text);
                let is_list = path.ends_with("list.sql") || path.ends_with("migrations.sql");
                // `finished_by` reads every step of a send's session, after a lost answer to a
                // cancel. Retention reads by age, starting with the oldest rows.
                let is_sweep = path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("forget"));
                if is_list || is_sweep || path.ends_with("finished_by.sql") {
                    continue;
                }
                let nulls = vec!["NULL"; arguments(&text)].join(", ");
                let nulls = if nulls.is_empty() {
                    nulls
                } else {
                    format!("({nulls})")
                };
                let script = format!(
                    "DEALLOCATE ALL; PREPARE p AS {text}; EXPLAIN (COSTS OFF) EXECUTE p{nulls}"
                );
                let rows = sqlx::raw_sql(AssertSqlSafe(script)).fetch_all(&mut connection);
                let rows = rows
                    .await
                    .unwrap_or_else(|error| panic!("{path:?}: {error}"));
                let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
                assert!(!lines.is_empty(), "{path:?}");
                for (n, line) in lines.iter().enumerate() {
                    let line = line.trim();
                    let half = line.strip_prefix("Index Cond: (tenant = ");
                    let half = half.is_some_and(|rest| !rest.contains(" AND "));
                    // In these indexes the tenant is the whole key.
                    let of_tenants = ["seat_limits_pkey", "tenants_away_pkey"];
                    let is_whole = |index: &&str| lines[n - 1].contains(*index);
                    let half = half && !of_tenants.iter().any(is_whole);
                    let whole = line.contains("Seq Scan");
                    // An anti join would compare every pair of a thousand keys.
                    let pairs = path.ends_with("lock_free.sql") && line.contains("Anti Join");
                    assert!(
                        !half && !whole && !pairs,
                        "{path:?}: {line}\n{}",
                        lines.join("\n")
                    );
                }
            }
        }
    })
    .await;
}

/// Columns that a claim writes in a row that was accepted.
const CLAIMED: [&str; 11] = [
    "status",
    "waiting_on",
    "agent_version",
    "attempts",
    "crashes",
    "started_at",
    "token",
    "epoch",
    "writes",
    "active",
    "owner_boot",
];

/// Updating a column that any index uses, in its key or its condition, writes to all indexes of the
/// table: with one such index a claim cost more than twice as much.
#[tokio::test]
async fn no_index_knows_what_a_claim_changes() {
    with_world("heap_only", async |world| {
        let mut connection = world.connection().await;
        let indexes: Vec<(String,)> = sqlx::query_as(
            "SELECT indexdef FROM pg_indexes WHERE tablename IN ('sends', 'session_hot')",
        )
        .fetch_all(&mut connection)
        .await
        .expect("lists them");
        assert!(indexes.len() > 6, "{indexes:?}");
        for (index,) in &indexes {
            let mut words = index.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let found = words.find(|word| CLAIMED.contains(word));
            assert_eq!(found, None, "{index}");
        }
        connection.close().await.expect("closes");
    })
    .await;
}

/// The committed list of the objects that the migrations create is up to date. Checks of a database
/// compare with it.
#[tokio::test]
async fn the_list_of_what_is_needed_is_what_the_migrations_make() {
    with_world("needed", async |world| {
        let mut connection = world.connection().await;
        let query = include_str!("../../../../shared/store-postgres/sql/schema/objects.sql");
        let rows = connection.fetch_all(query).await.expect("is listed");
        let line = |row: &PgRow| {
            let part = |name| row.get::<String, _>(name);
            format!(
                "{}\t{}\t{}\n",
                part("kind"),
                part("name"),
                part("definition")
            )
        };
        let listed: String = rows.iter().map(line).collect();
        let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../shared/store-postgres/schema/needed.tsv");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&kept, &listed).expect("is written");
        }
        let kept = fs::read_to_string(kept).expect("can be read");
        let version = world.store.check().await.expect("is sound").server;
        if version.starts_with("postgres 15") {
            assert!(
                kept == listed,
                "schema/needed.tsv is old: UPDATE_DOCS=1 writes it"
            );
        }
        let faults = world.store.schema_faults().await.expect("reads");
        assert_eq!(faults, [], "on {version}");
    })
    .await;
}

#[tokio::test]
async fn what_a_schema_lacks_is_told_and_what_is_told_mends_it() {
    with_world("lacks", async |world| {
        let mut connection = world.connection().await;
        let harm = "DROP TABLE pauses; ALTER TABLE sends DROP COLUMN stop_reason CASCADE; DROP INDEX sends_alarm; \
                    ALTER TABLE timers DROP CONSTRAINT timers_status_check; ALTER TABLE skills ALTER COLUMN name TYPE varchar(9)";
        connection.execute(harm).await.expect("is harmed");
        let faults = world.store.schema_faults().await.expect("reads");
        let names: Vec<&str> = faults.iter().map(|fault| &*fault.needed.name).collect();
        for name in ["pauses", "sends.stop_reason", "sends.sends_alarm", "timers.timers_status_check"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        let other = faults.iter().find(|fault| fault.needed.name == "skills.name");
        let other = other.expect("another type is told");
        let SchemaWrong::Differs(found) = &other.wrong else {
            panic!("{other:?}");
        };
        assert!(found.contains("character varying(9)"), "{found}");
        for fault in &faults {
            if let SchemaWrong::Missing(ddl) = &fault.wrong {
                let run = connection.execute(AssertSqlSafe(ddl.clone())).await;
                run.unwrap_or_else(|error| panic!("{ddl}: {error}"));
            }
        }
        let left = world.store.schema_faults().await.expect("reads");
        assert!(left.iter().all(|fault| matches!(fault.wrong, SchemaWrong::Differs(_))), "{left:?}");
    })
    .await;
}
