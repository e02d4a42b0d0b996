//! The runs that are kept in memory between two advances.

use std::collections::BTreeMap;

use mainspring_shared::id::{BootId, RunKey, SessionId, SessionKey};
use mainspring_shared::store::{self, ReadNodes};

use super::advance::{Kept, Start};
use super::aside::Aside;
use crate::app::App;
use crate::engine::Run;

/// Runs that are kept; beyond, those that were not used longest are read again when they have news.
const RUNS_MAX: usize = 64;

/// Nodes read at once.
const PAGE: u32 = 1_000;

/// Runs by key, each with the step after which it was left.
#[derive(Default)]
pub(super) struct Memory {
    boot: Option<BootId>,
    runs: BTreeMap<RunKey, (i64, u64, Box<Kept>)>,
    pub(super) aside: Aside,
    /// Counts uses.
    uses: u64,
}

impl Memory {
    /// Nothing is kept from one life of the process to the next.
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

    /// Takes a run out that was left after this step. Whoever does not bring it back has lost it.
    pub(super) fn take(&mut self, key: RunKey, step: i64) -> Option<Box<Kept>> {
        let (kept_step, _, kept) = self.runs.remove(&key)?;
        (kept_step == step).then_some(kept)
    }

    pub(super) fn keep(&mut self, key: RunKey, step: i64, kept: Box<Kept>) {
        self.uses += 1;
        self.runs.insert(key, (step, self.uses, kept));
    }

    /// Forgets those that were not used longest.
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

/// Reads a run that is owned, with all its nodes. One whose nodes, or the session that it belongs to,
/// cannot be read is broken, if that is `for_good`.
pub(super) async fn load(
    app: &App,
    key: RunKey,
    step: i64,
    for_good: bool,
) -> Result<Start, store::Error> {
    let found = app.store.get_runs(vec![key]).await?;
    let Some(record) = found.into_iter().flatten().next() else {
        return Err(store::Error::Corrupt {
            table: "runs",
            column: "run_id",
            row: key.to_string(),
            detail: "the run was claimed and is not there".to_owned(),
        });
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
            Err(error) if for_good && error.is_of_data() => {
                tracing::error!(run.id = %key.run, step, error = %error, "a run cannot be read");
                return Ok(Start::Broken(Box::new(record)));
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
            Err(error) if for_good && error.is_of_data() => {
                tracing::error!(run.id = %key.run, step, error = %error, "a run cannot be read");
                return Ok(Start::Broken(Box::new(record)));
            }
            Err(error) => return Err(error),
        },
        None => None,
    };
    let copy = record.clone();
    Ok(match Run::load(record, nodes) {
        Ok(run) => Start::Kept(Box::new(Kept { run, root })),
        Err(error) => {
            tracing::error!(run.id = %key.run, step, error = %error, "a run cannot be read");
            Start::Broken(Box::new(copy))
        }
    })
}

/// The session at the top of the tree that the run's session is in.
async fn root(app: &App, key: RunKey, session: SessionId) -> Result<SessionId, store::Error> {
    let tenant = key.tenant;
    let found = app
        .store
        .get_session(SessionKey { tenant, session })
        .await?;
    let parent = found.and_then(|session| session.parent);
    Ok(parent.map_or(session, |parent| parent.root))
}
