//! One row that cannot be read never stops a loop. Every text of every table is spoilt in turn, for
//! one tenant; then each method of the port that reads rows of many must serve the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use mainspring_shared::id::{RunId, RunKey, TenantId, TimerId};
use mainspring_shared::store::{
    AuditKind, AuditOptions, AuditPiece, AuditPlace, ClaimDeliveries, ClaimExtractions,
    ClaimOutcome, ClaimRuns, ClaimSession, ClaimUnembedded, ClaimableCalls, EXTRACT_AGAIN_MS,
    Error, FindSteps, Inspect, ListAgents, ListDeliveries, ListErasures, ListKeys, ListMemories,
    ListPauses, ListProviderKeys, ListRuns, ListSends, ListSessions, ListSkills, ListTenants,
    ListTimers, ListWaitingCalls, ListWebhooks, Result, RetireBlobs, RetireDeliveries, RetireSends,
    SweepOrphans, SweepReady,
};
use mainspring_shared::time::Timestamp;
use mainspring_tests::suites::store::furnished::{session_of, two_tenants};
use mainspring_tests::suites::store::prelude::*;
use mainspring_tests::suites::store::webhooks::webhook_id;
use uuid::Uuid;

/// The tenant whose rows are spoilt, and one that has to be served all the same.
pub(crate) struct Two {
    pub(crate) sick: TenantId,
    pub(crate) well: TenantId,
    /// The number of what the sick tenant has; that of the other one is the next.
    n: u128,
}

impl Two {
    /// Gives two tenants one of nearly everything each, numbered from `from` on.
    pub(crate) async fn furnished(store: &dyn Inspect, from: u128) -> Self {
        let (sick, well) = two_tenants(store, from).await;
        Self {
            sick,
            well,
            n: from + 1,
        }
    }

    /// The condition by which a table's rows of the sick tenant are found, in a database that writes
    /// its UUIDs as `uuid` does; for tables without tenants, that of one row of several.
    pub(crate) fn rows_of(&self, table: &str, uuid: impl Fn(Uuid) -> String) -> String {
        match table {
            "boots" => format!("boot_id = {}", uuid(boot(self.n).0)),
            "calibrations" => format!("model = 'm{}'", self.n * 100),
            "mcp_lists" => format!("server = 'server-{}'", self.n * 100),
            _ => format!("tenant = {}", self.sick.0),
        }
    }
}

/// Tables of which no row is spoilt. The others need a row of each tenant, by [`two_tenants`].
const WITHOUT_ROWS: [&str; 17] = [
    // Numbers, ids and times alone, each of which can be read.
    "blob_chunks",
    "blob_holds",
    "commit_marks",
    "key_sends",
    "list_writes",
    "money_aside",
    "money_days",
    "open_sends",
    "placements",
    "retired_steps",
    "seat_limits",
    "seats",
    "tenants_away",
    // Of a run that is under way, read with it alone.
    "run_nodes",
    "run_steps",
    // What the schema is, which every process reads at its start.
    "_sqlx_migrations",
    "schema_compatibility",
];

/// Fails if there is a table with texts of which no row was spoilt.
pub(crate) fn assert_all_spoilt(tables: &BTreeSet<String>, spoilt: &BTreeSet<String>) {
    let missing: Vec<_> = tables
        .difference(spoilt)
        .filter(|table| !WITHOUT_ROWS.contains(&table.as_str()))
        .collect();
    assert_eq!(
        missing, [""; 0],
        "tables with texts of which no row was spoilt: furnish the tenants with one"
    );
}

/// A method that reads rows of many.
struct Method {
    name: &'static str,
    /// Calls it; whether the tenant that is well was served.
    call: for<'s> fn(&'s dyn Inspect, &'s Two) -> LocalBoxFuture<'s, Result<bool>>,
}

macro_rules! methods {
    ($($name:ident: |$now:ident, $two:ident| $call:expr;)*) => {
        const MANY: &[Method] = &[$(Method {
            name: stringify!($name),
            call: |$now, $two| async move { $call }.boxed_local(),
        },)*];
    };
}

/// Not more rows than this are asked for at once.
const LIMIT: u32 = 1_000;

