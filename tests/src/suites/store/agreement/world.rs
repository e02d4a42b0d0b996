//! Runs steps on the model and on a store side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use mainspring_runtime::SystemClock;
use mainspring_shared::agent::{AgentSpec, OnBusy, Priority, SendOptions};
use mainspring_shared::dispatch::{Dispatch, is_direct};
use mainspring_shared::id::{BootId, LeaseToken, RunKey, SendId, SessionKey, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, ClaimOutcome, ClaimSession, ClaimedDelivery, Dump, DumpSession,
    IdempotencyKey, Inspect, NewBoot, NewSession, Parent, ReleaseLoss, ReleaseSession,
    Result as StoreResult, Role, Target,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::CallRecord;
use mainspring_store_model::ModelStore;
use serde_json::Map;

use self::runs::Heard;
use super::make::{cache, spec};
use super::op::{self, Agent, Claim, Offer, Op, Wait, Work};
use crate::suites::store::prelude as small;

/// A grant as its worker knows it. It may have been lost without the worker knowing.
#[derive(Debug, Clone)]
struct Held {
    key: SessionKey,
    lease: Lease,
    send: SendRecord,
}

/// How many sends workers report as in flight: more than they ever hold. They act only in steps, so
/// the audit must not take them for idle.
const BUSY: u32 = 64;

/// Both stores, and what the callers of a store would know.
pub(super) struct World<'a> {
    model: ModelStore,
    store: &'a dyn Inspect,
    now: i64,
    boots: u128,
    sessions: u128,
    sends: u128,
    tokens: u128,
    timers: u128,
    runs: u128,
    webhooks: u128,
    held: Vec<Held>,
    /// Messages that were delivered, by session and item.
    said: Vec<(SessionKey, String)>,
    /// Model calls started, by send: no two usage rows may be equal.
    attempts: BTreeMap<SendId, i32>,
    /// News of runs that was claimed but not taken into account yet.
    heard: BTreeMap<RunKey, Heard>,
    /// Delivery attempts, in order.
    attempts_made: Vec<ClaimedDelivery>,
}

/// Calls both stores and compares their answers; evaluates to the model's answer.
macro_rules! both {
    ($world:ident, |$store:ident| $call:expr) => {{
        let expected = {
            let $store: &dyn Inspect = &$world.model;
            $call.await
        };
        let actual = {
            let $store: &dyn Inspect = $world.store;
            $call.await
        };
        let (expected, actual) =
            $crate::suites::store::agreement::world::answered(expected, actual)?;
        $crate::suites::store::agreement::world::same(stringify!($call), &expected, &actual)?;
        expected
    }};
}

mod asked;
mod checks;
mod money;
mod runs;
mod seats;
mod users;
mod webhooks;
mod work;

/// Both answers, if neither store failed.
fn answered<T>(expected: StoreResult<T>, actual: StoreResult<T>) -> Result<(T, T), String> {
    let expected = expected.map_err(|error| format!("the model failed: {error:?}"))?;
    let actual = actual.map_err(|error| format!("the store failed: {error:?}"))?;
    Ok((expected, actual))
}

fn same<T: Debug + PartialEq>(what: &str, expected: &T, actual: &T) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}\nmodel: {expected:#?}\nstore: {actual:#?}"))
}

impl<'a> World<'a> {
    /// Runs a sequence on an empty model store and on `store`, which must be empty. Fails at the
    /// first disagreement.
    pub(super) async fn run(store: &'a dyn Inspect, ops: Vec<Op>) -> Result<(), String> {
        let mut world = Self {
            model: ModelStore::open(Arc::new(SystemClock::new())),
            store,
            now: 0,
            boots: 0,
            sessions: 0,
            sends: 0,
            tokens: 0,
            timers: 0,
            runs: 0,
            webhooks: 0,
            held: Vec::new(),
            said: Vec::new(),
            attempts: BTreeMap::new(),
            heard: BTreeMap::new(),
            attempts_made: Vec::new(),
        };
        let begin = [
            Op::Register,
            Op::Register,
            op::opening(),
            Op::Run(op::runs::opening()),
            Op::Hook(op::webhooks::opening()),
        ];
        let steps = begin.into_iter().chain(ops).chain([Op::Read]);
        for (n, op) in steps.enumerate() {
            let outcome = world.step(op.clone()).await;
            let outcome = match outcome {
                Ok(()) => world.compare().await,
                Err(disagreement) => Err(disagreement),
            };
            outcome.map_err(|why| format!("step {n} at {} ms, {op:?}: {why}", world.now))?;
        }
        world.close().await
    }

