//! Many timers, and a check of every occurrence.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};

use super::caller::RetryingClient;
use super::evidence::{excuses, without_reason};
use super::fault_log::Fault;
use super::{Cluster, now};
use crate::fake_model::Entry;

/// One in this many timers recurs.
const RECURRING: usize = 10;

/// Occurrences of each recurring timer, a second apart.
const TIMES: usize = 3;

/// Timers created by one request.
const BATCH: usize = 500;

/// How far the timestamps of the database and of this process may differ.
const SLACK_MS: i64 = 2;

#[derive(Debug)]
struct Alarm {
    mark: String,
    /// When it is due, if the request gave a time.
    at: Option<Timestamp>,
    times: usize,
}

/// The timers created, by ID.
#[derive(Debug, Default)]
pub struct Alarms(BTreeMap<String, Alarm>);

impl Alarms {
    /// Creates `count` timers, spread over the sessions and due one after another within `over`.
    pub async fn arm(
        caller: &mut RetryingClient,
        mark: &str,
        sessions: &[String],
        count: usize,
        over: Duration,
    ) -> Result<Self> {
        let first = now().after(Duration::from_secs(2));
        let mut alarms = Self::default();
        let all: Vec<(Alarm, Value)> = (0..count)
            .map(|n| {
                let at = first.after(over.mul_f64(n as f64 / count as f64));
                alarm(format!("{mark}-{n}"), &sessions[n % sessions.len()], n, at)
            })
            .collect();
        for (n, batch) in all.chunks(BATCH).enumerate() {
            let bodies: Vec<&Value> = batch.iter().map(|(_, body)| body).collect();
            let body = json!({ "timers": bodies });
            let key = format!("{mark}-{n}");
            let answer = caller.post("/v1/timers:batch", &body, &key).await?;
            ensure!(answer.status == 200, "{} {:?}", answer.status, answer.body);
            let answer = answer.json()?;
            let results = answer["results"].as_array().context("results")?;
            ensure!(results.len() == batch.len(), "{} results", results.len());
            for (result, (alarm, _)) in results.iter().zip(batch) {
                let id = result["timer"]["id"].as_str();
                let id = id.with_context(|| format!("refused: {result}"))?;
                let alarm = Alarm {
                    mark: alarm.mark.clone(),
                    ..*alarm
                };
                alarms.0.insert(bare(id), alarm);
            }
        }
        Ok(alarms)
    }

    /// How many occurrences they have in total.
    pub fn occurrences(&self) -> usize {
        self.0.values().map(|alarm| alarm.times).sum()
    }

    /// Compares the database and the model's ledger with timers that fire on time, once each.
    /// Returns all differences, and how often the model was asked again for one of their sends.
    pub fn fired(
        &self,
        cluster: &Cluster,
        calls: &[Entry],
        faults: &[Fault],
    ) -> Result<(Vec<String>, usize)> {
        let rows = cluster.query(
            "SELECT timer_id, n, due_at, fate, fired_at, send_id FROM timer_occurrences \
             ORDER BY timer_id, n",
        )?;
        let mut rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split('|').collect()).collect();
        rows.retain(|row| self.0.contains_key(&bare(row[0])));
        let mut found = Vec::new();
        let mut sends: Vec<&str> = rows.iter().map(|row| row[5]).collect();
        sends.sort_unstable();
        sends.dedup();
        if sends.len() != rows.len() {
            found.push(format!(
                "{} sends of {} occurrences",
                sends.len(),
                rows.len()
            ));
        }
        let mut by_mark: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
        for call in calls {
            let mark = call.send.as_deref().unwrap_or_default();
            by_mark.entry(mark).or_default().push(call);
        }
        let mut again = 0;
        for (id, alarm) in &self.0 {
            let mine: Vec<_> = rows.iter().filter(|row| bare(row[0]) == *id).collect();
            if mine.len() != alarm.times {
                found.push(format!("{} had {} occurrences", alarm.mark, mine.len()));
            }
            let mut due_before = None;
            for row in mine {
                let (due, fired): (i64, i64) = (row[2].parse()?, row[4].parse()?);
                let before = due_before.replace(due);
                let asked = alarm.at.is_none_or(|at| at.0 == due);
                let paced = before.is_none_or(|before| before + 1_000 == due);
                if row[3] != "fired" || fired < due || !asked || !paced {
                    found.push(format!("{}: {row:?} after {before:?}", alarm.mark));
                }
            }
            let asked = by_mark.remove(alarm.mark.as_str()).unwrap_or_default();
            again += asked.len().saturating_sub(alarm.times);
            found.extend(alarm.calls(&asked, faults));
        }
        Ok((found, again))
    }
}

impl Alarm {
    fn calls(&self, calls: &[&Entry], faults: &[Fault]) -> Vec<String> {
        let (mark, times) = (&self.mark, self.times);
        let mut found = Vec::new();
        if calls.len() < times {
            found.push(format!(
                "{mark} went past the model: {} of {times}",
                calls.len()
            ));
        }
        let early = |at: Timestamp| calls.iter().any(|call| call.at.0 + SLACK_MS < at.0);
        if self.at.is_some_and(early) {
            found.push(format!("{mark} was early at the model"));
        }
        let mut excuses = excuses(faults);
        if times > 1 {
            if calls.len() > times + excuses.len() {
                found.push(format!("{mark} was asked {} times", calls.len()));
            }
            return found;
        }
        for (first, second) in without_reason(calls, &mut excuses) {
            found.push(format!(
                "{mark} was asked at {first} and without reason again at {second}"
            ));
        }
        found
    }
}

fn alarm(mark: String, session: &str, n: usize, at: Timestamp) -> (Alarm, Value) {
    let input = format!("[[send {mark}]] [[say rung]] ring");
    let mut body = json!({
        "session_id": session, "input": input, "on_busy": "enqueue", "catch_up": "all",
        "idempotency_key": mark,
    });
    let recurs = n.is_multiple_of(RECURRING);
    if recurs {
        body["every"] = json!("1s");
        body["max_occurrences"] = json!(TIMES);
    } else {
        body["at"] = json!(at);
    }
    let alarm = Alarm {
        mark,
        at: (!recurs).then_some(at),
        times: if recurs { TIMES } else { 1 },
    };
    (alarm, body)
}

/// The form of an ID common to the API and the database.
fn bare(id: &str) -> String {
    let id = id.split_once('_').map_or(id, |(_, id)| id);
    id.replace('-', "")
}
