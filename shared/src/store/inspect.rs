//! What tests and comparisons of stores ask for, and no production code.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    AuditKind, AuditOptions, AuditPiece, AuditPlace, BootRecord, DumpBlob, Parent, Result, RunStep,
    Store, Violation,
};
use crate::agent::{AgentVersion, NamedAgent};
use crate::id::{BootId, KeyId, SendId, SessionKey, TenantId};
use crate::inbox::InboxItem;
use crate::list::List;
use crate::memory::MemoryEntry;
use crate::message::Message;
use crate::send::SendRecord;
use crate::session::fold::Fold;
use crate::session::hot::HotRow;
use crate::session::projection::Projection;
use crate::skill::{SkillHash, SkillRecord};
use crate::step::Step;
use crate::time::Timestamp;
use crate::timer::{Occurrence, TimerRecord};
use crate::tool::CallRecord;
use crate::usage::Usage;
use crate::workflow::run::{NodeRecord, RunAsk, RunRecord};

/// A store that tests look into. What serves a product is a [`Store`] and no more.
#[async_trait]
pub trait Inspect: Store {
    /// The same store with a clock that shows `now`: what it judges and what it writes there happens at
    /// that time.
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect>;

    /// Reads everything, as of one moment. Fails on the first row that cannot be read.
    async fn dump(&self) -> Result<Dump>;

    /// How many rows there are of a tenant, by table, its own row left out.
    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>>;
}

/// The whole content of a store in a fixed order: tenants, then ids.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dump {
    /// The processes.
    pub boots: Vec<BootRecord>,
    /// The sessions, tombstones too.
    pub sessions: Vec<DumpSession>,
    /// The blobs.
    pub blobs: Vec<DumpBlob>,
    /// The lists that agents keep.
    pub lists: Vec<DumpList>,
    /// The entries of the memory by owner and id.
    pub memories: Vec<(TenantId, MemoryEntry)>,
    /// What is still to be extracted: session, send, attempts.
    pub extractions: Vec<(SessionKey, SendId, u32)>,
    /// Erasures of the memory: owner, fingerprint, entries that went.
    pub memory_erasures: Vec<(TenantId, String, i64)>,
    /// The runs.
    pub runs: Vec<DumpRun>,
    /// The agents that have names, with their versions by number.
    pub agents: Vec<(NamedAgent, Vec<AgentVersion>)>,
    /// The skills by owner and name.
    pub skills: Vec<DumpSkill>,
    /// The tenants that were not deleted, but for the first one, which every store has.
    pub tenants: Vec<TenantId>,
    /// Since when tenants have seats.
    pub seat_limits: Vec<(TenantId, Timestamp)>,
    /// Sessions that have a seat, or had one, or wait for one: since when they wait.
    pub seats: Vec<(SessionKey, Option<Timestamp>)>,
    /// What calls have set aside.
    pub money_aside: Vec<DumpAside>,
    /// What tenants with a limit of money spent by day, in billionths of a dollar.
    pub money_days: Vec<(TenantId, i64, u64)>,
    /// What calls have set aside in accounts of agents, which are called by their holders.
    pub agent_money_aside: Vec<(KeyId, DumpAside)>,
    /// What agents with a limit of money spent by day.
    pub agent_money_days: Vec<(TenantId, KeyId, i64, u64)>,
    /// The timers with their occurrences by number.
    pub timers: Vec<(TimerRecord, Vec<Occurrence>)>,
}

/// Money that a call has set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpAside {
    /// Who pays.
    pub tenant: TenantId,
    /// The call.
    pub call: Uuid,
    /// Whose call it is.
    pub boot: BootId,
    /// On which day it counts.
    pub day: i64,
    /// In billionths of a dollar.
    pub amount: u64,
    /// Since when.
    pub at: Timestamp,
}

/// One session and everything below it.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpSession {
    /// Its key.
    pub key: SessionKey,
    /// Its hot row.
    pub hot: HotRow,
    /// Its agent's version; none on a tombstone.
    pub agent_version: Option<i32>,
    /// Its sends by id.
    pub sends: Vec<SendRecord>,
    /// The `seq` that its transcript begins with.
    pub first_seq: i64,
    /// Whether it was deleted and may have left something behind that is still to be removed.
    pub erasing: bool,
    /// Its transcript by `seq`.
    pub messages: Vec<Message>,
    /// Its folds by number.
    pub folds: Vec<Fold>,
    /// What its sends are shown as once they are old, by their first messages.
    pub projections: Vec<Projection>,
    /// Its steps by number.
    pub steps: Vec<Step>,
    /// Steps that went with sends that were not needed any more.
    pub retired_steps: i64,
    /// Its tool calls by id.
    pub calls: Vec<CallRecord>,
    /// Its inbox in order.
    pub inbox: Vec<InboxItem>,
    /// Whose child it is.
    pub parent: Option<Parent>,
    /// Its usage rows: send, round, attempt.
    pub usage: Vec<(SendId, i32, i32)>,
    /// What each of these rows says that it cost, in their order.
    pub paid: Vec<Usage>,
}

/// One run and everything below it.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpRun {
    /// The run.
    pub run: RunRecord,
    /// Who keeps it.
    pub owner: Option<BootId>,
    /// Its advances so far.
    pub step: i64,
    /// Its nodes in order.
    pub nodes: Vec<NodeRecord>,
    /// What is asked of it.
    pub asks: Vec<RunAsk>,
    /// Its advances.
    pub steps: Vec<RunStep>,
}

/// A skill in a dump.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpSkill {
    /// The owner.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// What the name means; none when it is not listed.
    pub current: Option<SkillHash>,
    /// Its versions by hash, each with the lengths of the files that are stored for it.
    pub versions: Vec<(SkillRecord, BTreeMap<String, u64>)>,
}

/// A list in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpList {
    /// The owner.
    pub tenant: TenantId,
    /// [`ListName::key`](crate::list::ListName::key).
    pub name: String,
    /// Its content.
    pub list: List,
    /// The calls that it remembers, in the order of their ids.
    pub calls: Vec<String>,
}

/// Checks everything piece by piece, and returns how many of each kind there were and what is violated.
pub async fn audit_in_pieces(
    store: &dyn Inspect,
    limit: u32,
) -> Result<(BTreeMap<AuditKind, u32>, Vec<Violation>)> {
    let (mut counts, mut violated) = (BTreeMap::new(), Vec::new());
    for kind in AuditKind::ALL {
        let mut next = Some(AuditPlace::START);
        while let Some(from) = next {
            let piece = AuditPiece {
                kind,
                from,
                limit,
                options: AuditOptions::default(),
            };
            let audited = store.audit_piece(piece).await?;
            *counts.entry(kind).or_default() += audited.count;
            violated.extend(audited.violations);
            next = audited.next;
        }
    }
    Ok((counts, violated))
}
