//! Caches the runs that this process owns between advances.

use std::collections::BTreeMap;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, RunKey, SessionId, SessionKey};
use mainspring_shared::store::{self, ReadNodes};

use super::advance::{Kept, Start};
use super::skipped::SkippedRuns;
use crate::app::App;
use crate::engine::Run;
use crate::off_thread::off_thread;

/// Maximum number of cached runs. The least recently used are evicted, and loaded again when they
/// have events.
const RUNS_MAX: usize = 64;

/// Nodes per read.
const PAGE: u32 = 1_000;

/// Cached runs by key, each with its last step and last use.
#[derive(Default)]
pub(super) struct Memory {
    boot: Option<BootId>,
    runs: BTreeMap<RunKey, (i64, u64, Box<Kept>)>,
    pub(super) skipped: SkippedRuns,
    /// The number of uses so far, to order them.
    uses: u64,
}

impl Memory {
    /// Clears the cache if the boot has changed.
    pub(super) fn belongs_to(&mut self, boot: BootId) {
        if self.boot != Some(boot) {
            self.forget_all();
            self.boot = Some(boot);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.runs.clear();
    }

    pub(super) fn keys(&self) -> Vec<RunKey> {
        self.runs.keys().copied().collect()
    }

    /// Removes a run from the cache, and returns it if it is at this step. The caller puts it back
    /// after its commit.
    pub(super) fn take(&mut self, key: RunKey, step: i64) -> Option<Box<Kept>> {
        let (kept_step, _, kept) = self.runs.remove(&key)?;
        (kept_step == step).then_some(kept)
    }

    pub(super) fn keep(&mut self, key: RunKey, step: i64, kept: Box<Kept>) {
        self.uses += 1;
        self.runs.insert(key, (step, self.uses, kept));
    }

    /// Evicts the least recently used runs.
    pub(super) fn shrink(&mut self) {
        while self.runs.len() > RUNS_MAX {
            let oldest = self.runs.iter().min_by_key(|(_, (_, used, _))| *used);
            let Some(key) = oldest.map(|(key, _)| *key) else {
                return;
            };
            self.runs.remove(&key);
        }
    }
}

/// A claimed run that is not there.
pub(super) fn gone(key: RunKey) -> store::Error {
    store::Error::Corrupt {
        table: "runs",
        column: "run_id",
        row: key.to_string(),
        detail: "the run was claimed and is not there".to_owned(),
    }
}

/// The failure of a run that cannot be read.
pub(super) fn unreadable() -> Failure {
    Failure::new(Code::Internal, "the run cannot be advanced")
}

/// Reads an owned run that is not to be advanced any more.
pub(super) async fn quarantined(app: &App, key: RunKey) -> Result<Start, store::Error> {
    let found = app.store.get_runs(vec![key]).await?;
    let record = found.into_iter().flatten().next();
    let record = record.ok_or_else(|| gone(key))?;
    tracing::error!(
        run.id = %key.run,
        "several schedulers in a row did not survive advancing a run; failing it"
    );
    let why = "several schedulers in a row did not survive advancing the run";
    let why = Failure::new(Code::WorkflowQuarantined, why);
    Ok(Start::Broken(Box::new(record), why))
}

/// Loads an owned run with all its nodes. If its nodes or its session cannot be read, the result is
/// [`Start::Broken`] once its attempts are exhausted, and an error before that.
pub(super) async fn load(
    app: &App,
    key: RunKey,
    step: i64,
    is_exhausted: bool,
) -> Result<Start, store::Error> {
    let found = app.store.get_runs(vec![key]).await?;
    let Some(record) = found.into_iter().flatten().next() else {
        return Err(gone(key));
    };
    let mut nodes = Vec::new();
    loop {
        let query = ReadNodes {
            key,
            prefix: None,
            after: nodes
                .last()
                .map_or(0, |node: &mainspring_shared::workflow::run::NodeRecord| {
                    node.n
                }),
            limit: PAGE,
        };
        let page = match app.store.read_nodes(query).await {
            Ok(page) => page,
            Err(error) if is_exhausted && error.is_of_data() => {
                tracing::error!(
                    run.id = %key.run,
                    step,
                    error = %error,
                    "could not read a run; failing it"
                );
                return Ok(Start::Broken(Box::new(record), unreadable()));
            }
            Err(error) => return Err(error),
        };
        let is_last = page.len() < PAGE as usize;
        nodes.extend(page);
        if is_last {
            break;
        }
    }
    let root = match record.session {
        Some(session) => match root(app, key, session).await {
            Ok(root) => Some(root),
            Err(error) if is_exhausted && error.is_of_data() => {
                tracing::error!(
                    run.id = %key.run,
                    step,
                    error = %error,
                    "could not read a run; failing it"
                );
                return Ok(Start::Broken(Box::new(record), unreadable()));
            }
            Err(error) => return Err(error),
        },
        None => None,
    };
    let copy = record.clone();
    let limit = super::advance::ADVANCE_MAX;
    let load = move || Run::load(record, nodes);
    let Some(loaded) = off_thread(app.clock.as_ref(), limit, load).await else {
        let why = Failure::new(Code::WorkflowQuarantined, "reading the run took too long");
        return Ok(Start::Broken(Box::new(copy), why));
    };
    Ok(match loaded {
        Ok(run) => Start::Kept(Box::new(Kept { run, root })),
        Err(error) => {
            tracing::error!(
                run.id = %key.run,
                step,
                error = %error,
                "could not read a run; failing it"
            );
            Start::Broken(Box::new(copy), unreadable())
        }
    })
}

/// The topmost session of the tree that the run's session is in.
async fn root(app: &App, key: RunKey, session: SessionId) -> Result<SessionId, store::Error> {
    let tenant = key.tenant;
    let found = app
        .store
        .get_session(SessionKey { tenant, session })
        .await?;
    let parent = found.and_then(|session| session.parent);
    Ok(parent.map_or(session, |parent| parent.root))
}
