//! Claiming sessions that have work.

mod grants;

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::lease::Lease;
use mainspring_shared::message::Message;
use mainspring_shared::session::fold;
use mainspring_shared::session::projection::{Projected, Projection};
use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{
    ClaimOutcome, ClaimSession, Claimed, Counters, Error, Result, Resumed, StartedSend,
};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

pub(crate) use self::grants::GrantsToRelease;
use crate::fault::Fault;
use crate::folds;
use crate::group::{FastPath, Group, drive};
use crate::projections;
use crate::retry::{Pool, fetch, sql};
use crate::rows::{Fields, key_columns};
use crate::seats;

pub(crate) async fn claim(
    pool: &Pool,
    grants_to_release: &GrantsToRelease,
    at: Option<Timestamp>,
    boot: BootId,
    items: Vec<ClaimSession>,
) -> Result<Vec<ClaimOutcome>> {
    let is_asked = |item: &ClaimSession| !grants_to_release.is_unreadable(item.key);
    let asked: Vec<bool> = items.iter().map(is_asked).collect();
    if !asked.contains(&false) {
        return claim_all(pool, grants_to_release, at, boot, items).await;
    }
    let wanted = items.into_iter().zip(&asked);
    let wanted = wanted.filter_map(|(item, asked)| asked.then_some(item));
    let wanted = claim_all(pool, grants_to_release, at, boot, wanted.collect());
    let mut wanted = wanted.await?.into_iter();
    let outcomes = asked.into_iter().map(|asked| {
        let outcome = asked.then(|| wanted.next()).flatten();
        outcome.unwrap_or(ClaimOutcome::Busy)
    });
    Ok(outcomes.collect())
}

async fn claim_all(
    pool: &Pool,
    grants_to_release: &GrantsToRelease,
    at: Option<Timestamp>,
    boot: BootId,
    items: Vec<ClaimSession>,
) -> Result<Vec<ClaimOutcome>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let claim = Claim {
        at,
        boot,
        grants_to_release,
        fast_path: FastPath::default(),
    };
    let claimed = drive(pool, &claim, &items).await;
    let mut outcomes = match claimed {
        Ok(outcomes) => outcomes,
        Err(error) => {
            if !Elsewhere::is_cause_of(&error) {
                grants_to_release.remember(items.iter().map(|item| (item.key, item.token.0)));
            }
            return Err(error);
        }
    };
    seats::claim(pool, &claim, &items, &mut outcomes).await;
    claim.read_windows(pool, &items, &mut outcomes).await;
    let claimed = items.iter().zip(&outcomes);
    let claimed = claimed.filter(|(_, outcome)| matches!(outcome, ClaimOutcome::Claimed(_)));
    grants_to_release.note_read(claimed.map(|(item, _)| item.key));
    Ok(outcomes)
}

pub(crate) struct Claim<'a> {
    pub(crate) at: Option<Timestamp>,
    pub(crate) boot: BootId,
    pub(crate) grants_to_release: &'a GrantsToRelease,
    fast_path: FastPath,
}

impl Group for Claim<'_> {
    type Item = ClaimSession;
    type Outcome = ClaimOutcome;
    type Seen = BTreeSet<SessionKey>;

    fn conflicts_with(&self, item: &ClaimSession, seen: &mut BTreeSet<SessionKey>) -> bool {
        !seen.insert(item.key)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> std::result::Result<Vec<Option<ClaimOutcome>>, Fault> {
        if self.fast_path.first() {
            return self.run_plain(connection, items).await;
        }
        self.run_with(connection, items, vec![false; items.len()])
            .await
    }

    /// A token is unique to a claim: a session that has an item's token was granted to it.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> std::result::Result<Vec<Option<ClaimOutcome>>, Fault> {
        let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
        let tokens: Vec<Uuid> = items.iter().map(|item| item.token.0).collect();
        let rows = sql!("leases/held")
            .bind(tenants)
            .bind(sessions)
            .bind(tokens)
            .fetch_all(&mut *connection)
            .await?;
        self.outcomes(items, &rows)
    }

    /// Each attempt met a concurrent change of the session, so another process works on it.
    fn unsettled(&self, item: &ClaimSession) -> Result<ClaimOutcome> {
        tracing::warn!(
            session.id = %item.key.session,
            "could not claim a ready session: it changed during every attempt"
        );
        Ok(ClaimOutcome::Busy)
    }

    fn session(&self, item: &Self::Item) -> Option<SessionKey> {
        Some(item.key)
    }

    fn locked(&self, _: &Self::Item) -> Result<Self::Outcome> {
        Ok(ClaimOutcome::Busy)
    }
}

