//! Storing rounds and changes of their calls, under leases.

use std::collections::BTreeSet;

use mainspring_shared::id::SessionKey;
use mainspring_shared::session::SIGNAL_RESULT;
use mainspring_shared::store::{AppendOutcome, AppendRound, Counters, Result};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;

use crate::columns::{
    CallColumns, ChangeColumns, DeliveryColumns, FoldColumns, LeaseColumns, MessageColumns,
    TotalColumns, UsageColumns, ord, ref_members,
};
use crate::fault::Fault;
use crate::group::{Group, drive};
use crate::park::{Written, read_written};
use crate::retry::{PgQuery, Pool, sql};
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

    fn conflicts_with(&self, item: &AppendRound, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
    ) -> std::result::Result<Vec<Option<AppendOutcome>>, Fault> {
        let rows = bind(self.at, items).fetch_all(&mut *connection).await?;
        let mut outcomes: Vec<Option<AppendOutcome>> = items.iter().map(|_| None).collect();
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
                    context_version: fields.take("context_version")?,
                },
            });
        }
        self.repeated(connection, items, &mut outcomes).await?;
        Ok(outcomes)
    }

    /// The number of the lease's last write tells whether it took effect. The lost response may
    /// have reported signals that are cleared by now: those of the inbox are derived from the
    /// inbox, and a result is always reported, at the cost of a needless look.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
    ) -> std::result::Result<Vec<Option<AppendOutcome>>, Fault> {
        let asked = items
            .iter()
            .map(|item| (item.key, item.lease, item.send_id));
        let written = read_written(connection, asked).await?;
        let outcomes = written.into_iter().map(|written| {
            let Written {
                held,
                is_last,
                counters,
                for_items,
                step,
                ..
            } = written.unwrap_or_default();
            match step.filter(|_| is_last) {
                Some(step) => Some(AppendOutcome::Appended {
                    first_seq: step.refs.first_seq.unwrap_or(counters.next_seq),
                    step: step.n,
                    at: step.at,
                    counters: Counters {
                        signals: counters.signals | for_items | SIGNAL_RESULT,
                        ..counters
                    },
                }),
                None => (!held).then_some(AppendOutcome::LeaseLost),
            }
        });
        Ok(outcomes.collect())
    }

    fn unsettled(&self, _: &AppendRound) -> Result<AppendOutcome> {
        Ok(AppendOutcome::LeaseLost)
    }

    fn session(&self, item: &Self::Item) -> Option<SessionKey> {
        Some(item.key)
    }

    fn locked(&self, _: &Self::Item) -> Result<Self::Outcome> {
        Ok(AppendOutcome::Locked)
    }
}

impl Append {
    /// Settles the items that the fence rejected: a repeat of the lease's last write gets the
    /// outcome of the original.
    async fn repeated(
        &self,
        connection: &mut PgConnection,
        items: &[&AppendRound],
        outcomes: &mut [Option<AppendOutcome>],
    ) -> std::result::Result<(), Fault> {
        let kept_out: Vec<usize> = (0..items.len())
            .filter(|index| outcomes[*index].is_none())
            .collect();
        if kept_out.is_empty() {
            return Ok(());
        }
        let picked: Vec<_> = kept_out.iter().map(|index| items[*index]).collect();
        let found = self.read_back(connection, &picked).await?;
        for (index, found) in kept_out.into_iter().zip(found) {
            outcomes[index] = Some(found.unwrap_or(AppendOutcome::LeaseLost));
        }
        Ok(())
    }
}

/// The statement with its arguments. Few steps attach folds, so only those use the statement with
/// folds.
fn bind(at: Option<Timestamp>, items: &[&AppendRound]) -> PgQuery {
    let mut leases = LeaseColumns::default();
    let mut counts: Vec<i64> = Vec::new();
    let mut kinds: Vec<&'static str> = Vec::new();
    let mut refs: Vec<String> = Vec::new();
    let mut totals = TotalColumns::default();
    let mut writes: Vec<i64> = Vec::new();
    let mut messages = MessageColumns::default();
    let mut usage = UsageColumns::default();
    let mut changes = ChangeColumns::default();
    let mut deliveries = DeliveryColumns::default();
    let mut calls = CallColumns::default();
    let mut folds = FoldColumns::default();
    for (index, item) in items.iter().enumerate() {
        let ord = ord(index);
        leases.push(item.key, item.lease, item.send_id);
        counts.push(item.messages.len() as i64);
        kinds.push(item.kind().as_str());
        refs.push(ref_members(item.messages.len(), &item.refs()));
        totals.push(&item.totals);
        writes.push(item.lease.write);
        messages.push(ord, &item.messages);
        usage.push(ord, &item.usage);
        calls.push(&mut changes, ord, &item.calls, &item.changes);
        deliveries.push(ord, &item.deliveries);
        folds.push(ord, item.fold.as_ref());
    }
    let alone = folds.is_empty();
    let query = if alone {
        sql!("leases/append")
    } else {
        sql!("leases/append_folds")
    };
    let query = leases.bind(query.bind(at.map(|at| at.0)));
    let query = query.bind(counts).bind(kinds).bind(refs);
    let query = usage.bind(messages.bind(totals.bind(query).bind(writes)));
    let query = calls.bind(deliveries.bind(changes.bind(query)));
    if alone { query } else { folds.bind(query) }
}

#[cfg(test)]
mod tests {
    const ALONE: &str = include_str!("../sql/leases/append.sql");
    const WITH_FOLDS: &str = include_str!("../sql/leases/append_folds.sql");

    /// The statement without its leading comment.
    fn body(text: &str) -> &str {
        let begin = text.find("WITH clock").expect("it begins so");
        &text[begin..]
    }

    #[test]
    fn the_two_statements_differ_only_in_the_folds() {
        let with_folds = body(WITH_FOLDS);
        let begin = with_folds.find(",\nfold AS MATERIALIZED (");
        let end = with_folds.find("\nSELECT\n    t.ord, t.next_seq");
        let (begin, end) = begin.zip(end).expect("the folds stand between these");
        let rest = format!("{}{}", &with_folds[..begin], &with_folds[end..]);
        let counted = " + (t.kind = 'folded')::integer";
        let rest = rest.replace(
            &format!(",\n        context_version = t.context_version{counted}"),
            "",
        );
        let rest = rest.replace(
            &format!("t.context_version{counted} AS context_version"),
            "t.context_version",
        );
        assert_eq!(rest, body(ALONE));
    }
}
