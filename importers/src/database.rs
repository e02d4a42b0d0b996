//! Read-only access to databases of others: one snapshot, and statements whose columns are texts, integers or bytes.
//!
//! A database may be hostile: nothing that its schema could execute is used, cells have a maximum length, and a cell of
//! another type than expected is a fault of its row alone.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    SqliteConnection,
};

use crate::Error;

/// How long a database that is being written to may make us wait.
const BUSY: Duration = Duration::from_secs(10);

/// Maximum length of a cell in bytes.
pub(crate) const CELL_BYTES_MAX: u64 = 32 << 20;

/// Maximum length of an id in bytes.
pub(crate) const ID_BYTES_MAX: u64 = 1 << 10;

/// A database with a snapshot of what it holds.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(Box<SqliteConnection>),
    Postgres(Box<PgConnection>),
}

/// A row; `None` where a cell is null.
#[derive(Debug)]
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bind<'a> {
    Text(&'a str),
    Int(i64),
}

impl Database {
    /// Opens a SQLite file by its path or `sqlite:` URL, or a Postgres database by its URL.
    pub(crate) async fn open(address: &str) -> Result<Self, Error> {
        let scheme = address.split_once("://").map(|(scheme, _)| scheme);
        let scheme = scheme.map(|scheme| scheme.split('+').next().unwrap_or(scheme));
        match scheme {
            Some("postgres" | "postgresql") => Self::postgres(address).await,
            Some("sqlite") | None => Self::sqlite(&path(address)).await,
            Some(other) => Err(Error::Address(format!(
                "{other}:// is not read: name a SQLite file or a postgres:// URL"
            ))),
        }
    }

