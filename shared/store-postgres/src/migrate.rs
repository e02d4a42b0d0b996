//! The schema: the version that this program needs, and migrating a database to it.

use std::fmt::Write as _;
use std::sync::LazyLock;

use mainspring_shared::store::{Demands, Result, schema_fits};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqlStr};

use crate::fault::{Fault, is_undefined_table, refused};
use crate::fence;
use crate::fitness;
use crate::memories;
use crate::retry::sql;
use crate::row_security;
use crate::rows::Fields;
use crate::settings::{SchemaPolicy, Settings};

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

/// The statements that `SchemaPolicy::Create` runs on an empty database, in order, including the
/// record of applied migrations: a database to which they were applied by hand passes
/// `SchemaPolicy::Verify`.
pub fn ddl() -> String {
    let mut text = include_str!("../sql/ledger/migrations.sql").to_owned();
    for migration in MIGRATOR.iter() {
        let (version, title) = (migration.version, &migration.description);
        let sql = migration.sql.as_str().trim_end();
        let checksum = migration
            .checksum
            .iter()
            .fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n-- {version:04} {title}\n\n{sql}\n\n\
             INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)\n\
             VALUES ({version}, '{title}', TRUE, '\\x{checksum}', 0);\n"
        );
    }
    text
}

/// The version of the schema that this program needs.
pub(crate) fn needed() -> i64 {
    let versions = MIGRATOR.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

/// Reads the requirements of a newer schema.
pub(crate) fn demands(row: &PgRow) -> Result<Demands> {
    let mut fields = Fields::new(row, "schema_compatibility");
    Ok(Demands {
        oldest: fields.take("oldest")?,
        protocol: fields.take("protocol")?,
    })
}

/// Fails unless this program works with the schema version of the database.
async fn fits(connection: &mut PgConnection, found: i64) -> Result<()> {
    let needed = needed();
    if found <= needed {
        return schema_fits(found, needed, None);
    }
    let row = sql!("reads/demands").fetch_optional(connection).await;
    let row = row.map_err(Fault::from)?;
    let demands = row.as_ref().map(demands).transpose()?;
    schema_fits(found, needed, demands)
}

/// Creates or verifies the schema, as the policy says; returns whether pgvector is used. Runs on
/// its own connection, so that closing it releases the lock that keeps other processes from
/// migrating at the same time.
pub(crate) async fn prepare(settings: &Settings) -> Result<bool> {
    let server = settings.server()?;
    fitness::check(&server.address).await?;
    let mut connection = server.connect().await?;
    let prepared = match settings.schema {
        SchemaPolicy::Create => match create_namespace(&mut connection, settings).await {
            Ok(()) => migrate(&mut connection).await,
            refused => refused,
        },
        SchemaPolicy::Verify => {
            let found = verify(&mut connection).await?;
            fits(&mut connection, found).await
        }
    };
    let wanted = match settings.schema {
        SchemaPolicy::Create => memories::Wanted::Added,
        SchemaPolicy::Verify => memories::Wanted::Used,
    };
    let pgvector = match prepared {
        Ok(()) if settings.pgvector => memories::prepare(&mut connection, wanted).await,
        prepared => prepared.map(|()| false),
    };
    // After pgvector, whose tables have tenants, too.
    let pgvector = match pgvector {
        Ok(used) if settings.row_security => {
            let walled = row_security::prepare(&mut connection, settings.schema).await;
            walled.map(|()| used)
        }
        pgvector => pgvector,
    };
    let pgvector = match pgvector {
        Ok(used) if settings.fenced => {
            let fenced = fence::prepare(&mut connection, settings.schema).await;
            fenced.map(|()| used)
        }
        pgvector => pgvector,
    };
    // Everything is committed; a failure to close the connection changes nothing.
    let _ = connection.close().await;
    pgvector
}

/// Creates the configured namespace if it is missing. A user who may not create one can still use
/// an existing one.
async fn create_namespace(connection: &mut PgConnection, settings: &Settings) -> Result<()> {
    let Some(namespace) = &settings.namespace else {
        return Ok(());
    };
    let is_there = sqlx::query_scalar("SELECT to_regnamespace($1) IS NOT NULL")
        .bind(namespace)
        .fetch_one(&mut *connection)
        .await;
    if is_there.map_err(Fault::from)? {
        return Ok(());
    }
    // Safe to interpolate: the setting is an identifier. Other processes may create it at the same
    // time.
    let create = format!("CREATE SCHEMA IF NOT EXISTS \"{namespace}\"");
    let created = sqlx::raw_sql(AssertSqlSafe(create))
        .execute(&mut *connection)
        .await;
    match created {
        Err(error) if !is_duplicate(&error) => Err(Fault::from(error).into()),
        _ => Ok(()),
    }
}

/// Whether another process created it at the same time, which `IF NOT EXISTS` does not catch.
fn is_duplicate(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| matches!(code.as_ref(), "23505" | "42P06"))
}

async fn migrate(connection: &mut PgConnection) -> Result<()> {
    let found = verify(connection).await?;
    if found > needed() {
        return fits(connection, found).await;
    }
    match MIGRATOR.run(&mut *connection).await {
        Ok(()) => Ok(()),
        // A newer program has migrated it meanwhile.
        Err(MigrateError::VersionMissing(_)) => {
            let found = verify(connection).await?;
            fits(connection, found).await
        }
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(Fault::from(error).into())
        }
        Err(error) => Err(refused(error)),
    }
}

/// The version of the schema, 0 if there is none. Fails if a migration was changed after it was
/// applied.
async fn verify(connection: &mut PgConnection) -> Result<i64> {
    let applied = sqlx::query(
        "SELECT m.version, m.checksum FROM _sqlx_migrations m WHERE m.success ORDER BY m.version",
    )
    .fetch_all(connection)
    .await;
    let applied = match applied {
        Ok(rows) => rows,
        Err(error) if is_undefined_table(&error) => return Ok(0),
        Err(error) => return Err(Fault::from(error).into()),
    };
    let mut newest = 0;
    for row in applied {
        let version: i64 = row.try_get(0).map_err(refused)?;
        let checksum: Vec<u8> = row.try_get(1).map_err(refused)?;
        let known = MIGRATOR.iter().find(|m| m.version == version);
        if known.is_some_and(|m| *m.checksum != *checksum) {
            return Err(refused(MigrateError::VersionMismatch(version)));
        }
        newest = newest.max(version);
    }
    Ok(newest)
}
