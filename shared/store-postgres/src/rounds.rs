//! Storing rounds under their leases.

use std::collections::BTreeSet;

use mainspring_shared::id::SessionKey;
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_shared::store::{AppendOutcome, AppendRound, Counters, Result};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;

use crate::columns::{
    CallColumns, LeaseColumns, MessageColumns, TotalColumns, UsageColumns, ord, ref_members,
};
use crate::group::{Group, drive};
use crate::park::{Written, read_written};
use crate::retry::{Fault, Pool, sql};
use crate::rows::Fields;

pub(crate) async fn append(
    pool: &Pool,
    at: Option<Timestamp>,
    items: Vec<AppendRound>,
) -> Result<Vec<AppendOutcome>> {
    drive(pool, &Append { at }, &items).await
}

struct Append {
    at: Option<Timestamp>,
}

impl Group for Append {
    type Item = AppendRound;
    type Outcome = AppendOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn clashes(&self, item: &AppendRound, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
    ) -> std::result::Result<Vec<Option<AppendOutcome>>, Fault> {
        let mut leases = LeaseColumns::default();
        let mut counts: Vec<i64> = Vec::new();
        let mut refs: Vec<String> = Vec::new();
        let mut totals = TotalColumns::default();
        let mut messages = MessageColumns::default();
        let mut usage = UsageColumns::default();
        let mut calls = CallColumns::default();
        for (index, item) in items.iter().enumerate() {
            let ord = ord(index);
            leases.push(item.key, item.lease, item.send_id);
            counts.push(item.messages.len() as i64);
            refs.push(ref_members(item.messages.len(), Some(&item.round)));
            totals.push(&item.totals);
            messages.push(ord, &item.messages);
            usage.push(ord, &item.usage);
            calls.push(ord, item.round.index, &item.calls);
        }
        let query = leases.bind(sql!("leases/append").bind(self.at.map(|at| at.0)));
        let query = totals.bind(query.bind(counts).bind(refs));
        let query = calls.bind(usage.bind(messages.bind(query)));
        let rows = query.fetch_all(connection).await?;
        let mut outcomes: Vec<_> = items
            .iter()
            .map(|_| Some(AppendOutcome::LeaseLost))
            .collect();
        for row in &rows {
            let mut fields = Fields::new(row, "session_hot");
            let ord = fields.ord()?;
            outcomes[ord] = Some(AppendOutcome::Appended {
                first_seq: fields.take("first_seq")?,
                step: fields.take("step")?,
                at: fields.time("now")?,
                counters: Counters {
                    next_seq: fields.take("next_seq")?,
                    pending: fields.take("pending")?,
                    signals: fields.take("signals")?,
                },
            });
        }
        Ok(outcomes)
    }

    /// The round is stored when the send's last step under this grant is this round.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
    ) -> std::result::Result<Vec<Option<AppendOutcome>>, Fault> {
        let asked = items
            .iter()
            .map(|item| (item.key, item.lease, item.send_id));
        let written = read_written(connection, asked).await?;
        let outcomes = written.into_iter().zip(items).map(|(written, item)| {
            let written = written.unwrap_or_default();
            let is_this = |refs: &StepRefs| refs.round.as_ref() == Some(&item.round);
            match written {
                Written {
                    step: Some(step),
                    counters,
                    ..
                } if step.kind == StepKind::Round && is_this(&step.refs) => {
                    Some(AppendOutcome::Appended {
                        first_seq: step.refs.first_seq.unwrap_or(counters.next_seq),
                        step: step.n,
                        at: step.at,
                        counters,
                    })
                }
                Written { held: true, .. } => None,
                Written { held: false, .. } => Some(AppendOutcome::LeaseLost),
            }
        });
        Ok(outcomes.collect())
    }

    fn unsettled(&self, _: &AppendRound) -> Result<AppendOutcome> {
        Ok(AppendOutcome::LeaseLost)
    }
}
