//! Results and approvals that are posted from outside.

use std::collections::BTreeSet;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::session::transition;
use mainspring_shared::store::{
    CallAnswer, Calls, ClaimableCalls, ListWaitingCalls, Page, PostOutcome, PostResult, ReadInbox,
    ReportOutcome, Result,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, CallRecord, unknown_outcome};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::columns::text;
use crate::fault::Fault;
use crate::group::{Group, LostResponse, drive};
use crate::ledger::{Ledger, RoundKey};
use crate::retry::{Pool, fetch, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;
use crate::{reads, report};

#[async_trait]
impl Calls for PostgresStore {
    async fn post_results(&self, items: Vec<PostResult>) -> Result<Vec<PostOutcome>> {
        post(&self.pools.writers, self.at, &items).await
    }

    async fn report_children(
        &self,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>> {
        report::report(&self.pools.writers, self.at, sends.as_deref(), limit).await
    }

    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>> {
        reads::round(&self.pools.claimers, key, send, round).await
    }

    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>> {
        reads::calls(&self.pools.claimers, &ids).await
    }

    async fn list_waiting_calls(&self, query: ListWaitingCalls) -> Result<Page<CallRecord>> {
        reads::waiting_calls(&self.pools.readers, &query).await
    }

    async fn claimable_calls(&self, query: ClaimableCalls) -> Result<Page<CallRecord>> {
        reads::claimable_calls(&self.pools.claimers, self.at, &query).await
    }

    async fn lapsed_calls(&self, limit: u32) -> Result<Vec<(SessionKey, String)>> {
        reads::lapsed_calls(&self.pools.claimers, self.at, limit).await
    }

    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>> {
        reads::inbox(&self.pools.claimers, query).await
    }
}

pub(crate) async fn post(
    pool: &Pool,
    at: Option<Timestamp>,
    items: &[PostResult],
) -> Result<Vec<PostOutcome>> {
    let homes = homes(pool, items).await?;
    let posted = homes.into_iter().zip(items);
    let posted: Vec<_> = posted.map(|(home, item)| Posted { home, item }).collect();
    let lost_response = LostResponse::default();
    let lost_response = &lost_response;
    drive(pool, &Post { at, lost_response }, &posted).await
}

/// The session and the round of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    pub(crate) key: SessionKey,
    pub(crate) round: RoundKey,
}

/// A posted result and the home of its call; `None` if no call with this id may be answered in the
/// session's name.
struct Posted<'a> {
    home: Option<Home>,
    item: &'a PostResult,
}

struct Post<'a> {
    at: Option<Timestamp>,
    lost_response: &'a LostResponse,
}

impl<'a> Group for Post<'a> {
    type Item = Posted<'a>;
    type Outcome = PostOutcome;
    type Seen = ();

