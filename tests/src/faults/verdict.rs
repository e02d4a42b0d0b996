//! The end of a fault test: the system comes to rest, and everything is compared.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::caller::RetryingClient;
use super::cluster::{Cluster, say};
use super::evidence::{self, Evidence, violations};
use super::load::{Load, accepted, text};
use crate::history::{self, History, Op, Reading, Told};

/// The most differences printed.
const SHOWN: usize = 20;

/// A summary of a test.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Sends that were accepted and ended.
    pub sends: usize,
    /// Model calls.
    pub calls: usize,
    /// Faults injected.
    pub faults: usize,
    /// Model calls beyond one per round: answers that a fault lost.
    pub repeated: usize,
}

/// Lets clients finish, audits the database, compares it with what clients were told and what the
/// model was asked, and prints the totals. Fails on any difference.
pub async fn settle(name: &str, cluster: &mut Cluster, mut load: Load) -> Result<Report> {
    let mut told = load.finish().await.context("a client gave up")?;
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    // A key refers to the same send no matter how late it is reused.
    for one in &mut told {
        let path = format!("/v1/sessions/{}/sends", one.session);
        let body = json!({ "input": one.text });
        let answer = caller.post(&path, &body, &one.key).await?;
        one.ids.push(text(&accepted(&answer)?, "id")?);
    }
    let steps = steps(cluster)?;
    load.watched(&steps).await?;
    let evidence = gather(cluster, &load, told, steps, &mut caller).await?;
    let mut found = violations(&evidence);
    found.extend(history::violations(&heard(&load, &evidence)));
    let report = Report {
        sends: evidence.told.len(),
        calls: evidence.calls.len(),
        faults: evidence.faults.len(),
        repeated: evidence.repeated_calls(),
    };
    say(&format!("{name}: {report:?}"));
    if !found.is_empty() {
        let shown = &found[..found.len().min(SHOWN)];
        bail!("{} differences:\n{}", found.len(), shown.join("\n"));
    }
    cluster.audit()?;
    let fallen = cluster.fallen();
    if !fallen.is_empty() {
        bail!("ended by themselves: {}", fallen.join(", "));
    }
    Ok(report)
}

async fn gather(
    cluster: &Cluster,
    load: &Load,
    told: Vec<evidence::Told>,
    steps: BTreeMap<String, i64>,
    caller: &mut RetryingClient,
) -> Result<Evidence> {
    let mut evidence = Evidence {
        steps,
        silent: silent(cluster)?,
        sends: cluster.query("SELECT count(*) FROM sends")?.parse()?,
        sessions: lines(&cluster.query("SELECT session_id FROM session_hot")?, named),
        queued: lines(&cluster.redis.command(&["EVAL", QUEUED, "0"])?, queued),
        calls: cluster.model.ledger().entries(),
        faults: cluster.fault_log.faults(),
        ..Evidence::default()
    };
    for one in &told {
        let id = one.ids[0].clone();
        let send = caller.get(&format!("/v1/sends/{id}")).await?;
        evidence.read_again.insert(id, send);
    }
    for session in &load.sessions {
        let path = format!("/v1/sessions/{session}/messages");
        let messages = caller.all(&path).await?;
        evidence.transcripts.insert(session.clone(), messages);
    }
    for (session, seen) in &load.seen {
        let seen = seen.lock().map(|seen| seen.clone()).unwrap_or_default();
        let ids = seen.iter().filter_map(|event| event.id.as_deref());
        let ids: Result<Vec<_>> = ids.map(place).collect();
        evidence.watched.insert(session.clone(), ids?);
    }
    evidence.told = told;
    Ok(evidence)
}

/// The clients' record made at the time, with everything as read at the end.
fn heard(load: &Load, evidence: &Evidence) -> History {
    let book = &load.book;
    for (send, read) in &evidence.read_again {
        let op = Op::Read { send: send.clone() };
        let begun = book.moment();
        book.note(usize::MAX, begun, op, Told::Yes(read.clone()));
    }
    for (session, messages) in &evidence.transcripts {
        let op = Op::Transcript {
            session: session.clone(),
        };
        let begun = book.moment();
        let messages = Told::Yes(Value::Array(messages.clone()));
        book.note(usize::MAX, begun, op, messages);
    }
    let readings = load.seen.iter().map(|(session, seen)| Reading {
        session: session.clone(),
        events: seen.lock().map(|seen| seen.clone()).unwrap_or_default(),
        whole: true,
    });
    History {
        entries: book.entries(),
        readings: readings.collect(),
    }
}

fn place(id: &str) -> Result<(i64, i64)> {
    let (n, i) = id.split_once('.').context("an event's id has a point")?;
    Ok((n.parse()?, i.parse()?))
}

/// Steps that nobody is notified of: those without a message and without a round.
/// The members are matched as text, because databases read JSON differently.
const SILENT: &str = "kind IN ('round', 'calls') AND refs NOT LIKE '%\"messages\":%' \
                      AND refs NOT LIKE '%\"round\":%'";

/// The last step with events of each session, read from the database.
fn steps(cluster: &Cluster) -> Result<BTreeMap<String, i64>> {
    let last = format!(
        "SELECT h.session_id, coalesce(max(s.n), 0) FROM session_hot h \
         LEFT JOIN steps s ON s.session_id = h.session_id AND NOT ({SILENT}) GROUP BY 1"
    );
    Ok(numbered(cluster, &last)?.into_iter().collect())
}

/// Steps without events, read from the database.
fn silent(cluster: &Cluster) -> Result<BTreeSet<(String, i64)>> {
    let which = format!("SELECT session_id, n FROM steps WHERE {SILENT}");
    Ok(numbered(cluster, &which)?.into_iter().collect())
}

/// The sessions named by jobs in the queue: `TENANT.SESSION` each, as `queue-redis` writes them.
const QUEUED: &str = "\
    local found = {} \
    for _, lane in ipairs(redis.call('KEYS', 'mainspring:*:data')) do \
        for _, job in ipairs(redis.call('HVALS', lane)) do \
            for entry in string.gmatch(job, '[^,]+') do table.insert(found, entry) end \
        end \
    end \
    return found";

/// The parsed form of each non-empty line.
fn lines(text: &str, read: impl Fn(&str) -> String) -> BTreeSet<String> {
    let filled = text.lines().filter(|line| !line.is_empty());
    filled.map(read).collect()
}

/// A session's API ID, from its database column.
fn named(id: &str) -> String {
    format!("ses_{}", id.replace('-', ""))
}

/// A session's API ID, from a queue entry; an invalid entry names no session.
fn queued(entry: &str) -> String {
    named(entry.split_once('.').map_or(entry, |(_, id)| id))
}

fn numbered(cluster: &Cluster, question: &str) -> Result<Vec<(String, i64)>> {
    let rows = cluster.query(question)?;
    let rows = rows.lines().filter_map(|row| row.split_once('|'));
    rows.map(|(id, n)| Ok((named(id), n.parse()?))).collect()
}