// In this order: what is claimed is not found by sweeps any more.
methods! {
    now: |now, _two| now.now().await.map(|_| true);
    check: |now, _two| now.check().await.map(|_| true);
    had_keys: |now, _two| now.had_keys().await.map(|_| true);
    schema_faults: |now, _two| now.schema_faults().await.map(|_| true);
    list_boots: |now, two| {
        let boots = now.list_boots().await?;
        Ok(boots.iter().any(|it| it.id == boot(two.n + 1)))
    };
    list_tools: |now, _two| Ok(!now.list_tools().await?.is_empty());
    owned_sessions: |now, two| now.owned_sessions(boot(two.n), None, LIMIT).await.map(|_| true);
    queue_stats: |now, _two| Ok(!now.queue_stats().await?.is_empty());
    scaling: |now, _two| now.scaling("default").await.map(|_| true);
    list_calibrations: |now, two| {
        let known = now.list_calibrations(LIMIT).await?;
        Ok(known.iter().any(|it| it.model == format!("m{}", (two.n + 1) * 100)))
    };
    last_steps: |now, two| {
        let keys = vec![session_of(two.sick, two.n), session_of(two.well, two.n + 1)];
        Ok(now.last_steps(keys).await?[1] > 0)
    };
    find_steps: |now, two| {
        let query = FindSteps { from: Timestamp(0), until: time(100_000), after: None, limit: LIMIT };
        let found = now.find_steps(query).await?;
        Ok(found.iter().any(|it| it.key.tenant == two.well))
    };
    index_steps: |now, _two| now.index_steps().await.map(|()| true);
    get_sends: |now, two| {
        let ids = [(two.sick, two.n), (two.well, two.n + 1)].map(|(of, n)| (of, send(n)));
        alone_if_of_data(&ids, async |ids| now.get_sends(ids).await).await
    };
    get_timers: |now, two| {
        let ids = [(two.sick, two.n), (two.well, two.n + 1)];
        let ids = ids.map(|(of, n)| (of, TimerId(Uuid::from_u128(n))));
        alone_if_of_data(&ids, async |ids| now.get_timers(ids).await).await
    };
    get_runs: |now, two| {
        alone_if_of_data(&two.runs(), async |keys| now.get_runs(keys).await).await
    };
    read_asks: |now, two| match now.read_asks(two.runs().to_vec()).await {
        Err(error) if error.is_of_data() => {
            Ok(!now.read_asks(vec![two.runs()[1]]).await?[0].is_empty())
        }
        asks => Ok(!asks?[1].is_empty()),
    };
    get_calls: |now, two| {
        let of = |tenant, n: u128| (tenant, mainspring_shared::tool::call_id(send(n * 100 + 11), 0, 0));
        let ids = [of(two.sick, two.n), of(two.well, two.n + 1)];
        alone_if_of_data(&ids, async |ids| now.get_calls(ids).await).await
    };
    tenant_pools: |now, _two| now.tenant_pools().await.map(|_| true);
    money_tenants: |now, two| Ok(now.money_tenants().await?.contains(&two.well));
    erasing_tenants: |now, _two| now.erasing_tenants().await.map(|_| true);
    deleted_sessions: |now, _two| now.deleted_sessions(None, LIMIT).await.map(|_| true);
    list_pauses: |now, two| {
        let query = ListPauses { tenant: None, after: None, limit: LIMIT };
        Ok(now.list_pauses(query).await?.data.iter().any(|it| it.key.tenant == two.well))
    };
    list_tenants: |now, two| {
        let page = now.list_tenants(ListTenants { after: None, limit: LIMIT }).await?;
        Ok(page.data.iter().any(|it| it.id == two.well))
    };
    list_agents: |now, two| {
        let query = ListAgents { tenant: two.sick, archived: true, after: None, limit: LIMIT };
        now.list_agents(query).await.map(|_| true)
    };
    list_keys: |now, two| {
        let query = ListKeys { tenant: two.sick, before: None, limit: LIMIT };
        now.list_keys(query).await.map(|_| true)
    };
    list_sends: |now, two| {
        let query = ListSends { tenant: two.sick, session: None, status: None, before: None, limit: LIMIT };
        now.list_sends(query).await.map(|_| true)
    };
    list_sessions: |now, two| {
        let query = ListSessions {
            tenant: two.sick, status: None, agent: None, metadata: BTreeMap::new(), before: None, limit: LIMIT,
        };
        now.list_sessions(query).await.map(|_| true)
    };
    list_runs: |now, two| {
        let query = ListRuns { tenant: two.sick, status: None, session: None, before: None, limit: LIMIT };
        now.list_runs(query).await.map(|_| true)
    };
    list_timers: |now, two| {
        let query = ListTimers { tenant: two.sick, session: None, status: None, before: None, limit: LIMIT };
        now.list_timers(query).await.map(|_| true)
    };
    list_skills: |now, two| {
        let query = ListSkills { tenant: two.sick, after: None, limit: LIMIT };
        now.list_skills(query).await.map(|_| true)
    };
    list_waiting_calls: |now, two| {
        let query = ListWaitingCalls { tenant: two.sick, on: None, after: None, limit: LIMIT };
        now.list_waiting_calls(query).await.map(|_| true)
    };
    claimable_calls: |now, two| {
        let query = ClaimableCalls {
            tenant: two.sick, names: vec!["look".to_owned()], token: Uuid::nil(), after: None, limit: LIMIT,
        };
        now.claimable_calls(query).await.map(|_| true)
    };
    lapsed_calls: |now, _two| now.lapsed_calls(LIMIT).await.map(|_| true);
    list_webhooks: |now, two| {
        let query = ListWebhooks { tenant: two.sick, before: None, limit: LIMIT };
        now.list_webhooks(query).await.map(|_| true)
    };
    list_deliveries: |now, two| {
        let query = ListDeliveries {
            tenant: two.sick, webhook: webhook_id(two.n), status: None, before: None, limit: LIMIT,
        };
        now.list_deliveries(query).await.map(|_| true)
    };
    list_memories: |now, two| {
        let query = ListMemories { tenant: two.sick, namespace: None, before: None, limit: LIMIT };
        now.list_memories(query).await.map(|_| true)
    };
    list_erasures: |now, two| {
        let query = ListErasures { tenant: two.sick, fingerprint: None, before: None, limit: LIMIT };
        now.list_erasures(query).await.map(|_| true)
    };
    list_provider_keys: |now, two| {
        let query = ListProviderKeys { tenant: two.sick, after: None, limit: LIMIT };
        now.list_provider_keys(query).await.map(|_| true)
    };
    audit: |now, _two| now.audit(AuditOptions::default()).await.map(|_| true);
    audit_piece: |now, _two| {
        for kind in AuditKind::ALL {
            let (from, options) = (AuditPlace { tenant: TenantId(0), id: Uuid::nil() }, AuditOptions::default());
            now.audit_piece(AuditPiece { kind, from, limit: LIMIT, options }).await?;
        }
        Ok(true)
    };
    sweep_ready: |now, two| {
        let query = SweepReady { pool: None, older_than_ms: 0, after: None, limit: LIMIT };
        Ok(now.sweep_ready(query).await?.sessions.iter().any(|it| it.key.tenant == two.well))
    };
    sweep_alarms: |now, _two| now.sweep_alarms(boot(SCHEDULER), LIMIT).await.map(|_| true);
    sweep_orphans: |now, _two| {
        let query = SweepOrphans { older_than: Duration::ZERO, after: None, limit: LIMIT };
        now.sweep_orphans(query).await.map(|_| true)
    };
    report_children: |now, _two| now.report_children(None, LIMIT).await.map(|_| true);
    fire_timers: |now, _two| Ok(now.fire_timers(boot(SCHEDULER), LIMIT).await?.served >= 1);
    sweep_timers: |now, _two| now.sweep_timers(Duration::from_hours(1)).await.map(|_| true);
    claim_runs: |now, two| {
        let claim = ClaimRuns {
            boot: boot(SCHEDULER), limit: 16, ends_max: 100, leaves_max: None, dsl_max: 100, aside: Vec::new(),
        };
        Ok(now.claim_runs(claim).await?.runs.iter().any(|it| it.key.tenant == two.well))
    };
    fan_out: |now, _two| now.fan_out(LIMIT).await.map(|_| true);
    claim_deliveries: |now, two| {
        let claim = ClaimDeliveries {
            lease: Duration::from_secs(10), each: 50, limit: 100, busy: Vec::new(), busy_tenants: Vec::new(),
        };
        let claimed = now.claim_deliveries(claim).await?.deliveries;
        let well = claimed.iter().filter(|it| it.webhook.tenant == two.well);
        // That of the event before, and that of the one that was fanned out just now.
        Ok(well.count() >= 2)
    };
    retire_deliveries: |now, _two| {
        let query = RetireDeliveries { keep: Duration::from_hours(1), limit: LIMIT };
        now.retire_deliveries(query).await.map(|_| true)
    };
    wake_paused: |now, _two| now.wake_paused(LIMIT).await.map(|_| true);
    call_seats: |now, _two| now.call_seats(None).await.map(|_| true);
    sweep_money: |now, _two| now.sweep_money(LIMIT).await.map(|_| true);
    expire_memories: |now, _two| now.expire_memories(LIMIT).await.map(|_| true);
    claim_unembedded: |now, two| {
        let claim = ClaimUnembedded { lease: Duration::from_mins(5), limit: LIMIT };
        Ok(now.claim_unembedded(claim).await?.iter().any(|it| it.tenant == two.well))
    };
    claim_extractions: |now, two| {
        let claim = ClaimExtractions {
            pool: "default".to_owned(), only: None, token: Uuid::from_u128(0x70),
            lease: Duration::from_mins(5), attempts_max: 2, limit: LIMIT,
        };
        // They are due a minute after they were owed.
        let later = now.at(time(9_000 + EXTRACT_AGAIN_MS));
        Ok(later.claim_extractions(claim).await?.iter().any(|it| it.key.tenant == two.well))
    };
    claim_sessions: |now, two| {
        let claims = [(two.sick, two.n), (two.well, two.n + 1)].map(|(tenant, n)| ClaimSession {
            key: session_of(tenant, n),
            ..cold_claim(n, n)
        });
        let claim = async |claims| now.claim_sessions(boot(two.n + 1), claims).await;
        let outcomes = match claim(claims.to_vec()).await {
            // The caller asks one by one.
            Err(error) if error.is_of_data() => claim(vec![claims[1].clone()]).await?,
            outcomes => outcomes?,
        };
        Ok(matches!(outcomes.last(), Some(ClaimOutcome::Claimed(_))))
    };
    retire_sends: |now, two| {
        for tenant in [two.sick, two.well] {
            let keep = Duration::from_hours(1);
            let query = RetireSends { tenant, keep, young: keep, after: None, limit: LIMIT };
            now.retire_sends(query).await?;
        }
        Ok(true)
    };
    retire_blobs: |now, _two| {
        let query = RetireBlobs { grace: Duration::from_hours(1), after: None, limit: LIMIT };
        now.retire_blobs(query).await.map(|_| true)
    };
    sweep_retention: |now, _two| now.sweep_retention(Duration::from_hours(1)).await.map(|_| true);
    // The boots, too: their sessions are released, whatever those are.
    stop_boot: |now, two| now.stop_boot(boot(two.n + 1)).await.map(|()| true);
}

