//! Money that calls set aside and spend.

use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Inspect, ReserveMoney, SettleMoney, TenantPatch};
use mainspring_shared::tenant::{Limits, Usd};
use uuid::Uuid;

use super::super::op::MoneyOp;
use super::World;

const TENANT: TenantId = TenantId::DEFAULT;

/// Billionths of a dollar in what limits are given in.
const MICRO: u64 = 1_000;

impl World<'_> {
    pub(super) async fn money_step(&mut self, op: MoneyOp) -> Result<(), String> {
        match op {
            MoneyOp::Limit(day, month) => {
                let usd = |limit: Option<u8>| limit.map(|limit| Usd(u64::from(limit)));
                let limits = Limits {
                    usd_per_day: usd(day),
                    usd_per_month: usd(month),
                    ..Limits::default()
                };
                let patch = TenantPatch {
                    limits: Some(limits),
                    ..TenantPatch::default()
                };
                // When the tenant was created is a store's own.
                for store in [&self.model as &dyn Inspect, self.store] {
                    let now = store.at(self.at());
                    let changed = now.update_tenant(TENANT, patch.clone()).await;
                    changed.map_err(|error| error.to_string())?;
                }
                both!(self, |store| store.money_tenants());
            }
            MoneyOp::Reserve(calls) => {
                let item = |(call, boot, most, least): (u8, u8, u8, u8)| ReserveMoney {
                    tenant: TENANT,
                    call: Uuid::from_u128(u128::from(call)),
                    boot: self.boot(boot),
                    most: u64::from(most) * MICRO,
                    least: u64::from(least.min(most)) * MICRO,
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
                    cost: cost.map(|cost| u64::from(cost) * MICRO),
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
        both!(self, |store| store.at(self.at()).spent_money(TENANT));
        Ok(())
    }
}
