//! The cases that every store must pass.
//!
//! A case is an async function over `&dyn Inspect`, in the module of its subject, and listed once
//! in [`session_cases!`](crate::session_cases) or
//! [`installation_cases!`](crate::installation_cases). A backend says how to open an empty store,
//! and gets one named test per case from [`store_suite!`](crate::store_suite). Cases set the time
//! themselves, starting at [`prelude::START`], so that they do not depend on the database's clock.

pub mod accounts;
pub mod furnished;
pub mod harness;
pub mod prelude;

mod list {
    mod installation;
    mod sessions;
}

pub mod accept;
pub mod agent_money;
pub mod agent_seats;
pub mod agents;
pub mod agreement;
pub mod alarms;
pub mod audit;
pub mod blobs;
pub mod boots;
pub mod calibrations;
pub mod call_claims;
pub mod calls;
pub mod cancel;
pub mod children;
pub mod claim;
pub mod clocks;
pub mod complete;
pub mod concurrent;
pub mod copies;
pub mod deliveries;
pub mod erase;
pub mod erasing;
pub mod extractions;
pub mod firing;
pub mod folds;
pub mod idempotency;
pub mod inbox;
pub mod keepers;
pub mod lists;
pub mod mcp_lists;
pub mod memories;
pub mod money;
pub mod park;
pub mod pauses;
pub mod places;
pub mod posts;
pub mod projections;
pub mod provider_keys;
pub mod prune;
pub mod reads;
pub mod ready;
pub mod recall;
pub mod repeats;
pub mod retention;
pub mod rounds;
pub mod run_batches;
pub mod run_ends;
pub mod run_turns;
pub mod runs;
pub mod seats;
pub mod sessions;
pub mod skills;
pub mod spending;
pub mod tenants;
pub mod timers;
pub mod webhooks;
pub mod window;
pub mod writes;

/// The modules in this folder without cases.
const WITHOUT_CASES: [&str; 7] = [
    "prelude",
    "harness",
    "agreement",
    "concurrent",
    "recall",
    "writes",
    "furnished",
];

/// The source of every module with cases.
const SOURCES: &[(&str, &str)] = &[
    ("accounts", include_str!("store/accounts.rs")),
    ("accept", include_str!("store/accept.rs")),
    ("agent_money", include_str!("store/agent_money.rs")),
    ("agent_seats", include_str!("store/agent_seats.rs")),
    ("agents", include_str!("store/agents.rs")),
    ("alarms", include_str!("store/alarms.rs")),
    ("audit", include_str!("store/audit.rs")),
    ("blobs", include_str!("store/blobs.rs")),
    ("boots", include_str!("store/boots.rs")),
    ("calibrations", include_str!("store/calibrations.rs")),
    ("call_claims", include_str!("store/call_claims.rs")),
    ("calls", include_str!("store/calls.rs")),
    ("cancel", include_str!("store/cancel.rs")),
    ("children", include_str!("store/children.rs")),
    ("claim", include_str!("store/claim.rs")),
    ("clocks", include_str!("store/clocks.rs")),
    ("complete", include_str!("store/complete.rs")),
    ("copies", include_str!("store/copies.rs")),
    ("deliveries", include_str!("store/deliveries.rs")),
    ("erase", include_str!("store/erase.rs")),
    ("erasing", include_str!("store/erasing.rs")),
    ("extractions", include_str!("store/extractions.rs")),
    ("firing", include_str!("store/firing.rs")),
    ("folds", include_str!("store/folds.rs")),
    ("idempotency", include_str!("store/idempotency.rs")),
    ("inbox", include_str!("store/inbox.rs")),
    ("keepers", include_str!("store/keepers.rs")),
    ("lists", include_str!("store/lists.rs")),
    ("mcp_lists", include_str!("store/mcp_lists.rs")),
    ("memories", include_str!("store/memories.rs")),
    ("money", include_str!("store/money.rs")),
    ("park", include_str!("store/park.rs")),
    ("pauses", include_str!("store/pauses.rs")),
    ("provider_keys", include_str!("store/provider_keys.rs")),
    ("places", include_str!("store/places.rs")),
    ("posts", include_str!("store/posts.rs")),
    ("projections", include_str!("store/projections.rs")),
    ("prune", include_str!("store/prune.rs")),
    ("reads", include_str!("store/reads.rs")),
    ("ready", include_str!("store/ready.rs")),
    ("repeats", include_str!("store/repeats.rs")),
    ("retention", include_str!("store/retention.rs")),
    ("rounds", include_str!("store/rounds.rs")),
    ("run_batches", include_str!("store/run_batches.rs")),
    ("run_ends", include_str!("store/run_ends.rs")),
    ("run_turns", include_str!("store/run_turns.rs")),
    ("runs", include_str!("store/runs.rs")),
    ("seats", include_str!("store/seats.rs")),
    ("sessions", include_str!("store/sessions.rs")),
    ("skills", include_str!("store/skills.rs")),
    ("spending", include_str!("store/spending.rs")),
    ("tenants", include_str!("store/tenants.rs")),
    ("timers", include_str!("store/timers.rs")),
    ("webhooks", include_str!("store/webhooks.rs")),
    ("window", include_str!("store/window.rs")),
];

macro_rules! names {
    ($($module:ident { $($case:ident,)* })*) => {
        &[$((stringify!($module), &[$(stringify!($case),)*]),)*]
    };
}

/// Names of cases, by module.
type Listed = &'static [(&'static str, &'static [&'static str])];

/// Every listed case.
const LISTED: [Listed; 2] = [
    crate::session_cases!(names),
    crate::installation_cases!(names),
];

/// Fails if a case is missing from the list, since no backend would run it.
pub fn assert_complete() {
    let modules = include_str!("store.rs").lines().filter_map(|line| {
        let name = line.strip_prefix("pub mod ")?.strip_suffix(';')?;
        (!WITHOUT_CASES.contains(&name)).then_some(name)
    });
    for module in modules {
        let source = SOURCES.iter().find(|(name, _)| *name == module);
        let (_, source) = source.unwrap_or_else(|| panic!("{module} is not among the sources"));
        let listed = LISTED
            .into_iter()
            .flatten()
            .find(|(name, _)| *name == module);
        let (_, listed) = listed.unwrap_or_else(|| panic!("no case of {module} is listed"));
        let written = source.lines().filter_map(|line| {
            let rest = line.strip_prefix("pub async fn ")?;
            rest.split('(').next()
        });
        let written: Vec<&str> = written.collect();
        assert_eq!(written, *listed, "the cases of {module}, in order");
    }
}

/// One named test per case for a backend. `$open` is an async function without arguments that
/// returns an [`Opened`](crate::suites::store::harness::Opened), or `None` to skip.
#[macro_export]
macro_rules! store_suite {
    ($open:path) => {
        async fn open_for_suite() -> Option<impl $crate::suites::store::harness::Opened> {
            $open().await
        }

        #[test]
        fn suite_is_complete() {
            $crate::suites::store::assert_complete();
        }

        $crate::session_cases!($crate::store_suite_tests);
        $crate::installation_cases!($crate::store_suite_tests);
    };
}

/// Expands the list of cases into tests; used by [`store_suite!`](crate::store_suite).
#[macro_export]
macro_rules! store_suite_tests {
    ($($module:ident { $($case:ident,)* })*) => {
        $(mod $module {
            $(#[tokio::test]
            async fn $case() {
                use $crate::suites::store::{$module, harness};
                let name = concat!(stringify!($module), "::", stringify!($case));
                harness::run(super::open_for_suite().await, name, $module::$case).await;
            })*
        })*
    };
}
