//! What people and external programs do.

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    AppendCopies, CallAnswer, DeliverItem, DumpSession, Inspect, PostResult, PruneSession, PruneTo,
};
use mainspring_shared::tool::CallResult;

use super::super::super::copies::copied;
use super::super::make::patch;
use super::super::op::{Name, Op, Posted, Words};
use super::{World, pick_call, request, small};

impl World<'_> {
    pub(super) async fn user_step(&mut self, op: Op) -> Result<(), String> {
        let scheduler = small::boot(small::SCHEDULER);
        match op {
            Op::Cancel(picks) => {
                let ids = self.sends(picks);
                both!(self, |store| store
                    .at(self.at())
                    .cancel_sends(scheduler, ids.clone()));
            }
            Op::Resume(pick) => {
                let key = self.session(pick);
                both!(self, |store| store
                    .at(self.at())
                    .resume_recovery(scheduler, key));
            }
            Op::Delete(pick) => {
                let key = self.session(pick);
                both!(self, |store| store
                    .at(self.at())
                    .delete_session(key, scheduler));
            }
            Op::Erase(pick, limit) => {
                let known = self.known().await;
                let is_erasing = |session: &DumpSession| session.erasing;
                let key = self.session_like(&known, pick, is_erasing);
                both!(self, |store| store.at(self.at()).erase_session(key, limit));
                both!(self, |store| store.at(self.at()).deleted_sessions(None, 9));
            }
            Op::Prune(pick, keep, limit) => {
                let item = PruneSession {
                    key: self.session(pick),
                    to: PruneTo::KeepLast(keep),
                    dry_run: limit == 1 && keep == 1,
                    limit,
                };
                both!(self, |store| store.at(self.at()).prune_session(item));
            }
            Op::Copies(pick, n) => {
                let item = AppendCopies {
                    key: self.session(pick),
                    messages: vec![copied(1_000_000 + u128::from(n))],
                };
                both!(self, |store| store
                    .at(self.at())
                    .append_copies(item.clone()));
            }
            Op::Update(pick, change) => {
                let key = self.session(pick);
                let patch = patch(&change);
                both!(self, |store| store
                    .at(self.at())
                    .update_session(key, patch.clone()));
            }
            other => unreachable!("{other:?} is no step of a user"),
        }
        Ok(())
    }

    /// Some of the latest sends.
    fn sends(&self, picks: Vec<u8>) -> Vec<(TenantId, mainspring_shared::id::SendId)> {
        let count = self.sends.max(1);
        let numbers = picks
            .into_iter()
            .map(|pick| count - u128::from(pick) % count.min(9));
        numbers
            .map(|n| (TenantId::DEFAULT, small::send(n)))
            .collect()
    }

    pub(super) async fn deliver(&mut self, words: Vec<Words>) -> Result<(), String> {
        let known = self.known().await;
        let mut items = Vec::new();
        for words in words {
            let before = words.repeats.and_then(|pick| {
                let count = self.said.len().max(1);
                self.said.get(usize::from(pick) % count).cloned()
            });
            // Repeating an item repeats its request, which its idempotency key identifies.
            let idempotency = words.request.filter(|_| before.is_none()).map(request);
            let (key, item_id) = before.unwrap_or_else(|| {
                let id = format!("item-{}", self.said.len());
                let is_open = |session: &DumpSession| session.hot.lifecycle == Lifecycle::Open;
                (self.session_like(&known, words.session, is_open), id)
            });
            self.said.push((key, item_id.clone()));
            items.push(DeliverItem {
                key,
                items_max: words.items_max,
                idempotency,
                ..small::item(&item_id, 0, words.mode)
            });
        }
        let scheduler = small::boot(small::SCHEDULER);
        both!(self, |store| store
            .at(self.at())
            .deliver_items(scheduler, items.clone()));
        Ok(())
    }

    pub(super) async fn post(&mut self, answers: Vec<Posted>) -> Result<(), String> {
        let known = self.known().await;
        let mut items = Vec::new();
        for (n, posted) in answers.into_iter().enumerate() {
            let Some(call) = pick_call(&known, posted.call) else {
                continue;
            };
            let asking = SessionKey {
                tenant: TenantId::DEFAULT,
                session: call.session,
            };
            let mut sessions = known.sessions.iter();
            let session = sessions.find(|session| session.key == asking);
            let parent = session.and_then(|session| session.parent.as_ref());
            let key = match (posted.name, parent) {
                (Name::Any(pick), _) => self.session(pick),
                (Name::Parent, Some(parent)) => SessionKey {
                    session: parent.session,
                    ..asking
                },
                (Name::Parent, None) | (Name::Asking, _) => asking,
            };
            items.push(PostResult {
                key,
                call_id: call.call_id.clone(),
                answer: match n % 3 {
                    _ if posted.approves => CallAnswer::Approve,
                    0 => CallAnswer::Refuse(CallResult::text(format!("refusal {n}"))),
                    _ => CallAnswer::Result(CallResult::text(format!("answer {n}"))),
                },
            });
        }
        both!(self, |store| store
            .at(self.at())
            .post_results(items.clone()));
        Ok(())
    }

    pub(super) async fn report(
        &mut self,
        sends: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<(), String> {
        let sends = sends.map(|picks| self.sends(picks));
        both!(self, |store| store
            .at(self.at())
            .report_children(sends.clone(), limit));
        Ok(())
    }
}
