//! The invariants as queries.

use futures::TryStreamExt;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::blob::NamedBlobs;
use mainspring_shared::id::TimerId;
use mainspring_shared::invariants::{NAMED, READABLE};
use mainspring_shared::store::{AuditOptions, Result, Violation};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Calendar, Occurrence, TimerRule};
use mainspring_shared::workflow::run::{NodeRecord, RunAsk};
use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::fault::Fault;
use crate::lists;
use crate::retry::{Attempts, PgQuery, Pool, Verdict, sql, text};
use crate::rows::Fields;
use crate::{agents, blobs, folds, memories, projections};

macro_rules! audit {
    ($name:literal) => {
        ($name, include_str!(concat!("../sql/audit/", $name, ".sql")))
    };
}

/// The invariants in the order of `shared::invariants`.
const AUDITS: &[(&str, &str)] = &[
    audit!("send.one_final_step"),
    audit!("send.final_is_last"),
    audit!("session.seq_gap_free"),
    audit!("session.steps_gap_free"),
    audit!("session.positions_unique"),
    audit!("session.pending_matches"),
    audit!("session.ready_iff_work"),
    audit!("session.erased"),
    audit!("session.one_active_send"),
    audit!("epoch.never_decreases"),
    audit!("epoch.one_boot"),
    audit!("epoch.granted"),
    audit!("call.one_result"),
    audit!("call.settled_shape"),
    audit!("inbox.one_fate"),
    audit!("child.reported"),
    audit!("send.running_has_lease"),
    audit!("usage.matches_rounds"),
    audit!("send.shape"),
    audit!("run.leaf_one_send"),
    audit!("run.final_is_quiet"),
    audit!("run.steps_gap_free"),
    audit!("timer.fired_once"),
    audit!("timer.never_early"),
    audit!("timer.shape"),
    audit!("call.asked"),
    audit!("message.has_step"),
    audit!("send.unstarted_is_silent"),
    audit!("usage.sums"),
    audit!("budget.kept"),
    audit!("boot.in_flight"),
    audit!("tenant.own_rows"),
    audit!("send.rounds_in_order"),
    audit!("fold.in_order"),
    audit!("agent.versions"),
    audit!("skill.complete"),
    audit!("tenant.exists"),
    audit!("blob.held"),
    audit!("projection.of_send"),
    audit!("tenant.seats"),
    audit!("tenant.money"),
];

/// Checks every invariant. Each query sees one snapshot, so live traffic does not disturb it.
pub(crate) async fn audit(
    pool: &Pool,
    at: Option<Timestamp>,
    options: AuditOptions,
) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    let mut unreadable = Vec::new();
    for (name, text) in AUDITS {
        let rows = match rows(pool, || query(text, at, options)).await {
            Ok(mut rows) if *name == COMPUTED => {
                let max = options.rows_max as usize;
                rows.extend(off_course(pool, max).await?);
                rows.truncate(max);
                rows
            }
            Ok(rows) => rows,
            // The query fails on an unreadable row, which is reported below.
            Err(error) if error.is_of_data() => {
                unreadable.push(json!({ "unchecked": name, "detail": error.to_string() }));
                continue;
            }
            Err(error) => return Err(error),
        };
        if !rows.is_empty() {
            violations.push(Violation {
                invariant: (*name).to_owned(),
                rows,
            });
        }
    }
    let read = read_all(pool, options.rows_max as usize).await?;
    unreadable.extend(read.unreadable);
    if !read.unheld.is_empty() {
        violations.push(Violation {
            invariant: NAMED.to_owned(),
            rows: read.unheld,
        });
    }
    if !unreadable.is_empty() {
        violations.push(Violation {
            invariant: READABLE.to_owned(),
            rows: unreadable,
        });
    }
    Ok(violations)
}

/// The invariant for which the schedules of timers are recomputed.
const COMPUTED: &str = "timer.never_early";