/// Methods about one thing that the caller names, or what one tenant, session, send or run has of a
/// kind: what of it cannot be read is theirs alone.
const OF_ONE: &[&str] = &[
    "publish_agent",
    "set_alias",
    "archive_agent",
    "get_agent",
    "limited_agents",
    "get_agent_version",
    "list_agent_versions",
    "find_agents",
    "begin_blob",
    "finish_blob",
    "hold_blobs",
    "get_blobs",
    "forget_blob",
    "write_blob_chunk",
    "read_blob_chunk",
    "drop_blob_chunks",
    "register_boot",
    "renew_boot",
    "import_session",
    "append_copies",
    "prune_session",
    "fold_at_rest",
    "update_session",
    "delete_session",
    "erase_session",
    "get_session",
    "list_children",
    "session_usage",
    "open_children",
    "write_list",
    "read_list",
    "publish_skill",
    "note_broken_skill",
    "remove_skill",
    "find_skills",
    "skill_versions",
    "broken_skills",
    "read_skill_files",
    "owe_extraction",
    "end_extraction",
    "save_mcp_list",
    "read_mcp_list",
    "save_memory",
    "change_memory",
    "delete_memory",
    "erase_memories",
    "get_memory",
    "search_memories",
    "set_embedding",
    "pay_for_vectors",
    "spent_money",
    "pause",
    "resume",
    "await_resume",
    "set_provider_key",
    "find_provider_key",
    "delete_provider_key",
    "create_tenant",
    "get_tenant",
    "named_tenant",
    "update_tenant",
    "delete_tenant",
    "reserve_sends",
    "release_sends",
    "tenant_usage",
    "first_open_send",
    "tenant_bytes",
    "create_key",
    "find_key",
    "rotate_key",
    "revoke_key",
    "begin_tenant_erasure",
    "tenant_erasure",
    "erase_tenant_rows",
    "note_tenant_erasure",
    "create_webhook",
    "get_webhook",
    "change_webhook",
    "delete_webhook",
    "redeliver",
    "take_key",
    "keyed_resource",
    "resume_recovery",
    "read_round",
    "read_inbox",
    "list_occurrences",
    "read_nodes",
    "live_leaves",
    "read_run_steps",
    "read_messages",
    "read_folds",
    "find_messages",
    "read_steps",
];

