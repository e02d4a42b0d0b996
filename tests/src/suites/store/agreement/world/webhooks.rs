//! Webhooks: endpoints, and deliveries to them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use mainspring_shared::id::{TenantId, WebhookId};
use mainspring_shared::store::{
    ChangeWebhook, ClaimDeliveries, ClaimedDelivery, CreateWebhookOutcome, DeliveryEnd,
    IdempotencyKey, Inspect, ListDeliveries, ListWebhooks, NewSecret, RetireDeliveries,
    SettleDelivery,
};
use mainspring_shared::webhook::{DeliveryStatus, Filter};

use super::super::op::{Ending, HookOp, Take};
use super::{World, request, small};
use crate::suites::store::webhooks::{new_webhook, webhook_id};

const TENANT: TenantId = TenantId::DEFAULT;

/// The event filters of endpoints.
const FILTERS: [&[&str]; 4] = [
    &["*"],
    &["send.*"],
    &["send.waiting", "run.*"],
    &["send.completed", "run.completed"],
];

/// The most events or deliveries at once, enough for all of them: the order of equally old ones is
/// up to the store.
const ALL: u32 = 1_000;

fn hook_request(pick: (u8, u8)) -> IdempotencyKey {
    IdempotencyKey {
        route: "POST /v1/webhooks".to_owned(),
        ..request(pick)
    }
}

/// The outcome without the time until other processes know of it, which differs between stores.
fn known_at_once(mut outcome: CreateWebhookOutcome) -> CreateWebhookOutcome {
    if let CreateWebhookOutcome::Created { known_in, .. }
    | CreateWebhookOutcome::Replayed { known_in, .. } = &mut outcome
    {
        *known_in = Duration::ZERO;
    }
    outcome
}

fn ended(taken: &ClaimedDelivery, ending: Ending) -> SettleDelivery {
    let delivery = &taken.delivery;
    let (answer, error) = match ending {
        Ending::Delivered => (Some(204), None),
        Ending::Again(_) => (None, Some("nobody answered".to_owned())),
        Ending::Dead => (Some(500), Some("answered 500".to_owned())),
    };
    SettleDelivery {
        tenant: delivery.tenant,
        webhook: delivery.webhook,
        event: delivery.event,
        attempt: delivery.attempts,
        answer,
        error,
        end: match ending {
            Ending::Delivered => DeliveryEnd::Delivered,
            Ending::Again(ms) => DeliveryEnd::Again(small::millis(ms)),
            Ending::Dead => DeliveryEnd::Dead,
        },
    }
}

impl World<'_> {
    pub(super) async fn webhook_step(&mut self, op: HookOp) -> Result<(), String> {
        match op {
            HookOp::Create(events, key) => {
                self.webhooks += 1;
                let filters = FILTERS[usize::from(events) % FILTERS.len()];
                let new = new_webhook(self.webhooks, filters);
                let key = key.map(hook_request);
                both!(self, |store| store
                    .at(self.at())
                    .create_webhook(new.clone(), key.clone())
                    .map(|created| created.map(known_at_once)));
            }
            HookOp::Change(hook, change) => {
                let change = self.change(hook, change);
                both!(self, |store| store
                    .at(self.at())
                    .change_webhook(change.clone()));
            }
            HookOp::Delete(hook) => {
                let id = self.webhook(hook);
                both!(self, |store| store.at(self.at()).delete_webhook(TENANT, id));
            }
            HookOp::FanOut => {
                both!(self, |store| store.at(self.at()).fan_out(ALL));
            }
            HookOp::Take(take) => {
                self.take_deliveries(take).await?;
            }
            HookOp::Turn(take, endings) => {
                both!(self, |store| store.at(self.at()).fan_out(ALL));
                let taken = self.take_deliveries(take).await?;
                let endings = endings.into_iter().cycle();
                let items: Vec<_> = taken
                    .iter()
                    .zip(endings)
                    .map(|(taken, ending)| ended(taken, ending))
                    .collect();
                both!(self, |store| store
                    .at(self.at())
                    .settle_deliveries(items.clone()));
            }
            HookOp::Settle(picks) => {
                let mut seen = BTreeSet::new();
                let count = self.attempts_made.len().clamp(1, 8);
                let picked = picks.into_iter().filter_map(|(pick, ending)| {
                    let back = usize::from(pick) % count;
                    let taken = self.attempts_made.iter().rev().nth(back)?;
                    Some(ended(taken, ending))
                });
                let items: Vec<_> = picked
                    .filter(|item| seen.insert((item.webhook, item.event)))
                    .collect();
                both!(self, |store| store
                    .at(self.at())
                    .settle_deliveries(items.clone()));
            }
            HookOp::Redeliver(pick) => {
                let count = self.attempts_made.len().clamp(1, 8);
                let taken = self
                    .attempts_made
                    .iter()
                    .rev()
                    .nth(usize::from(pick) % count);
                if let Some(taken) = taken {
                    let (id, event) = (taken.delivery.webhook, taken.delivery.event);
                    both!(self, |store| store
                        .at(self.at())
                        .redeliver(TENANT, id, event));
                }
            }
            HookOp::Retire(ms) => {
                let query = RetireDeliveries {
                    keep: small::millis(ms),
                    limit: ALL,
                };
                both!(self, |store| store.at(self.at()).retire_deliveries(query));
            }
        }
        self.read_webhooks().await
    }

    fn webhook(&self, pick: u8) -> WebhookId {
        webhook_id(1 + u128::from(pick) % (self.webhooks + 1))
    }

    fn change(&self, hook: u8, change: u8) -> ChangeWebhook {
        let nothing = ChangeWebhook::nothing(TENANT, self.webhook(hook));
        match change % 4 {
            0 => ChangeWebhook {
                disabled: Some(Some("it answers no more".to_owned())),
                ..nothing
            },
            1 => ChangeWebhook {
                disabled: Some(None),
                ..nothing
            },
            2 => ChangeWebhook {
                events: Some(vec![Filter::stored("send.*")]),
                ..nothing
            },
            _ => ChangeWebhook {
                secret: Some(NewSecret {
                    sealed: format!("sealed anew {change}"),
                    overlap_ms: i64::from(change % 8) * 100,
                }),
                ..nothing
            },
        }
    }

    async fn take_deliveries(&mut self, take: Take) -> Result<Vec<ClaimedDelivery>, String> {
        let claim = ClaimDeliveries {
            lease: small::millis(take.lease),
            each: take.each,
            limit: take.limit,
            busy: take
                .busy
                .map(|pick| (TENANT, self.webhook(pick)))
                .into_iter()
                .collect(),
            busy_tenants: Vec::new(),
        };
        let claimed = both!(self, |store| store
            .at(self.at())
            .claim_deliveries(claim.clone()));
        self.attempts_made
            .extend(claimed.deliveries.iter().cloned());
        Ok(claimed.deliveries)
    }

    /// Compares what dumps do not contain.
    pub(super) async fn read_webhooks(&self) -> Result<(), String> {
        let query = ListWebhooks {
            tenant: TENANT,
            before: None,
            limit: ALL,
        };
        both!(self, |store| store.list_webhooks(query));
        for n in 1..=self.webhooks {
            let query = ListDeliveries {
                tenant: TENANT,
                webhook: webhook_id(n),
                status: None,
                before: None,
                limit: ALL,
            };
            both!(self, |store| store.list_deliveries(query));
            let pending = ListDeliveries {
                status: Some(DeliveryStatus::Pending),
                limit: 2,
                ..query
            };
            both!(self, |store| store.list_deliveries(pending));
        }
        Ok(())
    }
}
