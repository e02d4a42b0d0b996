//! Money that calls of a tenant and its agents reserve and spend.

use mainspring_shared::agent::{AgentLimits, AgentName};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Inspect, PublishAgent, ReserveMoney, SettleMoney, TenantPatch};
use mainspring_shared::tenant::{Amount, Limits, Usd};
use uuid::Uuid;

use super::super::op::MoneyOp;
use super::super::op::money::AGENTS;
use super::World;
use crate::suites::store::agents::{agent_key, publishing};

const TENANT: TenantId = TenantId::DEFAULT;

/// A millionth of a dollar, the unit of limits, in billionths of a dollar.
const MICRO: u64 = 1_000;

/// A call to reserve for.
type Call = (u8, u8, u8, u8, Option<u8>);

fn agent(n: u8) -> String {
    format!("agent-{n}")
}

fn name(n: u8) -> AgentName {
    agent_key(&agent(n)).name
}

fn usd(limit: Option<u8>) -> Option<Usd> {
    limit.map(|limit| Usd(u64::from(limit)))
}

fn tokens(limit: Option<u8>, times: u64) -> Option<u64> {
    limit.map(|limit| 1 + times * u64::from(limit))
}

impl World<'_> {
    pub(super) async fn money_step(&mut self, op: MoneyOp) -> Result<(), String> {
        match op {
            MoneyOp::Limit(minute, day, month) => {
                let limits = Limits {
                    usd_per_minute: usd(minute),
                    usd_per_day: usd(day),
                    usd_per_month: usd(month),
                    tokens_per_day: tokens(month, 2),
                    tokens_per_month: tokens(day, 3),
                    ..Limits::default()
                };
                let patch = TenantPatch {
                    limits: Some(limits),
                    ..TenantPatch::default()
                };
                // Not compared: stores use their own clock for the time the tenant was created.
                for store in [&self.model as &dyn Inspect, self.store] {
                    let now = store.at(self.at());
                    let changed = now.update_tenant(TENANT, patch.clone()).await;
                    changed.map_err(|error| error.to_string())?;
                }
                both!(self, |store| store.money_tenants());
            }
            MoneyOp::LimitAgent(n, [minute, day, month]) => {
                let limits = AgentLimits {
                    usd_per_minute: usd(minute),
                    usd_per_day: usd(day),
                    usd_per_month: usd(month),
                    tokens_per_day: tokens(month, 2),
                    tokens_per_month: tokens(day, 3),
                    ..AgentLimits::default()
                };
                // An agent without a version has no limits either.
                if n + 1 < AGENTS.end {
                    let item = PublishAgent {
                        limits: Some(limits),
                        ..publishing(&agent(n), "Do.")
                    };
                    both!(self, |store| store
                        .at(self.at())
                        .publish_agent(item.clone()));
                }
                both!(self, |store| store.money_tenants());
            }
            MoneyOp::Reserve(calls) => {
                let item = |(call, boot, most, least, agent): Call| ReserveMoney {
                    tenant: TENANT,
                    agent: agent.map(name),
                    call: Uuid::from_u128(u128::from(call)),
                    boot: self.boot(boot),
                    most: Amount::new(u64::from(most) * MICRO, u64::from(most) + 20),
                    least: Amount::new(u64::from(least.min(most)) * MICRO, u64::from(least)),
                    ahead: Amount::new(u64::from(least) * u64::from(call), u64::from(least)),
                };
                let items: Vec<_> = calls.into_iter().map(item).collect();
                both!(self, |store| store
                    .at(self.at())
                    .reserve_money(items.clone()));
            }
            MoneyOp::Settle(calls) => {
                let item = |(call, cost): (u8, Option<u8>)| SettleMoney {
                    tenant: TENANT,
                    call: Uuid::from_u128(u128::from(call)),
                    cost: cost
                        .map(|cost| Amount::new(u64::from(cost) * MICRO, 2 * u64::from(cost))),
                };
                let items: Vec<_> = calls.into_iter().map(item).collect();
                both!(self, |store| store
                    .at(self.at())
                    .settle_money(items.clone()));
            }
            MoneyOp::Sweep => {
                both!(self, |store| store.at(self.at()).sweep_money(100));
            }
        }
        let agents = AGENTS.map(|n| Some(name(n)));
        for agent in std::iter::once(None).chain(agents) {
            both!(self, |store| store
                .at(self.at())
                .spent_money(TENANT, agent.clone()));
        }
        Ok(())
    }
}
