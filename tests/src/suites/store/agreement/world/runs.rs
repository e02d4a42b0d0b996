//! Runs: what callers request of them, and what schedulers do.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, RunKey, SendId, SessionKey, TenantId};
use mainspring_shared::inbox::run_item;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    AcceptSend, AdvanceOutcome, AdvanceRun, AfterSend, ClaimRuns, ClaimedRuns, Dump, DumpRun,
    DumpSession, IdempotencyKey, Inspect, ListRuns, NewRun, NewSession, Parent, ReadNodes,
    RunReport, RunWords, Target,
};
use mainspring_shared::tool::{CallRecord, CallResult};
use mainspring_shared::workflow::run::{
    DSL_VERSION, NodeRecord, NodeState, RunCounts, RunLeaf, RunRecord, RunStatus,
};
use serde_json::{Value, json};

use super::super::make::{self, asked};
use super::super::op::{Advance, End, Leaf, Look, Outcome, Plan, RunOp, Stale};
use super::{World, answered, request, same, small};
use crate::suites::store::runs::{self, advance_of, new_run};

/// News of a run that its owner has not taken into account. Each store numbers requests in its own way.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    ends: Vec<SendId>,
    asks: Vec<i64>,
    store_asks: Vec<i64>,
}

/// The n-th run. No session has the same ID: events are told apart by whose steps they belong to.
fn run_key(n: u128) -> RunKey {
    runs::run_key(0x1_0000 + n)
}

/// The existing sessions that an advance writes to.
fn touched_by(item: &AdvanceRun) -> BTreeSet<SessionKey> {
    let told = item.report.iter().map(|report| report.session);
    let leaves = item.start.iter().map(|send| send.target.key());
    told.chain(leaves).collect()
}

/// A request under an idempotency key of another route than those of sends.
fn run_request(pick: (u8, u8)) -> IdempotencyKey {
    IdempotencyKey {
        route: "POST /v1/runs".to_owned(),
        ..request(pick)
    }
}

/// Claimed runs with each request's number replaced by its index, and the numbers.
fn unnumbered(mut claimed: ClaimedRuns) -> (ClaimedRuns, Vec<Vec<i64>>) {
    let numbers = claimed.runs.iter_mut().map(|news| {
        let asks = (0..).zip(&mut news.asks);
        asks.map(|(place, ask)| std::mem::replace(&mut ask.0, place))
            .collect()
    });
    let numbers = numbers.collect();
    (claimed, numbers)
}

/// The leaves of a run: how many are in flight, and those that have ended.
fn leaves(known: &Dump, key: RunKey) -> (usize, Vec<SendId>) {
    let sends = known.sessions.iter().flat_map(|session| &session.sends);
    let mine = sends.filter(|send| send.run.as_ref().is_some_and(|leaf| leaf.run == key.run));
    let (ended, live): (Vec<_>, Vec<_>) = mine.partition(|send| send.status.is_final());
    (live.len(), ended.into_iter().map(|send| send.id).collect())
}

/// A call that waits for a run.
fn waiting_call(known: &Dump, pick: u8) -> Option<&CallRecord> {
    let calls = known.sessions.iter().flat_map(|session| &session.calls);
    let waiting = calls.filter(|call| call.waits_on == Some(WaitingOn::Run));
    let waiting: Vec<_> = waiting.collect();
    let place = usize::from(pick) % waiting.len().max(1);
    waiting.get(place).copied()
}

