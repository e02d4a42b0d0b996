//! Workflow runs in a world: schedulers that advance them, and waiting for them to end.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::Serving;
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::SchedulerConfig;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::entropy::Entropy as _;
use mainspring_shared::id::{RunId, RunKey, SessionId, SessionKey, TenantId};
use mainspring_shared::store::{CreateRunOutcome, NewRun, ReadNodes, SessionPatch, Store};
use mainspring_shared::workflow::run::{DSL_VERSION, NodeRecord, RunAsk, RunOptions, RunRecord};
use mainspring_shared::workflow::validate::validate;
use serde_json::Value;

use super::World;

impl World {
    /// Starts a full scheduler over the given store, which may be a faulty one.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn scheduler(&self, name: &str, store: Arc<dyn Store>) -> Lifecycle {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let parts = mainspring_scheduler::Parts {
            blobs: self.depot(&store),
            store,
            queue: Arc::new(self.wire.clone()),
            bus: Arc::new(self.bus.clone()),
            clock: self.process_clock.clone(),
            entropy: self.entropy.clone(),
            config: SchedulerConfig {
                name: name.to_owned(),
                // Time jumps here, so an audit would read everything at once; piecewise audits have
                // their own tests.
                audit_percent: 0,
                ..SchedulerConfig::default()
            },
            webhooks: self.webhooks.clone(),
        };
        let lifecycle = Lifecycle::new();
        let running = lifecycle.clone();
        lifecycle.spawn(async move {
            // A scheduler whose store never answers again does not end; a test that kills one does
            // not wait for it.
            let _ = mainspring_api::run(parts, Serving::default(), listener, running).await;
        });
        lifecycle
    }

    /// Creates a run of a valid spec.
    ///
    /// # Panics
    /// If the spec is invalid.
    pub async fn start_run(&self, spec: &Value, session: Option<SessionId>) -> RunKey {
        let spec = validate(spec).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(self.entropy.ordered_id()),
        };
        let new = NewRun {
            key,
            name: spec.envelope.name.clone(),
            spec: spec.to_value(),
            dsl_version: DSL_VERSION,
            input: Value::String(spec.envelope.input.clone()),
            options: RunOptions::default(),
            session,
            reports_to: None,
            depth: i32::from(session.is_some()),
            idempotency: None,
        };
        let outcomes = self.store.create_runs(vec![new]).await;
        match outcomes.expect("never fails").pop() {
            Some(CreateRunOutcome::Created(_)) => key,
            other => panic!("not created: {other:?}"),
        }
    }

    /// Updates a session to another version of its agent.
    ///
    /// # Panics
    /// Never: the store does not fail.
    pub async fn update(&self, key: SessionKey, agent: AgentSpec) {
        let patch = SessionPatch {
            agent: Some(agent),
            ..SessionPatch::default()
        };
        let updated = self.store.update_session(key, patch).await;
        updated.expect("never fails");
    }

    /// Deletes a session.
    ///
    /// # Panics
    /// Never: the store does not fail.
    pub async fn delete(&self, key: SessionKey) {
        let deleted = self.store.delete_session(key, self.boot).await;
        deleted.expect("never fails");
    }

    /// Sends a request to a run.
    ///
    /// # Panics
    /// If the run does not exist.
    pub async fn ask_run(&self, key: RunKey, ask: RunAsk) {
        let known = self.store.ask_runs(vec![(key, ask)]).await;
        assert_eq!(known.expect("never fails"), [true]);
    }

    /// The current record of a run.
    ///
    /// # Panics
    /// If the run does not exist.
    pub async fn run(&self, key: RunKey) -> RunRecord {
        let found = self.store.get_runs(vec![key]).await.expect("never fails");
        found.into_iter().next().flatten().expect("the run exists")
    }

    /// The run's nodes.
    ///
    /// # Panics
    /// Never: the store does not fail.
    pub async fn nodes(&self, key: RunKey) -> Vec<NodeRecord> {
        let query = ReadNodes {
            key,
            prefix: None,
            after: 0,
            limit: u32::MAX,
        };
        self.store.read_nodes(query).await.expect("never fails")
    }

    /// Waits, in simulated time, until the run is final.
    ///
    /// # Panics
    /// If that takes more than a simulated hour.
    pub async fn settle_run(&self, key: RunKey) -> RunRecord {
        self.wait_for_run(key, |run| run.status.is_final()).await
    }

    /// Waits, in simulated time, until the run satisfies `wanted`.
    ///
    /// # Panics
    /// If that takes more than a simulated hour.
    pub async fn wait_for_run(
        &self,
        key: RunKey,
        wanted: impl Fn(&RunRecord) -> bool,
    ) -> RunRecord {
        let limit = self.clock.monotonic() + Duration::from_hours(1);
        loop {
            let run = self.run(key).await;
            if wanted(&run) {
                return run;
            }
            assert!(self.clock.monotonic() < limit, "the run hangs: {run:#?}");
            self.clock.sleep(Duration::from_millis(20)).await;
        }
    }
}
