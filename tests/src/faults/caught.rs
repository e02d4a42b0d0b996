//! Workers that are stopped at a place where their death costs something.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::fault_log::Effect;
use super::{Cluster, any_of, monotonic, pause};

/// How long to wait for a worker with a model call under way, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(1);

/// A worker that was stopped in the middle of a model call.
#[derive(Debug, Clone, Copy)]
pub struct Caught {
    /// Which one it is.
    pub worker: usize,
    /// The fault's place in the log; its end is for the caller to note.
    pub place: usize,
}

impl Cluster {
    /// Waits until a worker has a model call under way, and suspends it there: nothing of the answer
    /// is stored. The calls are those of sends with a label (`[[send …]]`).
    ///
    /// # Errors
    /// If no worker makes such a call.
    pub async fn catch(&self, what: &'static str, effect: Effect) -> Result<Caught> {
        let end = monotonic() + LIMIT;
        loop {
            let calling = self.calling(&self.model.ledger().open())?;
            if !calling.is_empty() {
                let worker = calling[any_of(calling.len())];
                let place = self.fault_log.begin(what, effect);
                self.workers[worker].pause()?;
                // It does nothing any more, so the database may be asked at leisure.
                let open = self.model.ledger().open();
                if self.calling(&open)?.contains(&worker) {
                    return Ok(Caught { worker, place });
                }
                self.workers[worker].resume()?;
                self.fault_log.end(place);
            }
            ensure!(monotonic() < end, "no worker calls the model");
            pause(Duration::from_millis(10)).await;
        }
    }

    /// Kills a worker in the middle of a model call, whose answer is lost.
    ///
    /// # Errors
    /// If no worker calls the model.
    pub async fn kill_in_a_call(&mut self) -> Result<usize> {
        let Caught { worker, place } = self
            .catch("a worker is killed in a call", Effect::Repeats)
            .await?;
        self.kill_worker(worker);
        self.fault_log.end(place);
        Ok(worker)
    }

    /// The workers that run sends with one of these labels.
    fn calling(&self, labels: &BTreeSet<String>) -> Result<Vec<usize>> {
        if labels.is_empty() {
            return Ok(Vec::new());
        }
        let kind = if self.mysql.is_some() { "char" } else { "text" };
        // A worker killed a moment ago may still hold its lease, while its replacement has the same
        // name.
        let sql = format!(
            "SELECT b.name, replace(CAST(s.input AS {kind}), '|', ' ') FROM session_hot h \
             JOIN boots b ON b.boot_id = h.owner_boot \
             JOIN sends s ON s.tenant = h.tenant AND s.session_id = h.session_id \
             WHERE s.status = 'running' AND b.dead_at IS NULL AND NOT EXISTS ( \
                 SELECT 1 FROM boots n WHERE n.name = b.name AND n.started_at > b.started_at)"
        );
        let mut found = BTreeSet::new();
        for row in self.query(&sql)?.lines() {
            let Some((name, input)) = row.split_once(['|', '\t']) else {
                continue;
            };
            let label = input
                .split_once("[[send ")
                .and_then(|(_, rest)| rest.split_once("]]"));
            let calls = label.is_some_and(|(label, _)| labels.contains(label));
            let worker = self.workers.iter().position(|worker| worker.name == name);
            found.extend(worker.filter(|_| calls));
        }
        Ok(found.into_iter().collect())
    }
}
