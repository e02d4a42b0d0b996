//! Inspection of stores by tests and comparisons; not for production code.

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

/// A store that tests can inspect. Production code uses only [`Store`].
#[async_trait]
pub trait Inspect: Store {
    /// The same store with a clock fixed at `now`: all its decisions and writes happen at that time.
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect>;

    /// Reads everything, as of one moment. Fails on the first row that cannot be read.
    async fn dump(&self) -> Result<Dump>;

    /// Number of a tenant's rows, by table, not counting its own row.
    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>>;
}

/// The whole content of a store in a fixed order: tenants, then ids.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dump {
    /// The processes.
    pub boots: Vec<BootRecord>,
    /// The sessions, including tombstones.
    pub sessions: Vec<DumpSession>,
    /// The blobs.
    pub blobs: Vec<DumpBlob>,
    /// The lists that agents keep.
    pub lists: Vec<DumpList>,
    /// The entries of the memory by owner and id.
    pub memories: Vec<(TenantId, MemoryEntry)>,
    /// Pending extractions: session, send, attempts.
    pub extractions: Vec<(SessionKey, SendId, u32)>,
    /// Erasures of memory: owner, fingerprint, entries deleted.
    pub memory_erasures: Vec<(TenantId, String, i64)>,
    /// The runs.
    pub runs: Vec<DumpRun>,
    /// The published agents, with their versions by number.
    pub agents: Vec<(NamedAgent, Vec<AgentVersion>)>,
    /// The skills by owner and name.
    pub skills: Vec<DumpSkill>,
    /// The tenants that were not deleted, except the first one, which every store has.
    pub tenants: Vec<TenantId>,
    /// Tenants with seats, and since when.
    pub seat_limits: Vec<(TenantId, Timestamp)>,
    /// Sessions that have or had a seat, or wait for one; with the time since when they wait.
    pub seats: Vec<(SessionKey, Option<Timestamp>)>,
    /// Reservations of calls.
    pub money_aside: Vec<DumpAside>,
    /// Daily spending of tenants with a money limit, in billionths of a dollar.
    pub money_days: Vec<(TenantId, i64, u64)>,
    /// Reservations of calls in agents' accounts, with the account's holder.
    pub agent_money_aside: Vec<(KeyId, DumpAside)>,
    /// Daily spending of agents with a money limit.
    pub agent_money_days: Vec<(TenantId, KeyId, i64, u64)>,
    /// The timers with their occurrences by number.
    pub timers: Vec<(TimerRecord, Vec<Occurrence>)>,
}

/// Money that a call has reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpAside {
    /// Who pays.
    pub tenant: TenantId,
    /// The call.
    pub call: Uuid,
    /// Whose call it is.
    pub boot: BootId,
    /// The day on which it counts.
    pub day: i64,
    /// The amount in billionths of a dollar.
    pub amount: u64,
    /// When it was reserved.
    pub at: Timestamp,
}

/// One session and everything below it.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpSession {
    /// Its key.
    pub key: SessionKey,
    /// Its hot row.
    pub hot: HotRow,
    /// Its agent's version; `None` for a tombstone.
    pub agent_version: Option<i32>,
    /// Its sends by id.
    pub sends: Vec<SendRecord>,
    /// The first `seq` of its transcript.
    pub first_seq: i64,
    /// Whether it was deleted and may still have rows to remove.
    pub erasing: bool,
    /// Its transcript by `seq`.
    pub messages: Vec<Message>,
    /// Its folds by number.
    pub folds: Vec<Fold>,
    /// Its projections, by first message.
    pub projections: Vec<Projection>,
    /// Its steps by number.
    pub steps: Vec<Step>,
    /// Number of steps that were deleted with retired sends.
    pub retired_steps: i64,
    /// Its tool calls by id.
    pub calls: Vec<CallRecord>,
    /// Its inbox in order.
    pub inbox: Vec<InboxItem>,
    /// Its parent, if it is a child.
    pub parent: Option<Parent>,
    /// Its usage rows: send, round, attempt.
    pub usage: Vec<(SendId, i32, i32)>,
    /// The usage in each of these rows, in the same order.
    pub paid: Vec<Usage>,
}

/// One run and everything below it.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpRun {
    /// The run.
    pub run: RunRecord,
    /// The boot that owns it.
    pub owner: Option<BootId>,
    /// Number of its advances so far.
    pub step: i64,
    /// Its nodes in order.
    pub nodes: Vec<NodeRecord>,
    /// Its pending asks.
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
    /// The version that the name refers to; `None` if it is not listed.
    pub current: Option<SkillHash>,
    /// Its versions by hash, each with the lengths of its stored files.
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
    /// The calls that it remembers, by id.
    pub calls: Vec<String>,
}

/// Audits everything piece by piece; returns the number of items of each kind, and the violations.
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
