//! What a database has besides conversations.

use crate::database::{Database, ID_BYTES_MAX, short_column};
use crate::error::Error;
use crate::left_out::LeftOut;

use super::Layout;

/// Tables without a counterpart, with what their rows are.
const TABLES: [(&str, &str); 9] = [
    ("usage_rounds", "usage of rounds"),
    ("session_stats", "usage of sessions"),
    ("hook_events", "records of hooks"),
    ("project_messages", "projections of sends"),
    ("background_tasks", "background commands"),
    ("shared_state", "shared states: boards and others"),
    ("session_leases", "leases"),
    ("context_cache", "cached contexts"),
    ("context_attempts", "attempts at contexts"),
];

/// Tables whose rows belong to sessions.
const OWNED: [&str; 3] = ["messages", "notes", "timers"];

/// Most names of runtime states that are read.
const STATES_MAX: usize = 10_000;

pub(super) async fn count(
    database: &mut Database,
    layout: &Layout,
    left: &mut LeftOut,
) -> Result<(), Error> {
    for (name, what) in TABLES {
        let table = layout.table(name);
        if !database.columns(&table).await?.is_empty() {
            let count = database
                .count(format!("SELECT count(*) FROM {table}"), &[])
                .await?;
            left.add_many(what, count);
        }
    }
    inbox(database, layout, left).await?;
    states(database, layout, left).await?;
    for name in OWNED {
        let table = layout.table(name);
        if database.columns(&table).await?.is_empty() {
            continue;
        }
        let sessions = layout.table("sessions");
        let sql = format!(
            "SELECT count(*) FROM {table} t WHERE NOT EXISTS \
             (SELECT 1 FROM {sessions} s WHERE s.session_id = t.session_id)"
        );
        let count = database.count(sql, &[]).await?;
        left.add_many(&format!("{name} of sessions that do not exist"), count);
    }
    Ok(())
}

/// Messages that were accepted, but not delivered. Those that were are part of transcripts.
async fn inbox(database: &mut Database, layout: &Layout, left: &mut LeftOut) -> Result<(), Error> {
    let table = layout.table("follow_up_queue");
    let columns = database.columns(&table).await?;
    if columns.is_empty() {
        return Ok(());
    }
    let open = if columns.iter().any(|column| column == "status") {
        "WHERE status <> 'delivered'"
    } else {
        ""
    };
    let sql = format!("SELECT count(*) FROM {table} {open}");
    let count = database.count(sql, &[]).await?;
    left.add_many("follow-ups that were not delivered", count);
    Ok(())
}

/// What tools, workflows and hosts keep, by the first word of its name.
async fn states(database: &mut Database, layout: &Layout, left: &mut LeftOut) -> Result<(), Error> {
    let table = layout.table("session_runtime_state");
    if database.columns(&table).await?.is_empty() {
        return Ok(());
    }
    let key = layout.state_key;
    let sql = format!(
        "SELECT {}, count(*) FROM {table} WHERE {key} <> 'todo' GROUP BY {key} LIMIT {STATES_MAX}",
        short_column(key, ID_BYTES_MAX)
    );
    for row in database.rows(sql, &[]).await? {
        let name = row.text(0).ok().flatten().unwrap_or_default();
        let name = name.split([':', '/']).next().unwrap_or_default();
        let count = row.int(1).ok().flatten().unwrap_or(0);
        left.add_many(&format!("states of tools: {name}"), count as u64);
    }
    Ok(())
}