impl World<'_> {
    pub(super) async fn run_step(&mut self, op: RunOp) -> Result<(), String> {
        match op {
            RunOp::Create(plans) => {
                let known = self.known().await;
                let items: Vec<_> = plans
                    .iter()
                    .map(|plan| self.planned(&known, plan))
                    .collect();
                both!(self, |store| store.at(self.at()).create_runs(items.clone()));
            }
            RunOp::Ask(asks) => {
                let known = self.known().await;
                let asks = asks.into_iter();
                let items: Vec<_> = asks
                    .map(|(run, what)| (self.picked_run(&known, run), asked(what)))
                    .collect();
                both!(self, |store| store.at(self.at()).ask_runs(items.clone()));
            }
            RunOp::Claim(look) => {
                self.claim_runs(&look).await?;
            }
            RunOp::Advance(advances) => {
                let known = self.known().await;
                let picked = self.pick_owned(&known, advances);
                self.advance(&known, picked).await?;
            }
            RunOp::Turn(look, advances) => {
                let (boot, claimed) = self.claim_runs(&look).await?;
                let known = self.known().await;
                let picked = claimed.into_iter().zip(advances.into_iter().cycle());
                self.advance(
                    &known,
                    picked.map(|(run, advance)| (boot, run, advance)).collect(),
                )
                .await?;
            }
            RunOp::EndLeaves(boot, leaves) => self.end_leaves(boot, leaves).await?,
            RunOp::Release(boot, runs) => {
                let known = self.known().await;
                let boot = self.owner(&known, boot);
                let keys: Vec<_> = runs
                    .into_iter()
                    .map(|run| self.picked_run(&known, run))
                    .collect();
                both!(self, |store| store.release_runs(boot, keys.clone()));
            }
            RunOp::Forget(runs) => {
                let known = self.known().await;
                let keys: BTreeSet<_> = runs
                    .into_iter()
                    .map(|run| self.picked_run(&known, run))
                    .collect();
                let keys: Vec<_> = keys.into_iter().collect();
                both!(self, |store| store.forget_runs(keys.clone()));
            }
        }
        Ok(())
    }

    /// Usually an existing run, otherwise one of the latest or one that never existed.
    fn picked_run(&self, known: &Dump, pick: u8) -> RunKey {
        let place = usize::from(pick / 4) % known.runs.len().max(1);
        match known.runs.get(place) {
            Some(run) if !pick.is_multiple_of(8) => run.run.key,
            _ => run_key((self.runs + 1).saturating_sub(u128::from(pick) % 8)),
        }
    }

    /// Usually a boot that owns runs.
    fn owner(&self, known: &Dump, pick: u8) -> BootId {
        let owners: Vec<_> = known.runs.iter().filter_map(|run| run.owner).collect();
        let place = usize::from(pick / 4) % owners.len().max(1);
        match owners.get(place) {
            Some(owner) if !pick.is_multiple_of(4) => *owner,
            _ => self.boot(pick),
        }
    }

    /// Ends leaves: workers claim their sessions and complete what they were granted, or the leaves
    /// are cancelled.
    async fn end_leaves(&mut self, boot: u8, picks: Vec<(u8, bool)>) -> Result<(), String> {
        for (pick, cancel) in picks {
            let known = self.known().await;
            let sends = known.sessions.iter().flat_map(|session| &session.sends);
            let live = sends.filter(|send| send.run.is_some() && !send.status.is_final());
            let live: Vec<_> = live.collect();
            let Some(send) = live.get(usize::from(pick) % live.len().max(1)) else {
                return Ok(());
            };
            if cancel {
                let ids = vec![(send.key.tenant, send.id)];
                let scheduler = small::boot(small::SCHEDULER);
                both!(self, |store| store
                    .at(self.at())
                    .cancel_sends(scheduler, ids.clone()));
                continue;
            }
            let before = self.held.len();
            self.claim_keys(boot, &known, vec![(send.key, None)])
                .await?;
            if self.held.len() > before {
                // The latest grant comes first.
                let end = End {
                    held: 0,
                    outcome: Outcome::Answer,
                    then: AfterSend::Release,
                    unless: 0,
                    reads: true,
                };
                self.complete(vec![end]).await?;
            }
        }
        Ok(())
    }

    fn planned(&mut self, known: &Dump, plan: &Plan) -> NewRun {
        self.runs += 1;
        let call = plan.called.and_then(|pick| waiting_call(known, pick));
        let is_open = |session: &DumpSession| session.hot.lifecycle == Lifecycle::Open;
        let session = plan
            .session
            .map(|pick| self.session_like(known, pick, is_open).session);
        NewRun {
            key: run_key(self.runs),
            dsl_version: DSL_VERSION + i32::from(plan.later),
            session: call.map(|call| call.session).or(session),
            reports_to: call.map(|call| call.call_id.clone()),
            idempotency: plan.request.map(run_request),
            ..new_run(self.runs)
        }
    }

    /// Claims runs; returns the claiming boot and the runs.
    async fn claim_runs(&mut self, look: &Look) -> Result<(BootId, Vec<RunKey>), String> {
        let known = self.known().await;
        let boot = self.owner(&known, look.boot);
        let claim = ClaimRuns {
            boot,
            limit: look.limit,
            ends_max: look.ends_max,
            leaves_max: look.leaves_max,
            dsl_max: DSL_VERSION + i32::from(look.later),
            aside: look
                .aside
                .iter()
                .map(|pick| self.picked_run(&known, *pick))
                .collect(),
        };
        let at = self.at();
        let model: &dyn Inspect = &self.model;
        let expected = model.at(at).claim_runs(claim.clone()).await;
        let actual = self.store.at(at).claim_runs(claim).await;
        let (expected, actual) = answered(expected, actual)?;
        let (expected, asks) = unnumbered(expected);
        let (actual, store_asks) = unnumbered(actual);
        same("claim_runs", &expected, &actual)?;
        let keys = expected.runs.iter().map(|news| news.key).collect();
        let numbers = asks.into_iter().zip(store_asks);
        for (news, (asks, store_asks)) in expected.runs.into_iter().zip(numbers) {
            let heard = Heard {
                ends: news.ends.iter().map(|ended| ended.end.send).collect(),
                asks,
                store_asks,
            };
            self.heard.insert(news.key, heard);
        }
        Ok((boot, keys))
    }

    /// Runs of one owner, each once: the owner of the first picked run among those that have one.
    fn pick_owned(&self, known: &Dump, picks: Vec<Advance>) -> Vec<(BootId, RunKey, Advance)> {
        let owned = known
            .runs
            .iter()
            .filter_map(|run| Some((run.owner?, run.run.key)));
        let owned: Vec<_> = owned.collect();
        let Some(first) = picks.first() else {
            return Vec::new();
        };
        let Some((boot, _)) = owned
            .get(usize::from(first.run) % owned.len().max(1))
            .copied()
        else {
            return Vec::new();
        };
        let mine = owned.iter().filter(|(owner, _)| *owner == boot);
        let mine: Vec<_> = mine.map(|(_, run)| *run).collect();
        let mut seen = BTreeSet::new();
        let picked = picks.into_iter().map(|pick| {
            let run = match pick.stale {
                Some(Stale::Boot(other)) => self.picked_run(known, other),
                _ => mine[usize::from(pick.run) % mine.len()],
            };
            (boot, run, pick)
        });
        picked.filter(|(_, run, _)| seen.insert(*run)).collect()
    }

    /// Advances runs of one boot.
    async fn advance(
        &mut self,
        known: &Dump,
        picked: Vec<(BootId, RunKey, Advance)>,
    ) -> Result<(), String> {
        let Some((boot, ..)) = picked.first() else {
            return Ok(());
        };
        let boot = *boot;
        let (mut items, mut store_items) = (Vec::new(), Vec::new());
        let mut touched = BTreeSet::new();
        for (_, key, advance) in picked {
            let Some(run) = known.runs.iter().find(|run| run.run.key == key) else {
                continue;
            };
            let heard = self.heard.get(&key).cloned().unwrap_or_default();
            let item = self.advanced(known, run, &heard, &advance);
            let noted = usize::from(advance.noted.1) % (heard.asks.len() + 1);
            let with = |asks: &[i64]| AdvanceRun {
                asks: asks[..noted].to_vec(),
                ..item.clone()
            };
            // The order in which two runs of one call number what they add to the same session is
            // unspecified.
            let sessions = touched_by(&item);
            if sessions.iter().any(|key| touched.contains(key)) {
                continue;
            }
            touched.extend(sessions);
            items.push(with(&heard.asks));
            store_items.push(with(&heard.store_asks));
        }
        let at = self.at();
        let model: &dyn Inspect = &self.model;
        let expected = model.at(at).advance_runs(boot, items.clone()).await;
        let actual = self.store.at(at).advance_runs(boot, store_items).await;
        let (expected, actual) = answered(expected, actual)?;
        same("advance_runs", &expected, &actual)?;
        for (item, outcome) in items.iter().zip(expected) {
            if matches!(outcome, AdvanceOutcome::Advanced { .. }) {
                self.heard.remove(&item.run.key);
            }
        }
        Ok(())
    }

    /// An advance, without the requests taken into account.
    fn advanced(
        &mut self,
        known: &Dump,
        run: &DumpRun,
        heard: &Heard,
        pick: &Advance,
    ) -> AdvanceRun {
        let (live, ended) = leaves(known, run.run.key);
        let is_final = pick.status.is_final() && live == 0;
        let noted = usize::from(pick.noted.0) % (heard.ends.len() + 1);
        let ends = if is_final {
            ended
        } else {
            heard.ends[..noted].to_vec()
        };
        let leaves = pick.start.iter().filter(|_| !is_final);
        let start: Vec<_> = leaves
            .map(|leaf| self.leaf(known, &run.run, leaf))
            .collect();
        let mut item = advance_of(
            &run.run,
            match pick.stale {
                Some(Stale::Behind) => run.step - 1,
                Some(Stale::Ahead) => run.step + 1,
                Some(Stale::Boot(_)) | None => run.step,
            },
        );
        let before = run.run.counts;
        let taken = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        let started = u32::try_from(start.len()).unwrap_or(u32::MAX);
        item.run.counts = RunCounts {
            leaves: before.leaves + started,
            live: if is_final {
                0
            } else {
                before.live.saturating_sub(taken) + started
            },
            ..before
        };
        item.run.attempt += i32::from(run.run.status.is_final());
        item.run.finished_at = None;
        (item.run.result, item.run.error) = (None, None);
        if is_final {
            self.end_run(&mut item, pick);
        } else {
            if !pick.status.is_final() {
                item.run.status = pick.status;
            }
            item.run.alarm_at = pick.alarm.map(|ms| small::time(self.now + ms));
        }
        item.nodes = self.nodes(run, pick, &start, is_final);
        item.changes = json!({ "status": item.run.status, "result": item.run.result });
        item.release = pick.release;
        item.leaves_max = pick.leaves_max;
        (item.start, item.ends) = (start, ends);
        item
    }

    /// Sets how a run ends, and who is told.
    fn end_run(&mut self, item: &mut AdvanceRun, pick: &Advance) {
        item.run.status = pick.status;
        item.run.finished_at = Some(self.at());
        match pick.status {
            RunStatus::Completed => {
                item.run.result = match pick.result % 3 {
                    0 => Some(Value::Null),
                    1 => Some(json!({ "n": pick.result })),
                    _ => None,
                };
            }
            _ => item.run.error = Some(Failure::new(Code::LlmUnavailable, "the provider is away")),
        }
        let Some(session) = item.run.session else {
            return;
        };
        self.sends += 1;
        let call = item.run.reports_to.clone().filter(|_| pick.report.call);
        item.report = Some(RunReport {
            session: SessionKey {
                tenant: item.run.key.tenant,
                session,
            },
            call: call.map(|id| (id, CallResult::text("what the run gave"))),
            words: pick.report.words.map(|wake| RunWords {
                item_id: run_item(item.run.key.run, item.run.attempt),
                send: small::send(self.sends),
                content: vec![ContentPart::text("the run has ended")],
                wake,
                ended_run: pick.release.then_some(item.run.key.run),
            }),
        });
    }

    /// A leaf in a new session below that of its run, or in an existing one.
    fn leaf(&mut self, known: &Dump, run: &RunRecord, leaf: &Leaf) -> AcceptSend {
        self.sends += 1;
        let n = self.sends;
        let has_leaf = |session: &DumpSession| {
            session.hot.lifecycle == Lifecycle::Open
                && session.sends.iter().any(|s| s.run.is_some())
        };
        let target = if let Some(pick) = leaf.existing {
            let key = self.session_like(known, pick, has_leaf);
            // A session created by the same call cannot be referred to yet.
            let is_known = known.sessions.iter().any(|session| session.key == key);
            Target::Existing(if is_known { key } else { small::key(1) })
        } else {
            let above = run.session.and_then(|id| {
                let mut sessions = known.sessions.iter();
                let session = sessions.find(|session| session.key.session == id);
                session.and_then(|session| session.parent.as_ref())
            });
            let parent = run.session.map(|session| Parent {
                session,
                call_id: run
                    .reports_to
                    .clone()
                    .unwrap_or_else(|| run.key.run.to_string()),
                root: above.map_or(session, |above| above.root),
                depth: above.map_or(1, |above| above.depth + 1),
            });
            let new = self.new_session(&leaf.agent);
            Target::New(Box::new(NewSession { parent, ..new }))
        };
        let mut item = AcceptSend {
            target,
            run: Some(RunLeaf {
                run: run.key.run,
                path: format!("/2[{n}]"),
                attempt: 1,
            }),
            queued_max: i64::MAX,
            ..small::sending(n, 1)
        };
        item.options.deadline = leaf.deadline.and_then(small::span);
        item
    }

    /// The nodes of the picked paths and of leaves; in a run that ends, all are settled.
    fn nodes(
        &self,
        run: &DumpRun,
        pick: &Advance,
        start: &[AcceptSend],
        is_final: bool,
    ) -> Vec<NodeRecord> {
        let mut nodes = BTreeMap::new();
        if is_final {
            for node in run.nodes.iter().filter(|node| !node.state.is_settled()) {
                nodes.insert(node.path.clone(), node.clone());
            }
        }
        for (path, kind, state) in &pick.nodes {
            let node = make::node(*path, *kind, *state);
            nodes.insert(node.path.clone(), node);
        }
        for send in start {
            if let Some(leaf) = &send.run {
                let node = make::leaf_node(&leaf.path, send);
                nodes.insert(node.path.clone(), node);
            }
        }
        let mut nodes: Vec<_> = nodes.into_values().collect();
        for node in &mut nodes {
            if is_final && !node.state.is_settled() {
                node.state = NodeState::Cancelled;
            }
            node.settled_at = node.state.is_settled().then(|| self.at());
        }
        nodes
    }

    pub(super) async fn read_runs(&self) -> Result<(), String> {
        let keys: Vec<_> = (1..=self.runs + 1).map(run_key).collect();
        both!(self, |store| store.get_runs(keys.clone()));
        both!(self, |store| store.read_asks(keys.clone()));
        let all = ListRuns {
            tenant: TenantId::DEFAULT,
            status: None,
            session: None,
            before: Some(run_key(self.runs).run),
            limit: 3,
        };
        both!(self, |store| store.list_runs(all.clone()));
        let waiting = ListRuns {
            status: Some(RunStatus::Waiting),
            before: None,
            ..all.clone()
        };
        both!(self, |store| store.list_runs(waiting.clone()));
        let mine = ListRuns {
            session: Some(small::key(1).session),
            before: None,
            ..all
        };
        both!(self, |store| store.list_runs(mine.clone()));
        for key in keys {
            both!(self, |store| store.live_leaves(key));
            both!(self, |store| store.read_run_steps(key, 1, 2));
            for (prefix, after) in [(None, 1), (Some("/0"), 0), (Some("/1["), 0)] {
                let query = ReadNodes {
                    key,
                    prefix: prefix.map(ToOwned::to_owned),
                    after,
                    limit: 3,
                };
                both!(self, |store| store.read_nodes(query.clone()));
            }
        }
        Ok(())
    }
}