impl Claim<'_> {
    /// Claims sessions that nobody owns and whose head has not started. Other items get no outcome.
    async fn run_plain(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
    ) -> std::result::Result<Vec<Option<ClaimOutcome>>, Fault> {
        let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
        let tokens: Vec<Uuid> = items.iter().map(|item| item.token.0).collect();
        let crashes_below: Vec<i32> = items.iter().map(|item| item.crashes_below).collect();
        let rows = sql!("leases/claim_plain")
            .bind(self.at.map(|at| at.0))
            .bind(self.boot.0)
            .bind(tenants)
            .bind(sessions)
            .bind(tokens)
            .bind(crashes_below)
            .fetch_all(&mut *connection)
            .await?;
        self.outcomes(items, &rows)
    }

    /// Claims sessions. `seated` says which of them are known to have a seat or to need none.
    pub(crate) async fn run_with(
        &self,
        connection: &mut PgConnection,
        items: &[&ClaimSession],
        seated: Vec<bool>,
    ) -> std::result::Result<Vec<Option<ClaimOutcome>>, Fault> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
        let tokens: Vec<Uuid> = items.iter().map(|item| item.token.0).collect();
        let crashes_below: Vec<i32> = items.iter().map(|item| item.crashes_below).collect();
        let orphans: Vec<bool> = items.iter().map(|item| item.orphans).collect();
        let rows = sql!("leases/claim")
            .bind(self.at.map(|at| at.0))
            .bind(self.boot.0)
            .bind(tenants)
            .bind(sessions)
            .bind(tokens)
            .bind(crashes_below)
            .bind(orphans)
            .bind(seated)
            .fetch_all(&mut *connection)
            .await?;
        self.outcomes(items, &rows)
    }

    /// Reads the outcomes. A session whose row cannot be read is released, without affecting the
    /// others.
    fn outcomes(
        &self,
        items: &[&ClaimSession],
        rows: &[PgRow],
    ) -> std::result::Result<Vec<Option<ClaimOutcome>>, Fault> {
        let mut outcomes: Vec<Option<ClaimOutcome>> = items.iter().map(|_| None).collect();
        for row in rows {
            let mut fields = Fields::new(row, "sends");
            let ord = fields.ord()?;
            let item = items[ord];
            outcomes[ord] = match read(&mut fields, item, self.boot) {
                Ok(Verdict::Granted(claimed)) => Some(ClaimOutcome::Claimed(claimed)),
                Ok(Verdict::Busy) => Some(ClaimOutcome::Busy),
                Ok(Verdict::Suspect) => Some(ClaimOutcome::Suspect),
                Ok(Verdict::Idle) => Some(ClaimOutcome::Idle),
                Ok(Verdict::Waits) => Some(ClaimOutcome::Waits),
                Ok(Verdict::Stale) => None,
                Err(error) => Some(self.give_back(item, &error)),
            };
        }
        Ok(outcomes)
    }

    /// Schedules the release of a grant whose session cannot be read.
    fn give_back(&self, item: &ClaimSession, error: &Error) -> ClaimOutcome {
        tracing::error!(
            session.id = %item.key.session,
            %error,
            "could not read a claimed session; it will be released"
        );
        self.grants_to_release.remember([(item.key, item.token.0)]);
        self.grants_to_release.note_unreadable(item.key);
        ClaimOutcome::Busy
    }

    /// Reads the folds of sessions that may have some and whose claimers have no valid cache. A
    /// session whose folds cannot be read is released.
    async fn read_folds(&self, pool: &Pool, items: &[ClaimSession], outcomes: &mut [ClaimOutcome]) {
        let claimed = items.iter().zip(&*outcomes).enumerate();
        let lacking = claimed.filter(|(_, (item, outcome))| match outcome {
            // At context version 0 there is no fold.
            ClaimOutcome::Claimed(claimed) => {
                claimed.counters.context_version > 0 && !is_valid(item, claimed)
            }
            ClaimOutcome::Busy
            | ClaimOutcome::Suspect
            | ClaimOutcome::Idle
            | ClaimOutcome::Waits => false,
        });
        let lacking: Vec<usize> = lacking.map(|(ord, _)| ord).collect();
        if lacking.is_empty() {
            return;
        }
        match folds::shown(pool, lacking.iter().map(|ord| items[*ord].key)).await {
            Ok(folds) => {
                for (place, fold) in folds {
                    if let ClaimOutcome::Claimed(claimed) = &mut outcomes[lacking[place]] {
                        claimed.folds.push(fold);
                    }
                }
            }
            Err(error) => {
                for ord in lacking {
                    outcomes[ord] = self.give_back(&items[ord], &error);
                }
            }
        }
    }

    /// Reads the projections for windows that the claimers' caches lack, for agents that show
    /// digests. If they cannot be read, the messages are read instead.
    async fn read_projections(
        &self,
        pool: &Pool,
        items: &[ClaimSession],
        outcomes: &mut [ClaimOutcome],
    ) {
        let claimed = items.iter().zip(&*outcomes).enumerate();
        let lacking = claimed.filter_map(|(ord, (item, outcome))| match outcome {
            ClaimOutcome::Claimed(claimed) => {
                let context = &claimed.send.agent.context;
                let lacks = context.representation.is_stored()
                    && lacks_messages(item, claimed)
                    && !reaches_back(item, claimed);
                lacks.then(|| (ord, item.key, begin(item, claimed)))
            }
            ClaimOutcome::Busy
            | ClaimOutcome::Suspect
            | ClaimOutcome::Idle
            | ClaimOutcome::Waits => None,
        });
        let lacking: Vec<(usize, SessionKey, i64)> = lacking.collect();
        if lacking.is_empty() {
            return;
        }
        let from = lacking.iter().map(|(_, key, begin)| (*key, *begin));
        let found = match projections::read_from(pool, &from.collect::<Vec<_>>()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "could not read projections; reading the messages instead");
                return;
            }
        };
        let mut rows: Vec<(i64, Vec<Projection>)> =
            lacking.iter().map(|_| (1, Vec::new())).collect();
        for found in found {
            let (first_seq, rows) = &mut rows[found.place];
            *first_seq = found.first_seq;
            rows.push(found.projection);
        }
        for ((ord, _, begin), (first_seq, rows)) in lacking.into_iter().zip(rows) {
            if let ClaimOutcome::Claimed(claimed) = &mut outcomes[ord] {
                let context = &claimed.send.agent.context;
                claimed.projected = Projected::of(rows, begin.max(first_seq), context);
            }
        }
    }

    /// Reads the messages that the claimers' caches lack, a bounded number at a time. A session
    /// whose messages cannot be read is released.
    async fn read_windows(
        &self,
        pool: &Pool,
        items: &[ClaimSession],
        outcomes: &mut [ClaimOutcome],
    ) {
        self.read_folds(pool, items, outcomes).await;
        self.read_projections(pool, items, outcomes).await;
        let lacking = items.iter().zip(&*outcomes).enumerate();
        let lacking = lacking.filter_map(|(ord, (item, outcome))| match outcome {
            ClaimOutcome::Claimed(claimed) if lacks_messages(item, claimed) => {
                Some(Lacking::new(ord, item, claimed))
            }
            ClaimOutcome::Claimed(_)
            | ClaimOutcome::Busy
            | ClaimOutcome::Suspect
            | ClaimOutcome::Idle
            | ClaimOutcome::Waits => None,
        });
        for piece in pieces(lacking.collect()) {
            match window(pool, &piece).await {
                Ok(messages) => {
                    for (ord, message) in messages {
                        if let ClaimOutcome::Claimed(claimed) = &mut outcomes[ord] {
                            claimed.window.push(message);
                        }
                    }
                }
                Err(error) => {
                    for Lacking { ord, .. } in piece {
                        outcomes[ord] = self.give_back(&items[ord], &error);
                    }
                }
            }
        }
    }
}