    async fn sqlite(path: &str) -> Result<Self, Error> {
        if !Path::new(path).is_file() {
            return Err(Error::Address(format!("there is no file {path}")));
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(BUSY)
            // Nothing of the schema is executed, and damage is found instead of followed.
            .pragma("trusted_schema", "OFF")
            .pragma("query_only", "ON")
            .pragma("cell_size_check", "ON")
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        connection.execute("BEGIN").await?;
        Ok(Self::Sqlite(Box::new(connection)))
    }

    async fn postgres(url: &str) -> Result<Self, Error> {
        // SQLAlchemy's form names a driver.
        let url = match url.split_once("://") {
            Some((_, rest)) => format!("postgres://{rest}"),
            None => url.to_owned(),
        };
        let options = PgConnectOptions::from_str(&url)
            .map_err(|_| Error::Address("the postgres:// URL is not valid".to_owned()))?
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        connection
            .execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .await?;
        connection
            .execute("SET LOCAL statement_timeout = '10min'")
            .await?;
        Ok(Self::Postgres(Box::new(connection)))
    }

    /// Ends the snapshot.
    pub(crate) async fn close(self) {
        // There is nothing to lose.
        match self {
            Self::Sqlite(connection) => drop(connection.close().await),
            Self::Postgres(connection) => drop(connection.close().await),
        }
    }

    /// The rows of a statement with `$1`, `$2`, …, built of names that were checked.
    pub(crate) async fn rows(
        &mut self,
        sql: String,
        binds: &[Bind<'_>],
    ) -> Result<Vec<Row>, Error> {
        match self {
            Self::Sqlite(connection) => {
                let mut query = sqlx::query(AssertSqlSafe(sql));
                for bind in binds {
                    query = match *bind {
                        Bind::Text(text) => query.bind(text.to_owned()),
                        Bind::Int(number) => query.bind(number),
                    };
                }
                let rows = query.fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(connection) => {
                let mut query = sqlx::query(AssertSqlSafe(sql));
                for bind in binds {
                    query = match *bind {
                        Bind::Text(text) => query.bind(text.to_owned()),
                        Bind::Int(number) => query.bind(number),
                    };
                }
                let rows = query.fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// The number that a statement counts.
    pub(crate) async fn count(&mut self, sql: String, binds: &[Bind<'_>]) -> Result<u64, Error> {
        let rows = self.rows(sql, binds).await?;
        let count = rows.first().and_then(|row| row.int(0).ok().flatten());
        Ok(count
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0))
    }

    /// The columns of an ordinary table; none if there is no such table. Views are none: they could compute anything.
    pub(crate) async fn columns(&mut self, table: &str) -> Result<Vec<String>, Error> {
        let sql = match self {
            Self::Sqlite(_) => {
                "SELECT c.name FROM sqlite_master t, pragma_table_info(t.name) c \
                 WHERE t.type = 'table' AND t.name = $1 AND t.sql NOT LIKE 'CREATE VIRTUAL%'"
            }
            Self::Postgres(_) => {
                "SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
                 WHERE c.oid = to_regclass(quote_ident($1)) AND c.relkind IN ('r', 'p') \
                 AND a.attnum > 0 AND NOT a.attisdropped"
            }
        };
        let rows = self.rows(sql.to_owned(), &[Bind::Text(table)]).await?;
        Ok(rows
            .iter()
            .filter_map(|row| row.text(0).ok().flatten())
            .collect())
    }
}

/// The path in a `sqlite:` URL: three slashes before a relative one, four before an absolute one, as in SQLAlchemy.
fn path(address: &str) -> String {
    let rest = address.split_once("://").map(|(_, rest)| rest);
    let rest = rest.map(|rest| rest.strip_prefix('/').unwrap_or(rest));
    rest.or_else(|| address.strip_prefix("sqlite:"))
        .unwrap_or(address)
        .to_owned()
}

/// A column as a text, or null if it is longer than a cell may be. Its length is another column.
pub(crate) fn text_column(name: &str) -> String {
    short_column(name, CELL_BYTES_MAX)
}

/// A column as a text, or null if it has more bytes than this.
pub(crate) fn short_column(name: &str, bytes_max: u64) -> String {
    format!("CASE WHEN octet_length({name}) <= {bytes_max} THEN CAST({name} AS TEXT) END")
}

impl Row {
    /// A column that is a text.
    pub(crate) fn text(&self, column: usize) -> Result<Option<String>, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// A column that is an integer of 64 bits.
    pub(crate) fn int(&self, column: usize) -> Result<Option<i64>, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// A column that is bytes.
    pub(crate) fn bytes(&self, column: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_urls_are_as_sqlalchemy_has_them() {
        assert_eq!(path("sqlite:///rel.db"), "rel.db");
        assert_eq!(path("sqlite:////abs/x.db"), "/abs/x.db");
        assert_eq!(path("sqlite:x.db"), "x.db");
        assert_eq!(path("dir/x.db"), "dir/x.db");
    }

    #[tokio::test]
    async fn a_view_in_place_of_a_table_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.db");
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true);
        let mut made = options.connect().await.expect("a database");
        let schema = "CREATE TABLE plain (a TEXT); CREATE VIEW messages AS \
                      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n;";
        made.execute(schema).await.expect("a schema");
        made.close().await.expect("closed");
        let mut database = Database::open(&file.to_string_lossy())
            .await
            .expect("opens");
        assert_eq!(database.columns("plain").await.expect("columns"), ["a"]);
        assert!(
            database
                .columns("messages")
                .await
                .expect("columns")
                .is_empty()
        );
        let refused = database.rows("DELETE FROM plain".to_owned(), &[]).await;
        assert!(matches!(refused, Err(Error::Database(_))));
        database.close().await;
    }

    #[tokio::test]
    async fn databases_of_other_kinds_are_refused_without_their_secrets() {
        let refused = Database::open("mysql://user:secret@host/db").await;
        let said = refused.expect_err("refused").to_string();
        assert_eq!(
            said,
            "mysql:// is not read: name a SQLite file or a postgres:// URL"
        );
    }
}
