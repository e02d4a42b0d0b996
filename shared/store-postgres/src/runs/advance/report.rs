//! What the end of a run does to the session that waits for it.

use mainspring_shared::agent::SendOptions;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::transition::{AtRest, Notify};
use mainspring_shared::store::{AcceptSend, RunReport, Target};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;

use super::{Advance, ready_of};
use crate::calls::Home;
use crate::columns::text;
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::retry::sql;
use crate::rows::Fields;

impl Advance<'_> {
    /// Reports the end of a run to the session that waits for it: an open call gets its result, a
    /// busy session an inbox item, a session at rest a send if the report wakes it, and else an
    /// item.
    pub(super) async fn tell(
        &self,
        connection: &mut PgConnection,
        now: Timestamp,
        report: &RunReport,
    ) -> Result<Notify, Fault> {
        let key = report.session;
        let home = match &report.call {
            Some((call_id, _)) => self.home(connection, report, call_id).await?,
            None => None,
        };
        let mut ledger = Ledger::lock(connection, Some(now), self.boot, [key]).await?;
        let lives = ledger.hot.get(&key);
        if lives.is_none_or(|hot| hot.row.lifecycle == Lifecycle::Deleted) {
            return Ok(Notify::default());
        }
        ledger.read_heads(connection).await?;
        if let Some((home, (call_id, result))) = home.zip(report.call.as_ref()) {
            ledger.read_rounds(connection, [home.round]).await?;
            let call = ledger.call(home.round, call_id);
            if call.is_some_and(|call| call.result.is_none()) {
                let notify = ledger.settle_call(key, home.round, call_id, result.clone());
                ledger.write(connection).await?;
                return Ok(notify);
            }
        }
        let Some(words) = &report.words else {
            return Ok(Notify::default());
        };
        let at_rest = if words.wake {
            AtRest::Send
        } else {
            AtRest::Keep
        };
        let (id, content) = (words.item_id.clone(), words.content.clone());
        if let Some(notify) = ledger.report(key, id, content, at_rest) {
            ledger.write(connection).await?;
            return Ok(notify);
        }
        let send = AcceptSend {
            id: words.send,
            target: Target::Existing(key),
            input: words.content.clone(),
            options: SendOptions {
                ended_run: words.ended_run,
                ..SendOptions::default()
            },
            reports_to: None,
            run: None,
            idempotency: None,
            queued_max: i64::MAX,
            keeper: None,
        };
        let outcomes = self.accept(connection, now, &[&send]).await?;
        Ok(Notify {
            ready: outcomes.into_iter().find_map(ready_of),
            owner: None,
        })
    }

    async fn home(
        &self,
        connection: &mut PgConnection,
        report: &RunReport,
        call_id: &str,
    ) -> Result<Option<Home>, Fault> {
        let rows = sql!("calls/homes")
            .bind(vec![report.session.tenant.0])
            .bind(vec![text(call_id).into_owned()])
            .bind(vec![report.session.session.0])
            .fetch_all(connection)
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let mut fields = Fields::new(row, "tool_calls");
        let home = Home::read(&mut fields)?;
        Ok((home.key == report.session).then_some(home))
    }
}