/// The maximum number of messages per statement, unless a single session has more.
const PIECE_MAX: i64 = 512;

/// Splits sessions, in the given order, into pieces of at most `PIECE_MAX` messages.
fn pieces(lacking: Vec<Lacking>) -> Vec<Vec<Lacking>> {
    let mut pieces: Vec<Vec<Lacking>> = Vec::new();
    let mut messages = 0;
    for item in lacking {
        let more = item.messages();
        match pieces.last_mut() {
            Some(piece) if messages + more <= PIECE_MAX => piece.push(item),
            _ => {
                pieces.push(vec![item]);
                messages = 0;
            }
        }
        messages += more;
    }
    pieces
}

/// The statement's result for an item.
enum Verdict {
    Granted(Box<Claimed>),
    Busy,
    Suspect,
    Idle,
    Waits,
    Stale,
}

fn read(fields: &mut Fields<'_>, item: &ClaimSession, boot: BootId) -> Result<Verdict> {
    let record = fields.maybe_send()?;
    let agent = fields.maybe_agent()?;
    let resumed = fields.maybe_name("resumed", Resumed::parse)?;
    let next_seq: Option<i64> = fields.take("next_seq")?;
    let pending: Option<i64> = fields.take("pending")?;
    let signals: Option<i32> = fields.take("signals")?;
    let version: Option<i64> = fields.take("context_version")?;
    let epoch: Option<i64> = fields.take("epoch")?;
    let spent = fields.maybe_json("spent")?.unwrap_or_default();
    let state: &str = fields.take("state")?;
    let seated: Option<bool> = fields.take("seated")?;
    let Some(record) = record else {
        return Ok(match state {
            "busy" => Verdict::Busy,
            "suspect" => Verdict::Suspect,
            "stale" => Verdict::Stale,
            "waits" => Verdict::Waits,
            _ => Verdict::Idle,
        });
    };
    let lease = Lease {
        boot,
        token: item.token,
        epoch: epoch.unwrap_or_default(),
        write: 0,
    };
    let counters = Counters {
        next_seq: next_seq.unwrap_or_default(),
        pending: pending.unwrap_or_default(),
        signals: signals.unwrap_or_default(),
        context_version: version.unwrap_or_default(),
    };
    let send = started(fields, record, agent, resumed)?;
    Ok(Verdict::Granted(Box::new(Claimed {
        key: item.key,
        lease,
        counters,
        send,
        spent,
        seated: seated.unwrap_or_default(),
        folds: Vec::new(),
        projected: Projected::default(),
        window: Vec::new(),
    })))
}

