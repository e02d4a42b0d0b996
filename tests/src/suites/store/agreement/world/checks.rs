//! Sweeps, reads, and what must agree after every step.

use std::collections::BTreeMap;
use std::future::Future;

use mainspring_shared::id::{SessionId, TenantId};
use mainspring_shared::store::{
    AuditOptions, Inspect, ListSends, ListSessions, ReadInbox, ReadMessages, Result as StoreResult,
    SweepReady, Violation,
};
use mainspring_store_model::audit;

use super::super::op::Op;
use super::{World, same, small};

/// Invariants that hold only if sweeps run regularly.
const SWEPT: [&str; 3] = ["send.running_has_lease", "child.reported", "tenant.money"];

impl World<'_> {
    pub(super) async fn sweep_step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::SweepAlarms(limit) => {
                let scheduler = small::boot(small::SCHEDULER);
                both!(self, |store| store
                    .at(self.at())
                    .sweep_alarms(scheduler, limit));
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
                    let swept = both!(self, |store| store.at(self.at()).sweep_ready(query.clone()));
                    query.after = swept.next;
                    if swept.next.is_none() {
                        break;
                    }
                }
            }
            Op::Retention(ms) => {
                let keep = small::millis(ms);
                while both!(self, |store| store.at(self.at()).sweep_retention(keep)) > 0 {}
            }
            other => unreachable!("{other:?} is no sweep"),
        }
        Ok(())
    }

    // Comparisons -------------------------------------------------------------------------------

    /// Compares everything that is stored, and audits it.
    pub(super) async fn compare(&self) -> Result<(), String> {
        let dump = both!(self, |store| store.dump());
        let mut unsound = audit(&dump, small::time(self.now), AuditOptions::default());
        // Time may pass here without a sweep.
        unsound.retain(|violation| !SWEPT.contains(&violation.invariant.as_str()));
        same("audit", &Vec::new(), &unsound)
    }

    /// Reports every child; after that, each remaining parent must know of its children's ends.
    pub(super) async fn close(&mut self) -> Result<(), String> {
        both!(self, |store| store
            .at(self.at())
            .report_children(None, 1_000));
        let dump = both!(self, |store| store.dump());
        let later = small::time(self.now + 120_000);
        let mut unsound = audit(&dump, later, AuditOptions::default());
        unsound.retain(|violation| violation.invariant == "child.reported");
        same("children", &Vec::new(), &unsound)
    }

    pub(super) async fn read(&self) -> Result<(), String> {
        let options = AuditOptions::default();
        both!(self, |store| names(store.at(self.at()).audit(options)));
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
            both!(self, |store| store.list_children(small::key(n)));
            both!(self, |store| store.open_children(small::key(n)));
            let query = ReadInbox {
                key: small::key(n),
                pending: n % 2 == 0,
                after: 1,
                limit: 3,
            };
            both!(self, |store| store.read_inbox(query));
        }
        let known = self.known().await;
        let calls = known.sessions.iter().flat_map(|session| &session.calls);
        let mut ids = vec![(TenantId::DEFAULT, "call_unknown".to_owned())];
        for call in calls {
            let key = mainspring_shared::id::SessionKey {
                tenant: TenantId::DEFAULT,
                session: call.session,
            };
            both!(self, |store| store.read_round(
                key,
                call.send_id,
                call.round
            ));
            ids.insert(0, (TenantId::DEFAULT, call.call_id.clone()));
        }
        both!(self, |store| store.get_calls(ids.clone()));
        both!(self, |store| store.at(self.at()).queue_stats());
        for pool in ["default", "gpu"] {
            both!(self, |store| store.at(self.at()).scaling(pool));
        }
        both!(self, |store| store.at(self.at()).list_boots());
        Ok(())
    }
}

/// The names of the violated invariants; how rows are described differs between stores.
async fn names(
    violations: impl Future<Output = StoreResult<Vec<Violation>>>,
) -> StoreResult<Vec<String>> {
    let violations = violations.await?;
    let names = violations.into_iter().map(|v| v.invariant);
    // Only databases can tell a child known to its parent from one that was reported.
    Ok(names.filter(|name| name != "child.reported").collect())
}