/// Writes of groups: what the database refuses of one item is asked for one by one, which the suites
/// and `unreadable` of each store try.
const GROUPS: &[&str] = &[
    "save_calibrations",
    "create_sessions",
    "reserve_money",
    "settle_money",
    "touch_keys",
    "settle_deliveries",
    "accept_sends",
    "cancel_sends",
    "deliver_items",
    "append_rounds",
    "complete_sends",
    "park_sends",
    "release_sessions",
    "post_results",
    "create_timers",
    "change_timers",
    "create_runs",
    "ask_runs",
    "advance_runs",
    "release_runs",
    "forget_runs",
];

impl Two {
    /// The run of each.
    fn runs(&self) -> [RunKey; 2] {
        [(self.sick, self.n), (self.well, self.n + 1)].map(|(tenant, n)| RunKey {
            tenant,
            run: RunId(Uuid::from_u128(n)),
        })
    }
}

/// Whether the last of these is found, asked for alone if it cannot be had with the others.
async fn alone_if_of_data<K: Clone, T>(
    keys: &[K],
    ask: impl AsyncFn(Vec<K>) -> Result<Vec<Option<T>>>,
) -> Result<bool> {
    let last = keys.last().expect("there are some").clone();
    let found = match ask(keys.to_vec()).await {
        Err(error) if error.is_of_data() => ask(vec![last]).await?,
        found => found?,
    };
    Ok(found.last().is_some_and(Option::is_some))
}