/// A running send with its agent; one without an agent is corrupt.
pub(crate) fn started(
    fields: &Fields<'_>,
    record: mainspring_shared::send::SendRecord,
    agent: Option<mainspring_shared::agent::AgentSpec>,
    resumed: Option<Resumed>,
) -> Result<StartedSend> {
    let agent = agent.ok_or_else(|| {
        let detail = "no agent has this version".to_owned();
        fields.corrupt("agent_version", detail)
    })?;
    Ok(StartedSend::new(record, agent, resumed))
}

/// Whether the window may contain messages that the claimer's cache lacks.
fn lacks_messages(item: &ClaimSession, claimed: &Claimed) -> bool {
    let next_seq = claimed.counters.next_seq;
    let from = begin(item, claimed);
    let is_warm =
        is_valid(item, claimed) && item.cached_next_seq == next_seq && item.cached_from_seq <= from;
    next_seq > 1 && !is_warm
}

/// Whether the claimer's cache lacks only messages after those that it has.
fn reaches_back(item: &ClaimSession, claimed: &Claimed) -> bool {
    let from = begin(item, claimed);
    let is_at_end = item.cached_next_seq == claimed.counters.next_seq;
    let reaches_back = item.cached_next_seq > 0 && item.cached_from_seq <= from;
    is_valid(item, claimed) && reaches_back && (item.cached_next_seq > from || is_at_end)
}

