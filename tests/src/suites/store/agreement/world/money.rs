//! Money that calls set aside and spend.

use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Inspect, ReserveMoney, SettleMoney, TenantPatch};
use mainspring_shared::tenant::{Amount, Limits, Usd};
use uuid::Uuid;

use super::super::op::MoneyOp;
use super::World;

const TENANT: TenantId = TenantId::DEFAULT;

/// Billionths of a dollar in what limits are given in.
const MICRO: u64 = 1_000;

impl World<'_> {
    pub(super) async fn money_step(&mut self, op: MoneyOp) -> Result<(), String> {
        match op {
            MoneyOp::Limit(minute, day, month) => {
                let usd = |limit: Option<u8>| limit.map(|limit| Usd(u64::from(limit)));
                let limits = Limits {
                    usd_per_minute: usd(minute),
                    usd_per_day: usd(day),
                    usd_per_month: usd(month),
                    tokens_per_day: month.map(|limit| 1 + 2 * u64::from(limit)),
                    tokens_per_month: day.map(|limit| 1 + 3 * u64::from(limit)),
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
                    most: Amount::new(u64::from(most) * MICRO, u64::from(most) + 20),
                    least: Amount::new(u64::from(least.min(most)) * MICRO, u64::from(least)),
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
        both!(self, |store| store.at(self.at()).spent_money(TENANT));
        Ok(())
    }
}
