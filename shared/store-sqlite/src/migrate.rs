//! The schema: the version that this program needs, and the one in a file.

use std::sync::LazyLock;

use mainspring_shared::store::{Demands, Error, schema_fits};
use rusqlite::OptionalExtension as _;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{ConnectOptions as _, Connection as _, SqlStr};

use mainspring_store_core::fault::{Fault, Result};

use crate::driver::Driver;
use crate::fault::{fault, migration_fault};
use crate::options::SqliteOptions;

/// The migrations embedded by `migrations/embed.rs`: version, title and text of each file.
const EMBEDDED: &[(i64, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

// Built without the macro of sqlx, which alone would compile all drivers a second time, for the
// build host.
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

/// The statements that `MigratePolicy::Create` runs on an empty file, in order, including the
/// record of applied migrations: a file to which they were applied by hand passes
/// `MigratePolicy::Verify`.
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

/// The schema version that this program needs.
pub(crate) fn needed() -> i64 {
    let versions = MIGRATOR.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

/// The schema version of the file, 0 if it has no schema.
pub(crate) fn found(driver: &mut Driver) -> Result<i64> {
    let has_schema = include_str!("../sql/transaction/has_schema.sql");
    if driver.number(has_schema, &[]).map_err(fault)? == 0 {
        return Ok(0);
    }
    let version = include_str!("../sql/transaction/schema_version.sql");
    driver.number(version, &[]).map_err(fault)
}

/// Fails unless this program works with the file's schema.
pub(crate) fn verify(driver: &mut Driver) -> Result<i64> {
    let (found, needed) = (found(driver)?, needed());
    let demands = if found > needed {
        let sql = include_str!("../sql/transaction/schema_demands.sql");
        let demands = driver.raw().query_row(sql, (), |row| {
            Ok(Demands {
                oldest: row.get(0)?,
                protocol: row.get(1)?,
            })
        });
        demands.optional().map_err(fault)?
    } else {
        None
    };
    schema_fits(found, needed, demands).map_err(Fault::Schema)?;
    Ok(found)
}

/// Creates or verifies the schema, as the policy says.
pub(crate) async fn prepare(
    driver: &mut Driver,
    options: &SqliteOptions,
    policy: MigratePolicy,
) -> Result<()> {
    if policy == MigratePolicy::Create && found(driver)? < needed() {
        let conn = options.migrator().connect().await;
        let mut conn = conn.map_err(migration_fault)?;
        MIGRATOR.run(&mut conn).await.map_err(failed)?;
        return conn.close().await.map_err(migration_fault);
    }
    verify(driver).map(drop)
}

/// Creates or verifies the index that a journal needs, as the policy says.
pub(crate) fn index_steps(driver: &mut Driver, policy: MigratePolicy) -> Result<()> {
    let indexes = include_str!("../sql/transaction/has_steps_at.sql");
    if driver.number(indexes, &[]).map_err(fault)? > 0 {
        return Ok(());
    }
    let statement = include_str!("../sql/transaction/steps_at.sql");
    if policy == MigratePolicy::Verify {
        let (_, statement) = statement.split_once('\n').unwrap_or(("", statement));
        return Err(Fault::to_run(statement.trim_end()));
    }
    driver.execute(statement).map_err(fault)
}

fn failed(error: MigrateError) -> Fault {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            migration_fault(error)
        }
        other => Fault::Schema(Error::Refused {
            source: Box::new(other),
        }),
    }
}
