//! Whether a database can be used at all, as far as its schema does not tell: asked before anything
//! is written.

use std::time::Duration;

use mainspring_shared::store::{Denial, Error, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use crate::fault::Fault;

/// How long to wait for a second connection.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Fails unless the database stores any text, and gives each connection a session of its own.
pub(crate) async fn check(server: &PgConnectOptions) -> Result<()> {
    let mut one = connect(server).await?;
    let encoding: String = ask(&mut one, "SHOW server_encoding").await?;
    // SQL_ASCII stores whatever bytes it is sent.
    if !matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") {
        return Err(denied(
            Denial::Encoding,
            format!("its encoding is {encoding}"),
        ));
    }
    // A pooler whose clients wait for each other has given this process a session of its own.
    let Ok(other) = timeout(WAIT_MAX, connect(server)).await else {
        return Ok(());
    };
    let mut other = other?;
    let pid = "SELECT pg_backend_pid()::text";
    let mut seen = Vec::new();
    for _ in 0..2 {
        let pids: (String, String) = (ask(&mut one, pid).await?, ask(&mut other, pid).await?);
        seen.push(pids);
    }
    let (first, second) = &seen[0];
    if first == second || seen[0] != seen[1] {
        let said = "two connections share one session of the server";
        return Err(denied(Denial::Session, said.to_owned()));
    }
    // Nothing depends on how they end.
    let _ = one.close().await;
    let _ = other.close().await;
    Ok(())
}

async fn connect(server: &PgConnectOptions) -> Result<PgConnection> {
    let connected = PgConnection::connect_with(server).await;
    Ok(connected.map_err(Fault::from)?)
}

/// The text that a statement returns. Without preparing it, which a pooler may not allow.
async fn ask(connection: &mut PgConnection, sql: &'static str) -> Result<String> {
    use sqlx::{Executor as _, Row as _};
    let row = connection.fetch_one(sqlx::raw_sql(sql)).await;
    let text = row.and_then(|row| row.try_get_unchecked(0));
    Ok(text.map_err(Fault::from)?)
}

fn denied(why: Denial, said: String) -> Error {
    Error::Denied {
        why,
        source: said.into(),
    }
}