/// Finds occurrences that their timers' schedules do not allow, at most `max`.
async fn off_course(pool: &Pool, max: usize) -> Result<Vec<Value>> {
    let mut attempts = Attempts::default();
    loop {
        let read = attempts.on(pool, async |connection| {
            let mut found = Vec::new();
            let mut calendar: Option<Calendar> = None;
            let mut rows = sql!("timers/courses").persistent(false).fetch(connection);
            while let Some(row) = rows.try_next().await? {
                let Ok((timer, rule, created_at, occurrence)) = course(&row) else {
                    // It is reported among the unreadable rows.
                    continue;
                };
                if calendar.as_ref().is_none_or(|known| known.timer() != timer) {
                    calendar = Some(Calendar::new(timer, rule, created_at));
                }
                if calendar
                    .as_mut()
                    .is_some_and(|calendar| !calendar.allows(&occurrence))
                {
                    let (n, due_at) = (occurrence.n, occurrence.due_at);
                    found.push(json!({ "timer": timer, "n": n, "due_at": due_at }));
                }
                if found.len() >= max {
                    break;
                }
            }
            Ok(found)
        });
        match read.await {
            Ok(rows) => return Ok(rows),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

fn course(row: &PgRow) -> Result<(TimerId, TimerRule, Timestamp, Occurrence)> {
    let mut fields = Fields::new(row, "timers");
    let timer = TimerId(fields.take("timer_id")?);
    let rule = fields.json("rule")?;
    let created_at = fields.time("created_at")?;
    Ok((timer, rule, created_at, fields.occurrence()?))
}

/// Reads a row to check that it can be read, and records only the blobs that it names.
type Try = fn(&PgRow, &mut NamedBlobs) -> Result<()>;

/// Returns the text of a statement.
type Text = fn() -> &'static str;

/// All kinds of rows that contain more than numbers.
const KINDS: &[(Text, Try)] = &[
    (
        || text!("reads/dump_sends"),
        |row, named| {
            let mut fields = Fields::new(row, "sends");
            named.send(&fields.send()?);
            Ok(())
        },
    ),
    (
        || text!("reads/dump_agents"),
        |row, _| {
            let mut fields = Fields::new(row, "agents");
            let key = fields.key()?;
            fields.name_row(key.to_string());
            fields.json::<AgentSpec>("spec").map(drop)
        },
    ),
    (
        || text!("reads/dump_messages"),
        |row, named| {
            let mut fields = Fields::new(row, "messages");
            let key = fields.key()?;
            named.message(key, &fields.message()?);
            Ok(())
        },
    ),
    (
        || text!("reads/dump_folds"),
        |row, _| folds::read(&mut Fields::new(row, "folds")).map(drop),
    ),
    (
        || text!("reads/dump_projections"),
        |row, _| projections::read(&mut Fields::new(row, "projections")).map(drop),
    ),
    (
        || text!("reads/dump_steps"),
        |row, _| {
            let mut fields = Fields::new(row, "steps");
            fields.key()?;
            fields.step().map(drop)
        },
    ),
    (
        || text!("reads/dump_calls"),
        |row, named| {
            let mut fields = Fields::new(row, "tool_calls");
            let key = fields.key()?;
            named.call(key, &fields.call()?);
            Ok(())
        },
    ),
    (
        || text!("reads/dump_inbox"),
        |row, named| {
            let mut fields = Fields::new(row, "inbox");
            let key = fields.key()?;
            named.item(key, &fields.item()?);
            Ok(())
        },
    ),
    (
        || text!("reads/dump_lists"),
        |row, _| lists::dumped(row).map(drop),
    ),
    (
        || text!("runs/dump"),
        |row, _| {
            let mut fields = Fields::new(row, "runs");
            fields.run().map(drop)
        },
    ),
    (
        || text!("runs/dump_nodes"),
        |row, _| {
            let mut fields = Fields::new(row, "run_nodes");
            let key = fields.run_key()?;
            fields.name_row(key.to_string());
            fields.json::<NodeRecord>("node").map(drop)
        },
    ),
    (
        || text!("runs/dump_asks"),
        |row, _| {
            let mut fields = Fields::new(row, "run_asks");
            let key = fields.run_key()?;
            fields.name_row(key.to_string());
            fields.json::<RunAsk>("ask").map(drop)
        },
    ),
    (
        || text!("reads/dump_timers"),
        |row, named| {
            let mut fields = Fields::new(row, "timers");
            named.timer(&fields.timer()?);
            Ok(())
        },
    ),
    (
        || text!("reads/dump_agent_versions"),
        |row, _| agents::read_version(&mut Fields::new(row, "agent_versions")).map(drop),
    ),
    (
        || text!("memories/dump"),
        |row, _| memories::entry(row).map(drop),
    ),
];

/// What reading every row once has found.
#[derive(Default)]
struct Read {
    unreadable: Vec<Value>,
    /// Blobs that are named but not held.
    unheld: Vec<Value>,
}

/// Reads every row. At most `max` findings of each kind are kept.
async fn read_all(pool: &Pool, max: usize) -> Result<Read> {
    let mut attempts = Attempts::default();
    loop {
        let read = attempts.on(pool, async |connection| read_once(connection, max).await);
        match read.await {
            Ok(read) => return Ok(read),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn read_once(connection: &mut PgConnection, max: usize) -> std::result::Result<Read, Fault> {
    // One snapshot for all tables: a blob's hold may be removed after the row that names it was
    // read.
    let mut tx = connection
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let mut found = Read::default();
    let mut named = NamedBlobs::default();
    'kinds: for (text, read) in KINDS {
        let mut rows = sqlx::query(text()).persistent(false).fetch(&mut *tx);
        while let Some(row) = rows.try_next().await? {
            let error = read(&row, &mut named).err();
            found.unreadable.extend(error.map(|error| error.row()));
            if found.unreadable.len() >= max {
                break 'kinds;
            }
        }
    }
    found.unheld = blobs::unheld(&mut tx, named, max).await?;
    tx.commit().await?;
    Ok(found)
}

async fn rows(pool: &Pool, make: impl Fn() -> PgQuery) -> Result<Vec<Value>> {
    let mut attempts = Attempts::default();
    loop {
        let query = make();
        let read = attempts.on(pool, async |connection| read(connection, query).await);
        match read.await {
            Ok(rows) => return Ok(rows),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn read(
    connection: &mut PgConnection,
    query: PgQuery,
) -> std::result::Result<Vec<Value>, Fault> {
    let mut tx = connection.begin().await?;
    // Whole tables are read and joined. If they are larger than the planner's statistics say, it
    // would choose nested loops over half a key, which take forever; hash joins over whole keys are
    // always good enough.
    sqlx::query(
        "SELECT set_config('enable_nestloop', 'off', TRUE),
            set_config('enable_mergejoin', 'off', TRUE), set_config('work_mem', '32MB', TRUE)",
    )
    .execute(&mut *tx)
    .await?;
    let rows = query.fetch_all(&mut *tx).await?;
    tx.commit().await?;
    let rows = rows.iter();
    let rows = rows.map(|row| Fields::new(row, "audit").json("row"));
    Ok(rows.collect::<Result<_>>()?)
}

fn query(text: &'static str, at: Option<Timestamp>, options: AuditOptions) -> PgQuery {
    sqlx::query(text)
        .bind(at.map(|at| at.0))
        .bind(options.takeover_bound.as_millis() as i64)
        .bind(i64::from(options.rows_max))
        .persistent(false)
}

#[cfg(test)]
mod tests {
    use mainspring_shared::invariants::INVARIANTS;

    #[test]
    fn every_invariant_has_its_query() {
        let known: Vec<_> = INVARIANTS.iter().map(|(name, _)| *name).collect();
        let queried: Vec<_> = super::AUDITS.iter().map(|(name, _)| *name).collect();
        let (by_query, by_reading) = known.split_at(known.len() - 2);
        assert_eq!(queried, by_query);
        assert_eq!(by_reading, [super::NAMED, super::READABLE]);
    }
}