/// Whether the claimer's cache is still valid.
fn is_valid(item: &ClaimSession, claimed: &Claimed) -> bool {
    let counters = &claimed.counters;
    item.has_valid_cache(counters.next_seq, counters.context_version)
}

/// Where the window begins: after the folds, which must have been read.
fn begin(item: &ClaimSession, claimed: &Claimed) -> i64 {
    let fold_end = if is_valid(item, claimed) {
        item.cached_fold_end
    } else {
        fold::end(&claimed.folds)
    };
    fold::begin(
        claimed.send.window_from(claimed.counters.next_seq),
        fold_end,
    )
}

/// A session whose window has to be read.
struct Lacking {
    ord: usize,
    key: SessionKey,
    next_seq: i64,
    cached_next_seq: i64,
    cached_from_seq: i64,
    from_seq: i64,
}

impl Lacking {
    fn new(ord: usize, item: &ClaimSession, claimed: &Claimed) -> Self {
        let is_valid = reaches_back(item, claimed);
        Self {
            ord,
            key: item.key,
            next_seq: claimed.counters.next_seq,
            cached_next_seq: if is_valid { item.cached_next_seq } else { 0 },
            cached_from_seq: if is_valid { item.cached_from_seq } else { 0 },
            from_seq: claimed.projected.behind(begin(item, claimed)),
        }
    }

    /// The approximate number of messages in its window.
    fn messages(&self) -> i64 {
        self.next_seq - self.from_seq
    }
}

/// Reads the messages that the caches lack, each with the index of its item.
async fn window(pool: &Pool, lacking: &[Lacking]) -> Result<Vec<(usize, Message)>> {
    let (tenants, sessions) = key_columns(lacking.iter().map(|item| item.key));
    let next_seqs: Vec<i64> = lacking.iter().map(|item| item.next_seq).collect();
    let cached_next: Vec<i64> = lacking.iter().map(|item| item.cached_next_seq).collect();
    let cached_from: Vec<i64> = lacking.iter().map(|item| item.cached_from_seq).collect();
    let from: Vec<i64> = lacking.iter().map(|item| item.from_seq).collect();
    let rows = fetch(pool, || {
        sql!("leases/window")
            .bind(tenants.clone())
            .bind(sessions.clone())
            .bind(next_seqs.clone())
            .bind(cached_next.clone())
            .bind(cached_from.clone())
            .bind(from.clone())
    })
    .await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "messages");
        let place = fields.ord()?;
        messages.push((lacking[place].ord, fields.message()?));
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{SessionId, TenantId};

    use super::*;

    fn lacking(ord: usize, next_seq: i64, last_messages: Option<u32>) -> Lacking {
        Lacking {
            ord,
            key: SessionKey {
                tenant: TenantId::DEFAULT,
                session: SessionId(Uuid::nil()),
            },
            next_seq,
            cached_next_seq: 0,
            cached_from_seq: 0,
            from_seq: mainspring_shared::session::window::from_seq(next_seq, last_messages),
        }
    }

    #[test]
    fn large_windows_are_read_by_themselves_and_small_ones_together() {
        let sessions = vec![
            lacking(0, 200, None),
            lacking(1, 301, None),
            lacking(2, 90_000, Some(10)),
            lacking(3, 90_000, None),
            lacking(4, 2, None),
        ];
        let pieces = pieces(sessions).into_iter();
        let ords = pieces.map(|piece| piece.iter().map(|item| item.ord).collect::<Vec<_>>());
        let expected = [vec![0, 1, 2], vec![3], vec![4]];
        assert_eq!(ords.collect::<Vec<_>>(), expected);
    }
}
