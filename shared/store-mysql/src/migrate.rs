//! The schema: the version that this program needs, and migrating a database to it.

use std::sync::LazyLock;

use mainspring_shared::store::{Demands, Error, schema_fits};
use mainspring_store_core::db::Server;
use mainspring_store_core::fault::{Fault, Result};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::MySqlConnection;
use sqlx::{ConnectOptions, Connection, SqlStr};

use crate::fault::{fault, lacks_rights, number};
use crate::settings::{SchemaPolicy, Settings};

/// The migrations embedded by `migrations/embed.rs`: version, title and text of each file.
const EMBEDDED: &[(i64, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The table of applied migrations, as sqlx creates it.
const RECORD: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
";

/// Adds the index that a journal needs, without blocking steps.
const STEPS_AT: &str =
    "ALTER TABLE steps ADD INDEX steps_at (at), ALGORITHM = INPLACE, LOCK = NONE";

/// Lock timeout for changing a table: statements that come later queue behind one that waits for
/// the table's lock.
const PATIENCE: &str = "SET SESSION lock_wait_timeout = 5";

/// The index exists already.
const DUPLICATE_NAME: u16 = 1061;

/// The table does not exist.
const NO_TABLE: u16 = 1146;

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |&(version, title, sql): &(i64, &'static str, &'static str)| {
        // No transaction: the server commits each DDL statement implicitly.
        let sql = SqlStr::from_static(sql);
        Migration::new(version, title.into(), MigrationType::Simple, sql, true)
    };
    Migrator::with_migrations(EMBEDDED.iter().map(migration).collect())
});

/// The statements that `SchemaPolicy::Create` runs on an empty database, in order, including the
/// record of applied migrations: a database to which they were applied by hand passes
/// `SchemaPolicy::Verify`.
pub fn ddl() -> String {
    let migrations = MIGRATOR.iter().map(|it| {
        let (title, sql) = (it.description.as_ref(), it.sql.as_str());
        (it.version, title, sql, it.checksum.as_ref())
    });
    mainspring_store_core::ddl(RECORD, migrations)
}

fn needed() -> i64 {
    let versions = MIGRATOR.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

/// Fails unless this program works with the schema version of the database.
async fn fits(conn: &mut MySqlConnection, found: i64) -> Result<()> {
    let needed = needed();
    let demands = if found > needed {
        sqlx::query_as("SELECT oldest, protocol FROM schema_compatibility")
            .fetch_optional(conn)
            .await
            .map_err(fault)?
            .map(|(oldest, protocol)| Demands { oldest, protocol })
    } else {
        None
    };
    schema_fits(found, needed, demands).map_err(Fault::Schema)
}

/// Creates or verifies the schema, as the policy says. Runs on its own connection, so that closing
/// it releases the lock that keeps other processes from migrating at the same time.
pub(crate) async fn prepare(settings: &Settings) -> Result<()> {
    let mut conn = settings.server()?.connect().await.map_err(fault)?;
    let prepared = match settings.schema {
        SchemaPolicy::Create => migrate(&mut conn).await,
        SchemaPolicy::Verify => match found(&mut conn).await {
            Ok(found) => fits(&mut conn, found).await,
            Err(fault) => Err(fault),
        },
    };
    // Everything is committed; a failure to close the connection changes nothing.
    let _ = conn.close().await;
    prepared
}

async fn migrate(conn: &mut MySqlConnection) -> Result<()> {
    let before = found(conn).await?;
    if before >= needed() {
        return fits(conn, before).await;
    }
    match MIGRATOR.run(&mut *conn).await {
        Ok(()) => Ok(()),
        // A newer program has migrated it meanwhile.
        Err(MigrateError::VersionMissing(_)) => {
            let found = found(conn).await?;
            fits(conn, found).await
        }
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(fault(error))
        }
        Err(other) => Err(Fault::Schema(Error::Refused {
            source: Box::new(other),
        })),
    }
}

/// The version of the schema, 0 if there is none. Fails if a migration was changed after it was
/// applied.
async fn found(conn: &mut MySqlConnection) -> Result<i64> {
    let applied: sqlx::Result<Vec<(i64, Vec<u8>)>> = sqlx::query_as(
        "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version",
    )
    .fetch_all(conn)
    .await;
    let applied = match applied {
        Ok(applied) => applied,
        Err(error) if number(&error) == Some(NO_TABLE) => return Ok(0),
        Err(error) => return Err(fault(error)),
    };
    for (version, checksum) in &applied {
        let known = MIGRATOR.iter().find(|known| known.version == *version);
        if known.is_some_and(|known| *known.checksum != **checksum) {
            return Err(Fault::Schema(Error::Refused {
                source: Box::new(MigrateError::VersionMismatch(*version)),
            }));
        }
    }
    Ok(applied.last().map_or(0, |(version, _)| *version))
}

/// Creates or verifies the index that a journal needs, as the policy says.
pub(crate) async fn index_steps(settings: &Settings) -> Result<()> {
    let mut conn = settings.server()?.connect().await.map_err(fault)?;
    let indexed = index(&mut conn, settings.schema).await;
    let _ = conn.close().await;
    indexed
}

async fn index(conn: &mut MySqlConnection, policy: SchemaPolicy) -> Result<()> {
    let indexes: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM information_schema.statistics
         WHERE table_schema = database() AND table_name = 'steps' AND index_name = 'steps_at'",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(fault)?;
    if indexes > 0 {
        return Ok(());
    }
    if policy == SchemaPolicy::Verify {
        return Err(Fault::to_run(STEPS_AT));
    }
    for sql in [PATIENCE, STEPS_AT] {
        match sqlx::raw_sql(sql).execute(&mut *conn).await {
            Ok(_) => {}
            // Another process has created it meanwhile.
            Err(error) if number(&error) == Some(DUPLICATE_NAME) => {}
            Err(error) if lacks_rights(&error) => return Err(Fault::to_run(sql)),
            Err(error) => return Err(fault(error)),
        }
    }
    Ok(())
}

/// Product and version of the server, and the schema; fails unless the schema fits.
pub(crate) async fn server(conn: &mut MySqlConnection) -> Result<Server> {
    let schema = found(conn).await?;
    fits(conn, schema).await?;
    let version: String = sqlx::query_scalar("SELECT version()")
        .fetch_one(&mut *conn)
        .await
        .map_err(fault)?;
    let product = if version.contains("MariaDB") {
        "MariaDB"
    } else {
        "MySQL"
    };
    let is_read_only: i64 = sqlx::query_scalar("SELECT @@global.read_only")
        .fetch_one(conn)
        .await
        .map_err(fault)?;
    Ok(Server {
        name: format!("{product} {version}"),
        schema,
        is_read_only: is_read_only != 0,
    })
}
