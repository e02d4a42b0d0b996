//! Seats of a tenant and of its agents.

use mainspring_shared::agent::{AgentKey, AgentLimits, AgentSpec};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Inspect, PublishAgent, TenantPatch};
use mainspring_shared::tenant::Limits;

use super::super::make::published;
use super::super::op::SeatOp;
use super::World;

const TENANT: TenantId = TenantId::DEFAULT;

impl World<'_> {
    pub(super) async fn seat_step(&mut self, op: SeatOp) -> Result<(), String> {
        match op {
            SeatOp::Limit(sends, leaves) => {
                let patch = TenantPatch {
                    limits: Some(Limits {
                        sends_running: sends.map(u32::from),
                        leaves_running: leaves.map(u32::from),
                        ..Limits::default()
                    }),
                    ..TenantPatch::default()
                };
                // Not compared: stores use their own clock for the time the tenant was created.
                for store in [&self.model as &dyn Inspect, self.store] {
                    let now = store.at(self.at());
                    let changed = now.update_tenant(TENANT, patch.clone()).await;
                    changed.map_err(|error| error.to_string())?;
                }
            }
            SeatOp::Agent(agent, limit) => {
                let item = PublishAgent {
                    key: AgentKey {
                        tenant: TENANT,
                        name: published(agent).name,
                    },
                    spec: AgentSpec::default(),
                    limits: Some(AgentLimits {
                        sends_running: limit.map(u32::from),
                        ..AgentLimits::default()
                    }),
                    idempotency: None,
                };
                both!(self, |store| store
                    .at(self.at())
                    .publish_agent(item.clone()));
            }
            SeatOp::Call(sweeps) => {
                let tenant = (!sweeps).then_some(TENANT);
                both!(self, |store| store.at(self.at()).call_seats(tenant));
            }
        }
        Ok(())
    }
}
