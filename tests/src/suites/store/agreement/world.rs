//! Runs steps on the model and on a store side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use mainspring_runtime::SystemClock;
use mainspring_shared::agent::{OnBusy, Priority, SendOptions};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::NewMessage;
use mainspring_shared::send::{SendRecord, SendResult, StopReason, WaitingOn};
use mainspring_shared::store::{
    AcceptSend, AppendOutcome, AppendRound, AuditOptions, ClaimOutcome, ClaimSession,
    CompleteOutcome, CompleteSend, IdempotencyKey, ListSends, ListSessions, NewBoot, NewSession,
    ParkSend, ParkUntil, ReadMessages, ReleaseSession, Result as StoreResult, Role, SendTotals,
    Store, SweepReady, Target, Then, UsageRow, Violation,
};
use mainspring_shared::time::Timestamp;
use mainspring_store_model::{ModelStore, audit};
use serde_json::Map;

use super::make::{cache, patch, spec};
use super::op::{Agent, Claim, Offer, Op, Outcome};
use crate::suites::store::prelude as small;

/// A grant as its worker knows it. It may be lost without the worker knowing.
#[derive(Debug, Clone)]
struct Held {
    key: SessionKey,
    lease: Lease,
    send: SendRecord,
}

/// Both stores, and what the callers of a store would know.
pub(super) struct World<'a> {
    model: ModelStore,
    store: &'a dyn Store,
    now: i64,
    boots: u128,
    sessions: u128,
    sends: u128,
    tokens: u128,
    held: Vec<Held>,
    /// Model calls begun, by send: no two rows of usage may be the same.
    attempts: BTreeMap<SendId, i32>,
}

/// Calls both stores and compares what they say; goes on with the model's answer.
macro_rules! both {
    ($world:ident, |$store:ident| $call:expr) => {{
        let expected = {
            let $store: &dyn Store = &$world.model;
            $call.await
        };
        let actual = {
            let $store: &dyn Store = $world.store;
            $call.await
        };
        let expected = expected.map_err(|error| format!("the model failed: {error:?}"))?;
        let actual = actual.map_err(|error| format!("the store failed: {error:?}"))?;
        same(stringify!($call), &expected, &actual)?;
        expected
    }};
}

fn same<T: Debug + PartialEq>(what: &str, expected: &T, actual: &T) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}\nmodel: {expected:#?}\nstore: {actual:#?}"))
}

impl<'a> World<'a> {
    /// Runs a sequence on an empty model and on `store`, which is empty. Fails with the first
    /// disagreement.
    pub(super) async fn run(store: &'a dyn Store, ops: Vec<Op>) -> Result<(), String> {
        let mut world = Self {
            model: ModelStore::open(Arc::new(SystemClock::new())),
            store,
            now: 0,
            boots: 0,
            sessions: 0,
            sends: 0,
            tokens: 0,
            held: Vec::new(),
            attempts: BTreeMap::new(),
        };
        let begin = [Op::Register, Op::Register];
        let steps = begin.into_iter().chain(ops).chain([Op::Read]);
        for (n, op) in steps.enumerate() {
            let outcome = world.step(op.clone()).await;
            let outcome = match outcome {
                Ok(()) => world.compare().await,
                Err(disagreement) => Err(disagreement),
            };
            outcome.map_err(|why| format!("step {n} at {} ms, {op:?}: {why}", world.now))?;
        }
        Ok(())
    }

