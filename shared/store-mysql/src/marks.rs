//! Whether a transaction was committed whose commit was not answered.
//!
//! Each connection has a row of its own, in which each of its transactions leaves its number. Until
//! the transaction ends it holds the row's lock, so whoever reads the row under a lock knows how it
//! ended.

use std::time::Duration;

use mainspring_shared::time::Timestamp;
use mainspring_store_core::fault::Result;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::time::Instant;

use crate::fault::{LOCK_WAIT_TIMEOUT, fault, number};
use crate::pool::{Pool, ask};

/// How long to ask for how a transaction ended. Shorter than a caller would repeat it.
const ASK_MAX: Duration = Duration::from_secs(8);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(100);
/// Every so many transactions, rows of connections that were closed long ago are deleted.
const TIDY_EVERY: u64 = 512;

/// A transaction: its number, and the connection that it has the row of.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    n: u64,
    slot: String,
    connection: u64,
}

/// What is known of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Committed,
    RolledBack,
    Unknown,
}

/// Begins a transaction that leaves this number; returns the server's time in it.
pub(crate) async fn begin(conn: &mut MySqlConnection, n: u64) -> Result<(Mark, Timestamp)> {
    let mut begin = format!(
        "START TRANSACTION; INSERT INTO commit_marks (slot, n, at) \
         VALUES (@mainspring_mark, {n}, UNIX_TIMESTAMP()) \
         ON DUPLICATE KEY UPDATE n = {n}, at = UNIX_TIMESTAMP()"
    );
    if n.is_multiple_of(TIDY_EVERY) {
        begin.push_str("; DELETE FROM commit_marks WHERE at < UNIX_TIMESTAMP() - 86400 LIMIT 100");
    }
    conn.execute(sqlx::raw_sql(AssertSqlSafe(begin)))
        .await
        .map_err(fault)?;
    let now = "SELECT CAST(FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000) AS SIGNED), \
               CAST(CONNECTION_ID() AS UNSIGNED), CAST(@mainspring_mark AS CHAR)";
    let row: (i64, u64, String) = sqlx::query_as(now).fetch_one(conn).await.map_err(fault)?;
    let (now, connection, slot) = row;
    let mark = Mark {
        n,
        slot,
        connection,
    };
    Ok((mark, Timestamp(now)))
}

/// How a transaction ended whose connection was lost while it was being committed.
pub(crate) async fn ended(pool: &Pool, mark: &Mark) -> Ended {
    let start = Instant::now();
    while start.elapsed() < ASK_MAX {
        match look(pool, mark).await {
            Ok(Some(true)) => return Ended::Committed,
            Ok(Some(false)) => return Ended::RolledBack,
            Ok(None) | Err(_) => mainspring_store_core::pause(PAUSE).await,
        }
    }
    Ended::Unknown
}

/// Ends the lost connection, which may hold locks for hours, and reads its row. `None` while the
/// transaction goes on.
async fn look(pool: &Pool, mark: &Mark) -> Result<Option<bool>> {
    let mut held = pool.take().await?;
    ask!(&mut held, |conn| end(conn, mark.connection))?;
    let found = ask!(&mut held, |conn| read(conn, mark))?;
    Ok(found.map(|n| n == Some(mark.n)))
}

async fn end(conn: &mut MySqlConnection, connection: u64) -> Result<()> {
    // A server that took over has other connections, perhaps with this number.
    let ours = "SELECT count(*) FROM information_schema.processlist p \
                WHERE p.id = ? AND p.db = database() AND p.user = substring_index(user(), '@', 1)";
    let ours: i64 = sqlx::query_scalar(ours)
        .bind(connection)
        .fetch_one(&mut *conn)
        .await
        .map_err(fault)?;
    if ours > 0 {
        // It may have ended meanwhile.
        let kill = AssertSqlSafe(format!("KILL {connection}"));
        let _ = conn.execute(sqlx::raw_sql(kill)).await;
    }
    Ok(())
}

/// The number in the row of a mark's connection, if no transaction has it locked.
async fn read(conn: &mut MySqlConnection, mark: &Mark) -> Result<Option<Option<u64>>> {
    let read = "SELECT CAST(n AS UNSIGNED) FROM commit_marks WHERE slot = ? FOR UPDATE";
    let found = sqlx::query_scalar(read).bind(&mark.slot);
    match found.fetch_optional(conn).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => Ok(None),
        Err(error) => Err(fault(error)),
    }
}
