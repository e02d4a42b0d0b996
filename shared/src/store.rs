//! The store port: domain steps, each one transaction, over any database.
//!
//! Most methods take a vector and return one outcome per item, in order, so that concurrent work on
//! different sessions shares a commit. If the database rejects one item's data, the whole call
//! fails and writes nothing; the caller then runs its items one by one ([`Error::is_of_data`]). An
//! item whose session stays locked by someone else is answered as locked, and the other items are processed.
//!
//! Repeats take effect once: a write under a lease is identified by its number, a send by its id.
//! An ambiguous commit is resolved inside the store, by reading back. Time is the database's; tests
//! set it through [`Inspect`].

mod agents;
mod audits;
mod blobs;
mod boots;
mod calibrations;
mod calls;
pub mod columns;
mod contended;
mod error;
mod extractions;
mod inspect;
mod keys;
mod leases;
mod lists;
mod mcp_lists;
mod memories;
mod money;
mod paid;
mod pauses;
pub mod placements;
mod provider_keys;
mod reads;
mod runs;
mod schema;
mod scope;
mod sends;
mod sessions;
mod skills;
mod sweeps;
mod tenant_erasures;
mod tenants;
mod timers;
mod tree;
mod watched;
mod webhooks;

use std::fmt;

pub use agents::{
    Agents, AliasOutcome, ListAgentVersions, ListAgents, PublishAgent, PublishNote, PublishOutcome,
    SetAlias,
};
pub use audits::{AuditKind, AuditOptions, AuditPiece, AuditPlace, AuditRange, Audited, Violation};
pub use blobs::{
    BeginBlob, BlobRecord, BlobRows, BlobState, DumpBlob, NewBlob, RetireBlobs, RetiredBlobs,
};
pub use boots::{
    BootRecord, Boots, Connections, DATABASE_WENT_BACK, NewBoot, Owned, PoolTools, Renewal, Role,
    WentBack, alive,
};
pub use calibrations::{CALIBRATION_NAME_MAX, CalibrationRecord, Calibrations};
pub use calls::{
    CallAnswer, CallBegin, CallChange, CallStep, Calls, ClaimableCalls, DeliverItem,
    DeliverOutcome, Delivery, ListWaitingCalls, NewCall, Parent, PostOutcome, PostResult,
    ReadInbox, ReportOutcome,
};
pub use contended::Contended;
pub use error::{Denial, Error, ReadOnly};
pub use extractions::{
    ClaimExtractions, EXTRACT_AGAIN_MS, EXTRACT_ROUND, EndExtraction, Extraction, ExtractionSpec,
    Extractions, NewExtraction,
};
pub use inspect::{
    Dump, DumpAside, DumpList, DumpRun, DumpSession, DumpSkill, Inspect, audit_in_pieces,
};
pub use keys::{CreateKeyOutcome, Keys, ListKeys, NewKey, RotateKey};
pub use leases::{
    AfterSend, AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, Claimed, CompleteOutcome,
    CompleteSend, Completed, Counters, Leases, ParkOutcome, ParkSend, ParkUntil, ReleaseLoss,
    ReleaseSession, Resumed, SendTotals, StartedSend,
};
pub use lists::{ListOutcome, Lists, WriteList};
pub use mcp_lists::{MCP_LIST_BYTES_MAX, McpList, McpLists};
pub use memories::{
    CANDIDATES_MAX, ChangeMemory, ClaimUnembedded, EraseMemories, ErasedMemories, Erasure,
    ListErasures, ListMemories, MEMORIES_ERASED_AT_ONCE, Memories, NewMemory, PaidVectors,
    RARE_MAX, SCAN_MAX, SaveMemory, SaveMemoryOutcome, SearchMemories, SetEmbedding, Unembedded,
    VECTORS_MAX, VECTORS_MAX_INSIDE, candidate,
};
pub use money::{Money, ReserveMoney, ReserveMoneyOutcome, SettleMoney, places_by_tenant};
pub use paid::UsageRow;
pub use pauses::{ListPauses, NewPause, PauseWait, Pauses, RESUMED_KEPT_MS};
pub use provider_keys::{ListProviderKeys, ProviderKeys, SetProviderKey};
pub use reads::{
    FindMessages, FindSteps, FoundSteps, ListSends, ListSessions, ModelUsage, Page, QueueStats,
    ReadMessages, Reads, ScalingStats, ServerInfo, SessionUsage,
};
pub use runs::{
    AdvanceOutcome, AdvanceRun, ClaimRuns, ClaimedRuns, CreateRunOutcome, EndedLeaf, ListRuns,
    NewRun, ReadNodes, RunNews, RunReport, RunStep, RunWords, Runs, left_to_run, passes_bound,
};
pub use schema::{
    Demands, PROTOCOL, SchemaFault, SchemaObject, SchemaWrong, schema_faults, schema_fits,
};
pub use scope::{in_scope, scope, scoped};
pub use sends::{
    AcceptOutcome, AcceptSend, Accepted, CancelOutcome, GrantedSend, IdempotencyKey, KeyOutcome,
    RefuseReason, Sends, Target,
};
pub use sessions::{
    AppendCopies, CALLS_EACH, CopiesOutcome, CreateOutcome, DeleteOutcome, DeletedSession,
    ERASED_AT_ONCE, ERASED_MS_MIN, Erased, FoldAtRest, FoldedAtRest, ImportSession, NewSession,
    PruneOutcome, PruneSession, PruneTo, STAGED_MS, SessionPatch, Sessions, UpdateOutcome,
};
pub use skills::{
    ListSkills, PublishSkill, PublishSkillOutcome, SKILL_VERSIONS_MAX, SkillVersion, Skills,
    takes_name,
};
pub use sweeps::{
    API_KEY_KEEP, AlarmSweep, Orphans, ReadySession, RetireSends, Retired, SweepOrphans,
    SweepReady, Sweeps, Swept,
};
pub use tenant_erasures::{
    BeginErasureOutcome, COUNT_TENANT_ROWS, ROWS_ERASED_AT_ONCE, TenantErasures,
};
pub use tenants::{
    CalledSeats, CreateTenantOutcome, DeleteTenantOutcome, ListTenants, NewTenant, PLACE_KEPT_MS,
    TenantPatch, TenantUsage, TenantUsageQuery, Tenants, UpdateTenantOutcome, frees_places,
};
pub use timers::{
    ChangeTimer, ChangeTimerOutcome, CreateTimerOutcome, Fired, FiredRun, FiredSend,
    ListOccurrences, ListTimers, NewTimer, RefuseTimer, TIMER_QUEUED_MAX, TimerDelivery, Timers,
    deliveries, refusal, run_refusal,
};
pub use tree::{ErasedStep, cancel_below, delete_whole, erase_step, one_by_one, prune_all};
pub use watched::{Moment, Watched};
pub use webhooks::{
    ChangeWebhook, ClaimDeliveries, ClaimedDeliveries, ClaimedDelivery, CreateWebhookOutcome,
    DeliveryEnd, FannedOut, ListDeliveries, ListWebhooks, NewSecret, NewWebhook, RetireDeliveries,
    SettleDelivery, WEBHOOKS_MAX, WebhookEvent, WebhookNews, Webhooks, deliveries_of,
};

