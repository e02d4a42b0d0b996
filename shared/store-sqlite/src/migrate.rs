//! The schema: what this program carries and what a file holds.

use std::sync::LazyLock;

use mainspring_shared::store::{Demands, Error, schema_fits};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{SqlStr, SqliteConnection};

use mainspring_store_core::fault::{Fault, Result};

use crate::fault::fault;

/// What `migrations/embed.rs` found: version, title and text of each file.
const EMBEDDED: &[(i64, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

// Built without the macro of sqlx: it alone would have every driver compiled a second time, for the
// compiler.
static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |&(version, title, sql): &(i64, &'static str, &'static str)| {
        let alone = sql.starts_with("-- no-transaction");
        let sql = SqlStr::from_static(sql);
        Migration::new(version, title.into(), MigrationType::Simple, sql, alone)
    };
    Migrator::with_migrations(EMBEDDED.iter().map(migration).collect())
});

/// What to do about a schema that is missing or old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigratePolicy {
    /// Bring it up to date.
    #[default]
    Create,
    /// Refuse to open.
    Verify,
}

/// What `MigratePolicy::Create` executes on an empty file, in order, the record of what was
/// applied included: a file that it was applied to by hand passes `MigratePolicy::Verify`.
pub fn ddl() -> String {
    let migrations = MIGRATOR.iter().map(|it| {
        let (title, sql) = (it.description.as_ref(), it.sql.as_str());
        (it.version, title, sql, it.checksum.as_ref())
    });
    mainspring_store_core::ddl(
        include_str!("../sql/transaction/migrations.sql"),
        migrations,
    )
}

/// The version that this program was built with.
pub(crate) fn needed() -> i64 {
    let versions = MIGRATOR.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

/// The version in the file, 0 when it has no schema.
pub(crate) async fn found(conn: &mut SqliteConnection) -> Result<i64> {
    let tables: i64 = sqlx::query_scalar(include_str!("../sql/transaction/has_schema.sql"))
        .fetch_one(&mut *conn)
        .await
        .map_err(fault)?;
    if tables == 0 {
        return Ok(0);
    }
    let version = sqlx::query_scalar(include_str!("../sql/transaction/schema_version.sql"))
        .fetch_one(conn)
        .await
        .map_err(fault)?;
    Ok(version)
}

/// Fails unless the file has a schema that this program works on.
pub(crate) async fn verify(conn: &mut SqliteConnection) -> Result<i64> {
    let (found, needed) = (found(conn).await?, needed());
    let demands = if found > needed {
        sqlx::query_as(include_str!("../sql/transaction/schema_demands.sql"))
            .fetch_optional(conn)
            .await
            .map_err(fault)?
            .map(|(oldest, protocol)| Demands { oldest, protocol })
    } else {
        None
    };
    schema_fits(found, needed, demands).map_err(Fault::Schema)?;
    Ok(found)
}

/// Makes sure of the schema, as the policy says.
pub(crate) async fn prepare(conn: &mut SqliteConnection, policy: MigratePolicy) -> Result<()> {
    if policy == MigratePolicy::Create && found(conn).await? < needed() {
        MIGRATOR.run(&mut *conn).await.map_err(failed)?;
        return Ok(());
    }
    verify(conn).await.map(drop)
}

/// Makes sure of the index that a journal needs, as the policy says.
pub(crate) async fn index_steps(conn: &mut SqliteConnection, policy: MigratePolicy) -> Result<()> {
    let indexes: i64 = sqlx::query_scalar(include_str!("../sql/transaction/has_steps_at.sql"))
        .fetch_one(&mut *conn)
        .await
        .map_err(fault)?;
    if indexes > 0 {
        return Ok(());
    }
    let statement = include_str!("../sql/transaction/steps_at.sql");
    if policy == MigratePolicy::Verify {
        let (_, statement) = statement.split_once('\n').unwrap_or(("", statement));
        return Err(Fault::to_run(statement.trim_end()));
    }
    let made = sqlx::query(statement).execute(conn).await;
    made.map_err(fault)?;
    Ok(())
}

fn failed(error: MigrateError) -> Fault {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => fault(error),
        other => Fault::Schema(Error::Refused {
            source: Box::new(other),
        }),
    }
}