    async fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Pass(ms) => self.now += ms,
            Op::Register => self.register().await?,
            Op::Renew(_) | Op::Stop(_) => self.boot_step(op).await?,
            Op::Create(agent) => {
                let new = self.new_session(&agent);
                both!(self, |store| store
                    .create_sessions(self.at(), vec![(new.clone(), None)]));
            }
            Op::Accept(offers, queued_max) => {
                let items: Vec<_> = offers
                    .iter()
                    .map(|offer| self.offer(offer, queued_max))
                    .collect();
                both!(self, |store| store.accept_sends(
                    self.at(),
                    small::boot(small::SCHEDULER),
                    items.clone()
                ));
            }
            Op::Claim(boot, claims) => self.claim(boot, claims).await?,
            Op::Append(picks) => self.append(picks).await?,
            Op::Complete(picks) => self.complete(picks).await?,
            Op::Park(picks) => self.park(picks).await?,
            Op::Release(picks) => {
                let items = self.pick(picks, |pick| *pick);
                let items: Vec<_> = items
                    .into_iter()
                    .map(|(held, _)| ReleaseSession {
                        key: held.key,
                        lease: held.lease,
                    })
                    .collect();
                both!(self, |store| store
                    .release_sessions(self.at(), items.clone()));
            }
            Op::Cancel(_) | Op::Resume(_) | Op::Delete(_) | Op::Update(..) => {
                self.user_step(op).await?;
            }
            Op::SweepAlarms(_) | Op::SweepReady { .. } | Op::Retention(_) => {
                self.sweep_step(op).await?;
            }
            Op::Read => self.read().await?,
        }
        Ok(())
    }

    // What exists -------------------------------------------------------------------------------

    fn at(&self) -> Option<Timestamp> {
        small::at(self.now)
    }

    fn boot(&self, pick: u8) -> BootId {
        small::boot(1 + u128::from(pick) % self.boots)
    }

    fn session(&self, pick: u8) -> SessionKey {
        small::key(1 + u128::from(pick) % self.sessions.max(1))
    }

    /// The picked grants, the latest first, each once.
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
        }
    }

    fn offer(&mut self, offer: &Offer, queued_max: i64) -> AcceptSend {
        self.sends += 1;
        let target = match &offer.new {
            Some(agent) => Target::New(Box::new(self.new_session(agent))),
            None => Target::Existing(self.session(offer.session)),
        };
        let request = offer.request.map(|(key, body)| IdempotencyKey {
            tenant: TenantId::DEFAULT,
            route: "POST /v1/sends".to_owned(),
            key: key.to_string(),
            body_hash: [body; 32],
        });
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
            idempotency: request,
            queued_max,
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
        };
        both!(self, |store| store.register_boot(self.at(), new.clone()));
        Ok(())
    }

    async fn boot_step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Renew(pick) => {
                let boot = self.boot(pick);
                let ttl = small::millis(small::TTL);
                both!(self, |store| store.renew_boot(self.at(), boot, ttl, 1));
            }
            Op::Stop(pick) => {
                let boot = self.boot(pick);
                both!(self, |store| store.stop_boot(self.at(), boot));
            }
            other => unreachable!("{other:?} is no step of a boot"),
        }
        Ok(())
    }

    async fn claim(&mut self, boot: u8, claims: Vec<Claim>) -> Result<(), String> {
        let boot = self.boot(boot);
        let known = self.model.dump().await.unwrap_or_default();
        let mut items = Vec::new();
        for claim in claims {
            self.tokens += 1;
            let key = self.session(claim.session);
            let session = known.sessions.iter().find(|session| session.key == key);
            let (cached_from_seq, cached_next_seq) = match (session, claim.cached) {
                (Some(session), Some((from, length))) => cache(session, from, length),
                _ => (0, 0),
            };
            items.push(ClaimSession {
                key,
                token: small::token(self.tokens),
                cached_next_seq,
                cached_from_seq,
            });
        }
        let outcomes = both!(self, |store| store.claim_sessions(
            self.at(),
            boot,
            items.clone()
        ));
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

    /// The messages of a round, the first with the input before it.
    fn messages(held: &Held, calls: &[&str]) -> Vec<NewMessage> {
        let round = held.send.rounds;
        let mut messages = Vec::new();
        if round == 0 {
            messages.push(NewMessage::user(held.send.input.clone(), 0));
        }
        messages.push(small::answer("so", round, calls));
        for (back, call) in (1..).zip(calls) {
            messages.push(small::tool_result(call, round, back));
        }
        messages
    }

    fn paid(&mut self, held: &Held) -> (Vec<UsageRow>, i32) {
        let attempt = self.attempt(held.send.id);
        (vec![small::usage_row(held.send.rounds, attempt)], attempt)
    }

    async fn append(&mut self, picks: Vec<u8>) -> Result<(), String> {
        let picked = self.pick(picks, |pick| *pick);
        let mut items = Vec::new();
        for (held, pick) in &picked {
            let (usage, attempts) = self.paid(held);
            let calls: Vec<_> = (0..pick % 3)
                .map(|n| format!("{}-{attempts}-{n}", held.send.id))
                .collect();
            let names: Vec<&str> = calls.iter().map(String::as_str).collect();
            let rows = calls.iter().zip(0..);
            items.push(AppendRound {
                key: held.key,
                lease: held.lease,
                send_id: held.send.id,
                messages: Self::messages(held, &names),
                calls: rows.map(|(id, n)| small::call_row(id, n)).collect(),
                usage,
                round: small::round_ref(held.send.rounds),
                totals: SendTotals {
                    attempts,
                    ..small::totals(held.send.rounds + 1)
                },
            });
        }
        let outcomes = both!(self, |store| store.append_rounds(self.at(), items.clone()));
        for ((held, _), outcome) in picked.iter().zip(outcomes) {
            if let AppendOutcome::Appended { .. } = outcome {
                let grants = self.held.iter_mut();
                for grant in grants.filter(|g| g.lease.token == held.lease.token) {
                    grant.send.rounds += 1;
                }
            }
        }
        Ok(())
    }

    async fn complete(&mut self, picks: Vec<(u8, Outcome, Then)>) -> Result<(), String> {
        let picked = self.pick(picks, |(pick, ..)| *pick);
        let mut items = Vec::new();
        for (held, (_, outcome, then)) in &picked {
            let (usage, attempts) = self.paid(held);
            let index = held.send.rounds;
            let mut item = CompleteSend {
                key: held.key,
                lease: held.lease,
                send_id: held.send.id,
                messages: Self::messages(held, &[]),
                usage,
                round: Some(small::round_ref(index)),
                totals: SendTotals {
                    attempts,
                    ..small::totals(index + 1)
                },
                result: SendResult::completed(StopReason::End, "so".to_owned()),
                then: *then,
            };
            if let Outcome::Failure = outcome {
                let failure = Failure::new(Code::LlmUnavailable, "the provider is away");
                item.result = SendResult::failed(StopReason::ProviderError, failure);
                item.messages.clear();
                item.round = None;
            }
            items.push(item);
        }
        let outcomes = both!(self, |store| store.complete_sends(self.at(), items.clone()));
        for ((held, _), outcome) in picked.iter().zip(outcomes) {
            let CompleteOutcome::Completed(completed) = outcome else {
                continue;
            };
            if let Some((next, _)) = completed.next {
                let grants = self.held.iter_mut();
                for grant in grants.filter(|g| g.lease.token == held.lease.token) {
                    grant.send = next.record.clone();
                }
            }
        }
        Ok(())
    }

    async fn park(&mut self, picks: Vec<(u8, WaitingOn, Option<i64>)>) -> Result<(), String> {
        let picked = self.pick(picks, |(pick, ..)| *pick);
        let mut items = Vec::new();
        for (held, (_, on, after)) in &picked {
            let (usage, attempts) = self.paid(held);
            items.push(ParkSend {
                key: held.key,
                lease: held.lease,
                send_id: held.send.id,
                on: *on,
                until: after.map_or(ParkUntil::Asked, |ms| ParkUntil::After(small::millis(ms))),
                usage,
                totals: SendTotals {
                    attempts,
                    ..small::totals(held.send.rounds)
                },
            });
        }
        both!(self, |store| store.park_sends(self.at(), items.clone()));
        Ok(())
    }

    async fn user_step(&mut self, op: Op) -> Result<(), String> {
        let scheduler = small::boot(small::SCHEDULER);
        match op {
            Op::Cancel(picks) => {
                let count = self.sends.max(1);
                let ids: Vec<_> = picks
                    .into_iter()
                    .map(|pick| count - u128::from(pick) % count.min(9))
                    .map(|n| (TenantId::DEFAULT, small::send(n)))
                    .collect();
                both!(self, |store| store.cancel_sends(
                    self.at(),
                    scheduler,
                    ids.clone()
                ));
            }
            Op::Resume(pick) => {
                let key = self.session(pick);
                both!(self, |store| store.resume_recovery(
                    self.at(),
                    scheduler,
                    key
                ));
            }
            Op::Delete(pick) => {
                let key = self.session(pick);
                both!(self, |store| store.delete_session(
                    self.at(),
                    key,
                    scheduler
                ));
            }
            Op::Update(pick, change) => {
                let key = self.session(pick);
                let patch = patch(&change);
                both!(self, |store| store.update_session(
                    self.at(),
                    key,
                    patch.clone()
                ));
            }
            other => unreachable!("{other:?} is no step of a user"),
        }
        Ok(())
    }

    async fn sweep_step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::SweepAlarms(limit) => {
                let scheduler = small::boot(small::SCHEDULER);
                both!(self, |store| store.sweep_alarms(
                    self.at(),
                    scheduler,
                    limit
                ));
            }
            Op::SweepReady {
                older_than_ms,
                limit,
                gpu,
            } => {
                let mut query = SweepReady {
                    pool: gpu.then(|| "gpu".to_owned()),
                    older_than_ms,
                    after: None,
                    limit,
                };
                loop {
                    let swept = both!(self, |store| store.sweep_ready(self.at(), query.clone()));
                    query.after = swept.next;
                    if swept.next.is_none() {
                        break;
                    }
                }
            }
            Op::Retention(ms) => {
                let keep = small::millis(ms);
                while both!(self, |store| store.sweep_retention(self.at(), keep)) > 0 {}
            }
            other => unreachable!("{other:?} is no sweep"),
        }
        Ok(())
    }

    // Comparisons -------------------------------------------------------------------------------

    /// Everything that is stored, and that it is sound.
    async fn compare(&self) -> Result<(), String> {
        let dump = both!(self, |store| store.dump());
        let mut unsound = audit(&dump, small::time(self.now), AuditOptions::default());
        // Time may pass here without anybody sweeping.
        unsound.retain(|violation| violation.invariant != "send.running_has_lease");
        same("audit", &Vec::new(), &unsound)
    }

    async fn read(&self) -> Result<(), String> {
        let options = AuditOptions::default();
        both!(self, |store| names(store.audit(self.at(), options)));
        let ids: Vec<_> = (1..=self.sends + 1)
            .map(|n| (TenantId::DEFAULT, small::send(n)))
            .collect();
        both!(self, |store| store.get_sends(ids.clone()));
        let sends = ListSends {
            tenant: TenantId::DEFAULT,
            session: Some(SessionId(small::key(1).session.0)),
            status: None,
            before: Some(small::send(self.sends)),
            limit: 5,
        };
        both!(self, |store| store.list_sends(sends.clone()));
        let sessions = ListSessions {
            tenant: TenantId::DEFAULT,
            status: None,
            agent: None,
            metadata: BTreeMap::new(),
            before: None,
            limit: 5,
        };
        both!(self, |store| store.list_sessions(sessions.clone()));
        for n in 1..=self.sessions {
            let query = ReadMessages {
                key: small::key(n),
                after: 2,
                limit: 4,
            };
            both!(self, |store| store.read_messages(query));
            both!(self, |store| store.read_steps(small::key(n), 1, 5));
            both!(self, |store| store.get_session(small::key(n)));
        }
        both!(self, |store| store.queue_stats(self.at()));
        for pool in ["default", "gpu"] {
            both!(self, |store| store.scaling(self.at(), pool));
        }
        both!(self, |store| store.list_boots(self.at()));
        Ok(())
    }
}

/// The violated invariants; how their rows are shown is a store's own.
async fn names(
    violations: impl Future<Output = StoreResult<Vec<Violation>>>,
) -> StoreResult<Vec<String>> {
    let violations = violations.await?;
    Ok(violations.into_iter().map(|v| v.invariant).collect())
}
