//! The store as one process sees it: through a network that takes time, in front of a database that
//! may be away, at calls at which something may happen.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::agent::{AgentKey, AgentQuery, AgentVersion, NamedAgent};
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace};
use mainspring_shared::id::{
    BootId, KeyId, MemoryId, RunKey, SendId, SessionKey, TenantId, TimerId,
};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::list::{List, ListName};
use mainspring_shared::memory::{MemoryEntry, Namespace};
use mainspring_shared::message::Message;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::skill::{BrokenSkill, SkillFault, SkillHash, SkillRecord, SkillRef};
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, Agents, AlarmSweep, AliasOutcome,
    AppendOutcome, AppendRound, AuditOptions, BeginBlob, BlobRecord, BlobRows, BootRecord, Boots,
    Calls, CancelOutcome, ChangeMemory, ChangeTimer, ChangeTimerOutcome, ClaimExtractions,
    ClaimOutcome, ClaimRuns, ClaimSession, ClaimedRuns, CompleteOutcome, CompleteSend,
    CreateKeyOutcome, CreateOutcome, CreateRunOutcome, CreateTenantOutcome, CreateTimerOutcome,
    DeleteOutcome, DeleteTenantOutcome, DeletedSession, DeliverItem, DeliverOutcome, EndExtraction,
    EraseMemories, Erased, ErasedMemories, Error, Extraction, Extractions, FindMessages, Fired,
    IdempotencyKey, ImportSession, KeyOutcome, Leases, ListAgentVersions, ListAgents, ListKeys,
    ListMemories, ListOccurrences, ListOutcome, ListRuns, ListSends, ListSessions, ListSkills,
    ListTenants, ListTimers, Lists, Memories, NewBlob, NewBoot, NewExtraction, NewKey, NewRun,
    NewSession, NewTenant, NewTimer, Orphans, Owned, Page, ParkOutcome, ParkSend, PoolTools,
    PostOutcome, PostResult, PruneOutcome, PruneSession, PublishAgent, PublishOutcome,
    PublishSkill, PublishSkillOutcome, QueueStats, ReadInbox, ReadMessages, ReadNodes, Reads,
    ReleaseSession, Renewal, ReportOutcome, Result, RetireBlobs, RetireSends, Retired,
    RetiredBlobs, RotateKey, RunStep, Runs, SaveMemory, SaveMemoryOutcome, ScalingStats,
    SearchMemories, Sends, ServerInfo, SessionPatch, SessionUsage, Sessions, SetAlias,
    SkillVersion, Skills, SweepOrphans, SweepReady, Sweeps, Swept, TenantPatch, Tenants, Timers,
    UpdateOutcome, UpdateTenantOutcome, Violation, WriteList,
};
use mainspring_shared::tenant::{KeyRecord, Tenant};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Occurrence, TimerRecord};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};

use super::chance::mixed;
use super::plan::Harm;
use super::system::Core;
use crate::world::faulty::store_methods;

/// The store of one process.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) core: Arc<Core>,
    /// The process, and which of its lives.
    pub(super) slot: usize,
    pub(super) gate: super::gate::Gate,
}

fn away() -> Error {
    Error::Unavailable {
        source: "the database is away".into(),
    }
}

impl Link {
    async fn call<T: Send, F>(
        &self,
        method: &'static str,
        call: impl FnOnce(Timestamp) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let core = &self.core;
        self.gate.pass().await;
        let (nth, harm) = core.count(method);
        // A millisecond or three there, and back.
        let spread = mixed(core.plan.seed ^ mixed(nth as u64) ^ ((self.slot as u64) << 40));
        let (there, back) = (spread % 3, (spread >> 8) % 3);
        if there > 0 {
            core.time.sleep(there).await;
        }
        if let Some(harm) = harm {
            core.say(|| format!("{method} #{nth} of {}: {harm:?}", self.slot));
        }
        if core.is_cut_off(self.slot) {
            // Some find out at once, others by a timeout.
            if spread.is_multiple_of(4) {
                core.time.sleep(2_000).await;
            }
            self.gate.pass().await;
            return Err(away());
        }
        match harm {
            Some(Harm::Before) => return Err(away()),
            Some(Harm::Refused(_)) => {
                return Err(Error::Refused {
                    source: "the database refuses it".into(),
                });
            }
            Some(Harm::Unreadable(_)) => {
                return Err(Error::Corrupt {
                    table: "sends",
                    column: "options",
                    row: "of the simulation".to_owned(),
                    detail: "it makes no sense".to_owned(),
                });
            }
            Some(Harm::LateBefore(ms)) => core.time.sleep(ms).await,
            Some(Harm::DiesBefore(ms)) => core.kill(self.slot, ms),
            Some(Harm::StopsBefore(ms)) => core.pause(self.slot, ms),
            _ => {}
        }
        // What a process had sent before it died, or stood still, is on its way all the same.
        let unsent = matches!(harm, Some(Harm::DiesBefore(_) | Harm::StopsBefore(_)));
        if unsent || (self.gate.is_dead() && spread & 16 == 0) {
            self.gate.pass().await;
        }
        let answer = core.made(call(core.now())).await;
        core.trace(self.slot, method, answer.is_ok());
        match harm {
            Some(Harm::After) => return answer.and_then(|_| Err(away())),
            Some(Harm::LateAfter(ms)) => core.time.sleep(ms).await,
            Some(Harm::DiesAfter(ms)) => core.kill(self.slot, ms),
            Some(Harm::StopsAfter(ms)) => core.pause(self.slot, ms),
            _ => {}
        }
        if back > 0 {
            core.time.sleep(back).await;
        }
        self.gate.pass().await;
        answer
    }
}

/// Writes out the port: `now` is the database's clock.
macro_rules! link {
    (@ $noun:ident [$($done:tt)*]) => {
        #[async_trait]
        impl $noun for Link { $($done)* }
    };
    (@ $noun:ident [$($done:tt)*] $kind:ident now() -> $out:ty; $($rest:tt)*) => {
        link! { @ $noun [$($done)*
            async fn now(&self) -> Result<$out> {
                self.call("now", |now| async move { Ok(now) }).await
            }
        ] $($rest)* }
    };
    (@ $noun:ident [$($done:tt)*] $kind:ident $name:ident(
        $($arg:ident: $type:ty),*
    ) -> $out:ty; $($rest:tt)*) => {
        link! { @ $noun [$($done)*
            async fn $name(&self $(, $arg: $type)*) -> Result<$out> {
                let made = move |now| async move {
                    self.core.store.at(now).$name($($arg),*).await
                };
                self.call(stringify!($name), made).await
            }
        ] $($rest)* }
    };
    ($noun:ident: $($all:tt)*) => { link! { @ $noun [] $($all)* } };
}

store_methods!(link);