/// Calls every method that reads rows of many, and returns which of them failed, or did not serve
/// the tenant that is well.
pub(crate) async fn stopped(store: &dyn Inspect, two: &Two) -> Vec<(&'static str, Option<Error>)> {
    let now = &*store.at(time(9_000));
    let mut stopped = Vec::new();
    for method in MANY {
        match (method.call)(now, two).await {
            Ok(true) => {}
            Ok(false) => stopped.push((method.name, None)),
            Err(error) => stopped.push((method.name, Some(error))),
        }
    }
    stopped
}

/// What was spoilt, and what that stopped.
#[derive(Default)]
pub(crate) struct Found {
    spoilt: BTreeSet<String>,
    columns: usize,
    faults: String,
}

impl Found {
    /// Notes what stopped while this column was spoilt.
    pub(crate) fn note(
        &mut self,
        (table, column): (&str, &str),
        stopped: Vec<(&'static str, Option<Error>)>,
    ) {
        self.spoilt.insert(table.to_owned());
        self.columns += 1;
        for (method, error) in stopped {
            let why = error.map_or_else(
                || "the others were not served".to_owned(),
                |it| format!("{it:?}"),
            );
            writeln!(self.faults, "{method}, with {table}.{column} spoilt: {why}").expect("a text");
        }
    }

    /// Notes a table whose checks take no such text.
    pub(crate) fn guarded(&mut self, table: &str) {
        self.spoilt.insert(table.to_owned());
    }

    /// Fails if anything stopped, or a table with texts was left out.
    pub(crate) fn assert_nothing_stopped(self, tables: &BTreeSet<String>) {
        assert!(
            self.columns > 90,
            "only {} columns were spoilt",
            self.columns
        );
        assert!(self.faults.is_empty(), "{}", self.faults);
        assert_all_spoilt(tables, &self.spoilt);
    }
}

macro_rules! names {
    ($noun:ident: $($kind:ident $name:ident($($rest:tt)*) -> $answer:ty;)*) => {
        NAMES.with_borrow_mut(|names| names.extend([$(stringify!($name)),*]));
    };
}

thread_local! {
    static NAMES: std::cell::RefCell<Vec<&'static str>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[test]
fn every_method_of_the_port_reads_of_one_or_is_tried() {
    mainspring_shared::store_methods!(names);
    let port = NAMES.with_borrow(|names| names.iter().copied().collect::<BTreeSet<_>>());
    assert!(port.len() > 150, "{}", port.len());
    let tried = MANY.iter().map(|method| method.name);
    let listed: Vec<_> = tried
        .chain(OF_ONE.iter().copied())
        .chain(GROUPS.iter().copied())
        .collect();
    let known: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(known.len(), listed.len(), "one is listed twice");
    assert_eq!(
        known, port,
        "a method that reads rows of many has to be tried"
    );
}

#[test]
fn unspoilt_tables_are_listed_once() {
    let listed: BTreeSet<_> = WITHOUT_ROWS.iter().collect();
    assert_eq!(listed.len(), WITHOUT_ROWS.len());
}
