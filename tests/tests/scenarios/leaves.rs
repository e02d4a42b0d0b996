//! Leaves' sessions: what they carry, how long they stay, and runs of other versions.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{RunId, RunKey, SessionKey, TenantId};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{CreateRunOutcome, NewRun};
use mainspring_shared::workflow::run::{DSL_VERSION, NodeState, RunOptions, RunStatus};
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, alone};
use serde_json::{Value, json};
use uuid::Uuid;

fn leaf(id: &str, lifecycle: &str, input: &str) -> Value {
    let spec = json!({"name": id, "system_prompt": "work", "lifecycle": lifecycle,
                      "metadata": {"team": id}});
    json!({"type": "agent", "id": id, "input": input, "spec": spec})
}

fn spec() -> Value {
    json!({"name": "kept", "metadata": {"of": "all"}, "root": {"type": "parallel",
    "on_error": "continue", "branches": [
        leaf("gone", "ephemeral", "hello"),
        leaf("failed", "ephemeral", "forbid"),
        leaf("linked", "linked", "hello"),
        leaf("free", "detached", "hello"),
    ]}})
}

/// The session of the node with this id, if it still exists: whether it has a parent, and its
/// metadata.
async fn session(world: &World, run: RunKey, id: &str) -> Option<(bool, Value)> {
    let nodes = world.nodes(run).await;
    let node = nodes
        .into_iter()
        .find(|node| node.id.as_deref() == Some(id));
    let session = node.and_then(|node| node.session).expect("it was started");
    let tenant = run.tenant;
    let found = world
        .store
        .get_session(SessionKey { tenant, session })
        .await;
    let found = found.expect("never fails")?;
    Some((found.parent.is_some(), Value::Object(found.metadata)))
}

async fn ended(plan: FaultPlan) -> Option<&'static str> {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    let faulty = Arc::new(Faulty::new(world.store.clone(), plan));
    world.scheduler("first", faulty.clone()).await;
    let above = world.session(AgentSpec::default()).await;
    let run = world.start_run(&spec(), Some(above.session)).await;
    if matches!(plan.fault, Fault::DieBefore | Fault::DieAfter) {
        world.pass(Duration::from_secs(2)).await;
        world.scheduler("second", world.store.clone()).await;
    }
    let record = world.settle_run(run).await;
    let what = format!("{plan:?} at {:?}", faulty.failed_method());
    assert_eq!(record.status, RunStatus::Completed, "{what}");
    assert_eq!(record.counts.completed, 3, "{what}");
    assert_eq!(session(&world, run, "gone").await, None, "{what}");
    for (id, linked) in [("failed", true), ("linked", true), ("free", false)] {
        let (has_parent, metadata) = session(&world, run, id).await.expect("it is kept");
        assert_eq!(has_parent, linked, "{id}, {what}");
        assert_eq!(
            (&metadata["team"], &metadata["of"]),
            (&json!(id), &json!("all"))
        );
        assert_eq!(metadata["run_id"], json!(run.run));
    }
    let node = world.nodes(run).await;
    let gone = node.iter().find(|node| node.id.as_deref() == Some("gone"));
    let gone = gone.expect("it is there");
    assert_eq!(
        (gone.state, gone.text.as_deref()),
        (NodeState::Completed, Some("echo: hello"))
    );
    world.audit().await;
    faulty.failed_method()
}

#[test]
fn sessions_stay_as_long_as_their_leaves_say_whatever_dies() {
    let mut deletes = 0;
    for fault in Fault::ALL {
        let mut at = 0;
        while let Some(struck) = alone(ended(FaultPlan { at, fault })) {
            deletes += usize::from(struck == "delete_session");
            at += 1;
        }
        assert!(at >= 6, "{fault:?} at {at} positions only");
    }
    assert!(deletes > 0, "no fault fell on a deletion");
}

#[tokio::test(start_paused = true)]
async fn a_detached_session_is_not_below_the_one_that_its_run_belongs_to() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    world.scheduler("s", world.store.clone()).await;
    let above = world.session(AgentSpec::default()).await;
    let run = world.start_run(&spec(), Some(above.session)).await;
    world.settle_run(run).await;
    let below = world.store.list_children(above).await.expect("never fails");
    let dump = world.dump().await;
    let open = dump.sessions.iter();
    let open = open.filter(|session| session.hot.lifecycle == Lifecycle::Open);
    // The parent session, those linked to it, and the free one.
    assert_eq!((below.len(), open.count()), (2, 4));
}

/// A run as an older or a newer release would have created it.
async fn created(world: &World, n: u128, dsl_version: i32) -> RunKey {
    let key = RunKey {
        tenant: TenantId::DEFAULT,
        run: RunId(Uuid::from_u128(0xd51 + n)),
    };
    // Version 1 accepted a continuation of a session declared ephemeral.
    let mut root = leaf("a", "ephemeral", "hello");
    root["continuation"] = json!({"max": 1});
    let new = NewRun {
        key,
        name: "old".into(),
        spec: json!({"name": "old", "root": root}),
        dsl_version,
        input: json!("in"),
        options: RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 0,
        idempotency: None,
    };
    let outcomes = world.store.create_runs(vec![new]).await;
    let outcome = outcomes.expect("never fails").pop();
    assert!(
        matches!(outcome, Some(CreateRunOutcome::Created(_))),
        "{outcome:?}"
    );
    key
}

#[tokio::test(start_paused = true)]
async fn runs_of_an_older_version_end_and_those_of_a_newer_one_wait() {
    let world = World::new().await;
    world.worker("w", world.store.clone());
    world.scheduler("s", world.store.clone()).await;
    let newer = created(&world, 1, DSL_VERSION + 1).await;
    let older = created(&world, 2, 1).await;
    let ended = world.settle_run(older).await;
    assert_eq!((ended.status, ended.error), (RunStatus::Completed, None));
    assert!(
        session(&world, older, "a").await.is_some(),
        "in version 1 it stays"
    );
    world.pass(Duration::from_mins(10)).await;
    let waits = world.run(newer).await;
    assert_eq!(
        (waits.status, waits.error, waits.started_at),
        (RunStatus::Queued, None, None)
    );
    world.audit().await;
}