/// The traits of all nouns, for callers of a concrete store.
pub mod prelude {
    pub use super::{
        Agents as _, BlobRows as _, Boots as _, Calibrations as _, Calls as _, Extractions as _,
        Keys as _, Leases as _, Lists as _, McpLists as _, Memories as _, Money as _, Pauses as _,
        ProviderKeys as _, Reads as _, Runs as _, Sends as _, Sessions as _, Skills as _,
        Sweeps as _, TenantErasures as _, Tenants as _, Timers as _, Webhooks as _,
    };
}

/// Counter: unreadable rows that were skipped when reading several, by `table`.
pub const ROWS_UNREADABLE: &str = "mainspring_rows_unreadable_total";

/// What a store's methods return.
pub type Result<T> = std::result::Result<T, Error>;

/// A store: the domain steps of every noun. Each method is one transaction.
pub trait Store:
    Agents
    + BlobRows
    + Boots
    + Calibrations
    + Calls
    + Extractions
    + Keys
    + Leases
    + Lists
    + McpLists
    + Memories
    + Money
    + Pauses
    + ProviderKeys
    + Reads
    + Runs
    + Sends
    + Sessions
    + Skills
    + Sweeps
    + TenantErasures
    + Tenants
    + Timers
    + Webhooks
    + fmt::Debug
{
}

impl<T> Store for T where
    T: Agents
        + BlobRows
        + Boots
        + Calibrations
        + Calls
        + Extractions
        + Keys
        + Leases
        + Lists
        + McpLists
        + Memories
        + Money
        + Pauses
        + ProviderKeys
        + Reads
        + Runs
        + Sends
        + Sessions
        + Skills
        + Sweeps
        + TenantErasures
        + Tenants
        + Timers
        + Webhooks
        + fmt::Debug
{
}

/// Passes the methods of the port to `apply!`, noun by noun, for stores that wrap every method: the
/// noun, and for each method whether it reads or writes, and its signature.
#[macro_export]
macro_rules! store_methods {
    ($apply:ident) => {
        $crate::agents_methods!($apply);
        $crate::blob_rows_methods!($apply);
        $crate::boots_methods!($apply);
        $crate::calibrations_methods!($apply);
        $crate::sessions_methods!($apply);
        $crate::lists_methods!($apply);
        $crate::skills_methods!($apply);
        $crate::extractions_methods!($apply);
        $crate::mcp_lists_methods!($apply);
        $crate::memories_methods!($apply);
        $crate::money_methods!($apply);
        $crate::pauses_methods!($apply);
        $crate::provider_keys_methods!($apply);
        $crate::tenants_methods!($apply);
        $crate::keys_methods!($apply);
        $crate::tenant_erasures_methods!($apply);
        $crate::webhooks_methods!($apply);
        $crate::sends_methods!($apply);
        $crate::leases_methods!($apply);
        $crate::calls_methods!($apply);
        $crate::timers_methods!($apply);
        $crate::runs_methods!($apply);
        $crate::sweeps_methods!($apply);
        $crate::reads_methods!($apply);
    };
}