    fn conflicts_with(&self, _: &Posted<'a>, (): &mut ()) -> bool {
        false
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&Posted<'a>],
    ) -> std::result::Result<Vec<Option<PostOutcome>>, Fault> {
        let known = || items.iter().filter_map(|item| item.home);
        let mut tx = connection.begin().await?;
        // No step is written, so none needs a boot.
        let nobody = BootId(Uuid::nil());
        let keys = known().map(|home| home.key);
        let mut ledger = Ledger::lock(&mut tx, self.at, nobody, keys).await?;
        ledger.read_heads(&mut tx).await?;
        let rounds = known().map(|home| home.round);
        ledger.read_rounds(&mut tx, rounds).await?;
        let mut ours = Ours {
            was_lost: self.lost_response.any(),
            answered: BTreeSet::new(),
        };
        let outcomes = items.iter().map(|posted| {
            Some(match posted.home {
                Some(home) => ours.post(&mut ledger, home, posted.item),
                None => PostOutcome::Unknown,
            })
        });
        let outcomes = outcomes.collect();
        ledger.write(&mut tx).await?;
        tx.commit().await?;
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        _: &mut PgConnection,
        items: &[&Posted<'a>],
    ) -> std::result::Result<Vec<Option<PostOutcome>>, Fault> {
        self.lost_response.note();
        Ok(items.iter().map(|_| None).collect())
    }

    fn unsettled(&self, _: &Posted<'a>) -> Result<PostOutcome> {
        Ok(PostOutcome::Locked)
    }

    fn session(&self, posted: &Posted<'a>) -> Option<SessionKey> {
        posted.home.map(|home| home.key)
    }

    fn locked(&self, _: &Posted<'a>) -> Result<PostOutcome> {
        Ok(PostOutcome::Locked)
    }
}

/// Finds the homes of the calls that may be answered in their items' sessions' names. A call never
/// moves.
async fn homes(pool: &Pool, items: &[PostResult]) -> Result<Vec<Option<Home>>> {
    let tenants: Vec<i32> = items.iter().map(|item| item.key.tenant.0).collect();
    let ids = items.iter().map(|item| text(&item.call_id).into_owned());
    let ids: Vec<String> = ids.collect();
    let above: Vec<Uuid> = items.iter().map(|item| item.key.session.0).collect();
    let rows = fetch(pool, || {
        sql!("calls/homes")
            .bind(tenants.clone())
            .bind(ids.clone())
            .bind(above.clone())
    });
    let mut homes = vec![None; items.len()];
    for row in &rows.await? {
        let mut fields = Fields::new(row, "tool_calls");
        let ord = fields.ord()?;
        homes[ord] = Some(Home::read(&mut fields)?);
    }
    Ok(homes)
}

impl Home {
    /// The columns `tenant, session_id, send_id, round`.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let key = fields.key()?;
        let round = RoundKey {
            tenant: key.tenant,
            send: SendId(fields.take("send_id")?),
            round: fields.take("round")?,
        };
        Ok(Self { key, round })
    }
}

/// Distinguishes an answer that an earlier attempt stored from one that came too late.
struct Ours {
    /// Whether an earlier attempt may have committed.
    was_lost: bool,
    answered: BTreeSet<(TenantId, String)>,
}

impl Ours {
    fn post(&mut self, ledger: &mut Ledger, home: Home, item: &PostResult) -> PostOutcome {
        let Home { key, round } = home;
        let call_id = text(&item.call_id).into_owned();
        // The session was deleted meanwhile, with its calls.
        let Some(call) = ledger.call(round, &call_id) else {
            return PostOutcome::Unknown;
        };
        let is_first = self.answered.insert((key.tenant, call_id.clone()));
        let notify = if self.was_lost && is_first && stands(call, &item.answer) {
            ledger.notified_before(key)
        } else {
            match transition::post(call, &item.answer, ledger.now) {
                transition::Post::AlreadySettled => return PostOutcome::AlreadySettled,
                transition::Post::NotWaiting => return PostOutcome::NotWaiting,
                transition::Post::ClaimLost => return PostOutcome::ClaimLost,
                transition::Post::Claims => {
                    let claimed = ledger.claim_call(round, &call_id, item.answer.clone());
                    return claimed.map_or(PostOutcome::Unknown, |call| {
                        PostOutcome::of_claim(key, call)
                    });
                }
                transition::Post::Settles
                | transition::Post::Approves
                | transition::Post::Replies => {}
            }
            let now = ledger.now;
            ledger.answer_call(key, round, &call_id, |call| {
                transition::take(call, item.answer.clone(), now);
            })
        };
        PostOutcome::Accepted {
            key,
            send_id: round.send,
            enqueue: notify.ready,
            owner: notify.owner,
        }
    }
}

/// Whether this answer is the one stored on the call.
fn stands(call: &CallRecord, answer: &CallAnswer) -> bool {
    match answer {
        CallAnswer::Result(result)
        | CallAnswer::Refuse(result)
        | CallAnswer::Report { result, .. } => call.result.as_ref() == Some(result),
        CallAnswer::Lapse => call.result.as_ref() == Some(&unknown_outcome()),
        CallAnswer::GiveBack { .. } => call.claim.is_none() && call.result.is_none(),
        // Deciding them again changes nothing but the time.
        CallAnswer::Claim { .. } | CallAnswer::Renew { .. } => false,
        CallAnswer::Approve => call.approval == Approval::Given,
        CallAnswer::Reply { question, reply } => {
            let asked = question
                .checked_sub(1)
                .and_then(|place| call.asked.get(place));
            asked.is_some_and(|asked| asked.reply.as_ref() == Some(reply))
        }
    }
}