    async fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Pass(ms) => self.now += ms,
            Op::Register => self.register().await?,
            Op::Renew(_) | Op::Stop(_) => self.boot_step(op).await?,
            Op::Create(agent) => {
                let new = self.new_session(&agent);
                both!(self, |store| store
                    .at(self.at())
                    .create_sessions(vec![(new.clone(), None)]));
            }
            Op::Accept(offers, queued_max) => {
                let known = self.known().await;
                let items: Vec<_> = offers
                    .iter()
                    .map(|offer| self.offer(&known, offer, queued_max))
                    .collect();
                let outcomes = both!(self, |store| store
                    .at(self.at())
                    .accept_sends(small::boot(small::SCHEDULER), items.clone()));
                self.take_granted(&items, outcomes).await?;
            }
            Op::Claim(boot, claims) => self.claim(boot, claims).await?,
            Op::Suspend(boot, claim, work, wait) => {
                let before = self.held.len();
                self.claim(boot, vec![claim]).await?;
                if self.held.len() > before {
                    // The latest grant comes first.
                    self.append(vec![Work { held: 0, ..work }]).await?;
                    self.park(vec![Wait { held: 0, ..wait }]).await?;
                }
            }
            Op::Child(offer, cancel) => {
                let known = self.known().await;
                let item = self.offer(&known, &offer, 9);
                let id = (TenantId::DEFAULT, item.id);
                let scheduler = small::boot(small::SCHEDULER);
                let outcomes = both!(self, |store| store
                    .at(self.at())
                    .accept_sends(scheduler, vec![item.clone()]));
                self.take_granted(&[item], outcomes).await?;
                if cancel {
                    both!(self, |store| store
                        .at(self.at())
                        .cancel_sends(scheduler, vec![id]));
                }
            }
            Op::Append(picks) => self.append(picks).await?,
            Op::Complete(picks) => self.complete(picks).await?,
            Op::Park(picks) => self.park(picks).await?,
            Op::Deliver(words) => self.deliver(words).await?,
            Op::Post(answers) => self.post(answers).await?,
            Op::Report(sends, limit) => self.report(sends, limit).await?,
            Op::Release(picks) => {
                let items = self.pick(picks, |pick| *pick);
                let items: Vec<_> = items
                    .into_iter()
                    .map(|(held, _)| ReleaseSession {
                        key: held.key,
                        lease: held.lease,
                        lost: ReleaseLoss::Nothing,
                    })
                    .collect();
                both!(self, |store| store
                    .at(self.at())
                    .release_sessions(items.clone()));
            }
            Op::Cancel(_)
            | Op::Resume(_)
            | Op::Delete(_)
            | Op::Erase(..)
            | Op::Prune(..)
            | Op::Copies(..)
            | Op::Update(..) => {
                self.user_step(op).await?;
            }
            Op::SweepAlarms(_) | Op::SweepReady { .. } | Op::Retention(_) => {
                self.sweep_step(op).await?;
            }
            Op::Timer(_) | Op::ChangeTimer(..) | Op::Fire(_) | Op::SweepTimers(_) => {
                self.timer_step(op).await?;
            }
            Op::WriteList(noted) => self.write_list(noted).await?,
            Op::Copy(pick, agent) => self.copy(pick, &agent).await?,
            Op::Run(op) => self.run_step(op).await?,
            Op::Hook(op) => self.webhook_step(op).await?,
            Op::Money(op) => self.money_step(op).await?,
            Op::Seat(op) => self.seat_step(op).await?,
            Op::Read => {
                self.read().await?;
                self.read_timers().await?;
                self.read_runs().await?;
                self.read_webhooks().await?;
            }
        }
        Ok(())
    }

    // What exists -------------------------------------------------------------------------------

    fn at(&self) -> Timestamp {
        small::time(self.now)
    }

    fn boot(&self, pick: u8) -> BootId {
        small::boot(1 + u128::from(pick) % self.boots)
    }

    /// What is stored, according to the model.
    async fn known(&self) -> Dump {
        self.model.dump().await.unwrap_or_default()
    }

    fn session(&self, pick: u8) -> SessionKey {
        small::key(1 + u128::from(pick) % self.sessions.max(1))
    }

    /// One of the sessions that match, or else any: most steps should have a chance to take effect.
    fn session_like(&self, known: &Dump, pick: u8, like: fn(&DumpSession) -> bool) -> SessionKey {
        let found = known.sessions.iter().filter(|session| like(session));
        let found: Vec<_> = found.map(|session| session.key).collect();
        let place = usize::from(pick / 4) % found.len().max(1);
        match found.get(place) {
            Some(key) if !pick.is_multiple_of(4) => *key,
            _ => self.session(pick),
        }
    }

    /// Makes a grant that its worker has released or lost the last choice.
    fn leave(&mut self, token: LeaseToken) {
        self.held.sort_by_key(|held| held.lease.token != token);
    }

    /// The picked grants, counted from the latest, each once.
    fn pick<T>(&self, picks: Vec<T>, number: impl Fn(&T) -> u8) -> Vec<(Held, T)> {
        let mut seen = BTreeSet::new();
        let picked = picks.into_iter().filter_map(|pick| {
            let back = usize::from(number(&pick)) % self.held.len().clamp(1, 6);
            let held = self.held.iter().rev().nth(back)?.clone();
            Some((held, pick))
        });
        picked
            .filter(|(held, _)| seen.insert(held.lease.token))
            .collect()
    }

    fn new_session(&mut self, agent: &Agent) -> NewSession {
        self.sessions += 1;
        NewSession {
            key: small::key(self.sessions),
            agent: spec(agent),
            metadata: Map::new(),
            parent: None,
        }
    }

    /// The target of a send for a call, and the call it reports to.
    fn for_call(&mut self, known: &Dump, offer: &Offer) -> Option<(Target, String)> {
        let call = pick_call(known, offer.call?)?;
        let id = call.call_id.clone();
        let asking = known
            .sessions
            .iter()
            .find(|session| session.key.session == call.session)?;
        let Some(agent) = &offer.new else {
            let mut sessions = known.sessions.iter();
            let child = sessions.find(|session| {
                let parent = session.parent.as_ref();
                parent.is_some_and(|parent| parent.session == call.session)
                    && session.hot.lifecycle == Lifecycle::Open
            })?;
            return Some((Target::Existing(child.key), id));
        };
        let above = asking.parent.as_ref();
        let parent = Parent {
            session: call.session,
            call_id: id.clone(),
            root: above.map_or(call.session, |above| above.root),
            depth: above.map_or(1, |above| above.depth + 1),
        };
        let new = NewSession {
            parent: Some(parent),
            ..self.new_session(agent)
        };
        Some((Target::New(Box::new(new)), id))
    }

    fn offer(&mut self, known: &Dump, offer: &Offer, queued_max: i64) -> AcceptSend {
        self.sends += 1;
        let (target, reports_to) = match (self.for_call(known, offer), &offer.new) {
            (Some((target, call)), _) => (target, Some(call)),
            (None, Some(agent)) => (Target::New(Box::new(self.new_session(agent))), None),
            (None, None) => (Target::Existing(self.session(offer.session)), None),
        };
        AcceptSend {
            id: small::send(self.sends),
            target,
            input: small::words(self.sends),
            options: SendOptions {
                delay: offer.delay.and_then(small::span),
                deadline: offer.deadline.and_then(small::span),
                priority: if offer.low {
                    Priority::Low
                } else {
                    Priority::High
                },
                on_busy: if offer.reject {
                    OnBusy::Reject
                } else {
                    OnBusy::Enqueue
                },
                ..SendOptions::default()
            },
            reports_to,
            run: None,
            idempotency: offer.request.map(request),
            queued_max,
            keeper: offer.keeper.map(|pick| self.boot(pick)),
        }
    }

    fn attempt(&mut self, send: SendId) -> i32 {
        let attempts = self.attempts.entry(send).or_default();
        *attempts += 1;
        *attempts
    }

    // Steps -------------------------------------------------------------------------------------

    async fn register(&mut self) -> Result<(), String> {
        self.boots += 1;
        let new = NewBoot {
            id: small::boot(self.boots),
            role: Role::Worker,
            name: format!("worker-{}", self.boots),
            pool: "default".to_owned(),
            concurrency: 4,
            ttl: small::millis(small::TTL),
            protocol: mainspring_shared::store::PROTOCOL,
            tools: mainspring_shared::tool::Published::default(),
        };
        both!(self, |store| store.at(self.at()).register_boot(new.clone()));
        Ok(())
    }

    async fn boot_step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Renew(pick) => {
                let boot = self.boot(pick);
                let ttl = small::millis(small::TTL);
                both!(self, |store| store
                    .at(self.at())
                    .renew_boot(boot, ttl, BUSY));
            }
            Op::Stop(pick) => {
                let boot = self.boot(pick);
                both!(self, |store| store.at(self.at()).stop_boot(boot));
            }
            other => unreachable!("{other:?} is no step of a boot"),
        }
        Ok(())
    }

    /// Keeps the grants that came with sends. What keepers are told of a send must match what is stored.
    async fn take_granted(
        &mut self,
        items: &[AcceptSend],
        outcomes: Vec<AcceptOutcome>,
    ) -> Result<(), String> {
        for (item, outcome) in items.iter().zip(outcomes) {
            let AcceptOutcome::Accepted(mut accepted) = outcome else {
                continue;
            };
            let Some((keeper, dispatch)) = Dispatch::of(item.clone(), &mut accepted) else {
                continue;
            };
            let ids = vec![(item.target.key().tenant, item.id)];
            let model: &dyn Inspect = &self.model;
            let read = model.get_sends(ids).await.expect("it never fails");
            let stored = read.into_iter().next().flatten().expect("it is stored");
            let lease = dispatch.lease(keeper);
            let told = dispatch.started(AgentSpec::default()).record;
            if is_direct(item) {
                same("what the keeper is told", &stored, &told)?;
            }
            self.held.push(Held {
                key: stored.key,
                lease,
                send: stored,
            });
        }
        Ok(())
    }

    async fn claim(&mut self, boot: u8, claims: Vec<Claim>) -> Result<(), String> {
        let known = self.known().await;
        let is_ready = |session: &DumpSession| {
            session.hot.ready_since.is_some() && session.hot.owner.is_none()
        };
        let keys = claims.into_iter().map(|claim| {
            let key = self.session_like(&known, claim.session, is_ready);
            (key, claim.cached)
        });
        self.claim_keys(boot, &known, keys.collect()).await
    }

    /// Claims sessions, each with the start and length of the cached part of its window.
    async fn claim_keys(
        &mut self,
        boot: u8,
        known: &Dump,
        claims: Vec<(SessionKey, Option<(u8, u8)>)>,
    ) -> Result<(), String> {
        let boot = self.boot(boot);
        let mut items = Vec::new();
        for (key, cached) in claims {
            self.tokens += 1;
            let session = known.sessions.iter().find(|session| session.key == key);
            let (cached_from_seq, cached_next_seq) = match (session, cached) {
                (Some(session), Some((from, length))) => cache(session, from, length),
                _ => (0, 0),
            };
            items.push(ClaimSession {
                cached_fold_end: 0,
                key,
                token: small::token(self.tokens),
                cached_next_seq,
                cached_from_seq,
                cached_version: session.map_or(0, |session| session.hot.context_version),
                crashes_below: i32::MAX,
                orphans: true,
            });
        }
        let outcomes = both!(self, |store| store
            .at(self.at())
            .claim_sessions(boot, items.clone()));
        for outcome in outcomes {
            if let ClaimOutcome::Claimed(claimed) = outcome {
                self.held.push(Held {
                    key: claimed.key,
                    lease: claimed.lease,
                    send: claimed.send.record,
                });
            }
        }
        Ok(())
    }
}

/// An idempotency key; deliveries and sends share the same keys.
fn request((key, body): (u8, u8)) -> IdempotencyKey {
    IdempotencyKey {
        tenant: TenantId::DEFAULT,
        route: "POST /v1/sends".to_owned(),
        key: key.to_string(),
        body_hash: [body; 32],
    }
}

/// One of the calls; usually one that waits, if there is any.
fn pick_call(known: &Dump, pick: u8) -> Option<&CallRecord> {
    let calls = known.sessions.iter().flat_map(|session| &session.calls);
    let waiting = calls.clone().filter(|call| call.waits_on.is_some());
    let waiting: Vec<_> = waiting.collect();
    let calls: Vec<_> = match pick % 4 {
        0 => calls.collect(),
        _ if waiting.is_empty() => calls.collect(),
        _ => waiting,
    };
    let back = usize::from(pick / 4) % calls.len().max(1);
    calls.into_iter().rev().nth(back)
}
