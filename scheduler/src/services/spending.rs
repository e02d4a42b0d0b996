//! What tenants and their agents have spent, held against their limits of tokens, money and bytes.
//!
//! A limit is looked at when a send is accepted or a blob is stored, and only of tenants and agents that have one. What they
//! used is read at most every two seconds by each scheduler, and what ended sends used only once in some minutes. Money,
//! and tokens of a day and a month, are what the ledger says that workers reserve from before each call; until the first
//! call of a month they are what the usage of the month's sends says, of earlier days read more rarely. Here it only
//! saves sends that could do nothing: that no limit is passed is the workers' affair.

mod ledger;
mod settled;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::agent::{AgentLimits, AgentName};
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{TenantUsage, TenantUsageQuery};
use mainspring_shared::tenant::{Amount, Limits, MoneySpan, money_day, money_day_begin};
use mainspring_shared::time::Timestamp;

use tokio::sync::OwnedMutexGuard;

use crate::app::App;
use crate::error::Error;

use self::ledger::{KnownLedger, Owner, Window, no_tokens};
use self::settled::{Settled, Sum};

/// How long a sum is believed.
const BELIEVED: Duration = Duration::from_secs(2);

/// How long the sum of days that are over is believed: only sends that are still open add to it.
const MONTH_BELIEVED: Duration = settled::SUMMED_ANEW;

/// What tokens are counted over.
const MINUTE: Duration = Duration::from_mins(1);

/// What was read of tenants that have limits, and of agents that do.
#[derive(Debug, Default)]
pub struct KnownSpending {
    tenants: Mutex<HashMap<TenantId, Known>>,
    ledger: KnownLedger,
}

/// What was read of one tenant.
#[derive(Debug, Clone, Default)]
struct Known {
    /// What the sends of a day cost, and when that was read.
    today: Option<(i64, Duration, Amount)>,
    /// The same of the days of its month before it.
    month: Option<(i64, Duration, Amount)>,
    /// Tokens of all its newer sends, and when they were read: the last one before a minute ago, and later ones.
    tokens: VecDeque<(Duration, u64)>,
    /// What the sends cost that have ended, by the time from which on they were accepted.
    settled: BTreeMap<Timestamp, Settled>,
    /// Bytes of its blobs, and when they were read.
    bytes: Option<(Duration, u64)>,
    /// Whose turn it is to read: whoever comes meanwhile finds it read.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Why a tenant may not send now, if it may not.
pub(crate) async fn refusal(
    app: &App,
    tenant: TenantId,
    limits: &Limits,
) -> Result<Option<Error>, Error> {
    let owner = Owner {
        tenant,
        agent: None,
    };
    if let Some(why) = ledger::refusal(app, &owner, limits).await? {
        return Ok(Some(why));
    }
    if let Some(max) = limits.tokens_per_minute {
        let (taken, reset) = tokens(app, tenant).await?;
        if taken >= max {
            let window = Window {
                span: MoneySpan::Minute,
                length: MINUTE,
                left: reset,
            };
            return Ok(Some(no_tokens(max, window, None)));
        }
    }
    if let Some(max) = limits.bytes {
        let stored = bytes(app, tenant, BELIEVED).await?;
        if stored >= max {
            return Ok(Some(no_room(stored, max)));
        }
    }
    Ok(None)
}

/// Why an agent of a tenant may not be sent anything now, if it may not.
pub(crate) async fn agent_refusal(
    app: &App,
    tenant: TenantId,
    agent: &AgentName,
    limits: &AgentLimits,
) -> Result<Option<Error>, Error> {
    let owner = Owner {
        tenant,
        agent: Some(agent.clone()),
    };
    ledger::refusal(app, &owner, &limits.spending()).await
}

/// What the sends of today or of this month cost and took.
async fn of_usage(app: &App, tenant: TenantId, span: MoneySpan) -> Result<Amount, Error> {
    match span {
        // Of a minute only the ledger says anything.
        MoneySpan::Minute => Ok(Amount::default()),
        MoneySpan::Day => today(app, tenant).await,
        MoneySpan::Month => Ok(today(app, tenant).await?.and(month(app, tenant).await?)),
    }
}

/// Fails where so many bytes more are too many for a tenant.
pub async fn admit_bytes(app: &App, tenant: TenantId, more: usize) -> Result<(), Error> {
    let Some(max) = app.known.limits.of(tenant).and_then(|limits| limits.bytes) else {
        return Ok(());
    };
    let stored = bytes(app, tenant, Duration::ZERO).await?;
    if stored.saturating_add(more as u64) > max {
        return Err(no_room(stored, max));
    }
    Ok(())
}

fn with<T>(app: &App, tenant: TenantId, what: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = app
        .known
        .spending
        .tenants
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    what(known.entry(tenant).or_default())
}

/// The right to read something of a tenant, while nobody else does.
async fn turn(app: &App, tenant: TenantId) -> OwnedMutexGuard<()> {
    let turn = with(app, tenant, |known| Arc::clone(&known.turn));
    turn.lock_owned().await
}

/// What the sends of today cost.
async fn today(app: &App, tenant: TenantId) -> Result<Amount, Error> {
    let day = money_day(app.database_time().await);
    let now = app.clock.monotonic();
    let known = || {
        let known = with(app, tenant, |known| known.today);
        known.filter(|(of, at, _)| *of == day && now.saturating_sub(*at) < BELIEVED)
    };
    if let Some((_, _, spent)) = known() {
        return Ok(spent);
    }
    let _turn = turn(app, tenant).await;
    if let Some((_, _, spent)) = known() {
        return Ok(spent);
    }
    let sum = since(app, tenant, money_day_begin(day)).await?;
    let spent = Amount::of(&sum.usage.usage);
    with(app, tenant, |known| known.today = Some((day, now, spent)));
    Ok(spent)
}

/// What the sends of this month before today cost.
async fn month(app: &App, tenant: TenantId) -> Result<Amount, Error> {
    let today = app.database_time().await;
    let day = money_day(today);
    let now = app.clock.monotonic();
    let known = || {
        let known = with(app, tenant, |known| known.month);
        known.filter(|(of, at, _)| *of == day && now.saturating_sub(*at) < MONTH_BELIEVED)
    };
    if let Some((_, _, spent)) = known() {
        return Ok(spent);
    }
    let _turn = turn(app, tenant).await;
    if let Some((_, _, spent)) = known() {
        return Ok(spent);
    }
    let used = used(app, tenant, today.month(), money_day_begin(day)).await?;
    let spent = Amount::of(&used.usage);
    with(app, tenant, |known| known.month = Some((day, now, spent)));
    Ok(spent)
}

/// Tokens that this scheduler saw the tenant's sends take in the last minute, and when that will be fewer. It
/// compares sums, so that the first one after its start shows nothing. Where nobody looked for longer than a
/// minute, it is the mean of the time since.
async fn tokens(app: &App, tenant: TenantId) -> Result<(u64, Duration), Error> {
    let now = app.clock.monotonic();
    let is_old = || {
        let newest = with(app, tenant, |known| known.tokens.back().copied());
        newest.is_none_or(|(at, _)| now.saturating_sub(at) >= BELIEVED)
    };
    let turn = if is_old() {
        Some(turn(app, tenant).await)
    } else {
        None
    };
    if turn.is_some() && is_old() {
        let yesterday = money_day_begin(money_day(app.database_time().await) - 1);
        let sum = since(app, tenant, yesterday).await?;
        let tokens = tokens_of(&sum.usage);
        let without = sum.without.as_ref().map_or(tokens, tokens_of);
        with(app, tenant, |known| {
            shift(&mut known.tokens, without, tokens);
            note(&mut known.tokens, now, tokens);
        });
    }
    Ok(with(app, tenant, |known| {
        let oldest = known.tokens.front().copied().unwrap_or_default();
        let newest = known.tokens.back().copied().unwrap_or_default();
        let reset = MINUTE.saturating_sub(now.saturating_sub(oldest.0));
        (
            per_minute(oldest, newest),
            reset.max(Duration::from_secs(1)),
        )
    }))
}

/// Tokens of a minute between two sums.
fn per_minute(oldest: (Duration, u64), newest: (Duration, u64)) -> u64 {
    // A sum that begins with another day is smaller.
    let taken = newest.1.saturating_sub(oldest.1);
    let passed = newest.0.saturating_sub(oldest.0).max(MINUTE).as_millis();
    let mean = u128::from(taken) * MINUTE.as_millis() / passed;
    u64::try_from(mean).unwrap_or(u64::MAX)
}

/// Has earlier sums agree with one in which more was found, or less. What was found was taken some time in
/// [`SUMMED_ANEW`](settled::SUMMED_ANEW): of it only as much as is taken in a minute counts as taken since.
fn shift(sums: &mut VecDeque<(Duration, u64)>, without: u64, with: u64) {
    let found = with.saturating_sub(without);
    let minutes = settled::SUMMED_ANEW.as_secs() / MINUTE.as_secs();
    let before = found - found / minutes;
    for (_, sum) in sums {
        *sum = (*sum + before).saturating_sub(without.saturating_sub(with));
    }
}

/// Adds a sum, and drops those before the last one that is a minute old.
fn note(sums: &mut VecDeque<(Duration, u64)>, now: Duration, sum: u64) {
    sums.push_back((now, sum));
    let is_old = |at: Duration| now.saturating_sub(at) >= MINUTE;
    while sums.get(1).is_some_and(|(at, _)| is_old(*at)) {
        sums.pop_front();
    }
}

async fn bytes(app: &App, tenant: TenantId, believed: Duration) -> Result<u64, Error> {
    let now = app.clock.monotonic();
    let known = || {
        let known = with(app, tenant, |known| known.bytes);
        known.filter(|(at, _)| now.saturating_sub(*at) < believed)
    };
    if let Some((_, bytes)) = known() {
        return Ok(bytes);
    }
    let _turn = turn(app, tenant).await;
    if let Some((_, bytes)) = known() {
        return Ok(bytes);
    }
    let bytes = app.store.tenant_bytes(tenant).await?;
    with(app, tenant, |known| known.bytes = Some((now, bytes)));
    Ok(bytes)
}

/// What the sends cost that were accepted in this time.
async fn used(
    app: &App,
    tenant: TenantId,
    from: Timestamp,
    until: Timestamp,
) -> Result<TenantUsage, Error> {
    let query = TenantUsageQuery::accepted(tenant, from, until);
    Ok(app.store.tenant_usage(query).await?)
}

/// What the sends cost that were accepted from a day on. Whoever calls this has the tenant's turn.
async fn since(app: &App, tenant: TenantId, from: Timestamp) -> Result<Sum, Error> {
    let (now, time) = (app.database_time().await, app.clock.monotonic());
    let yesterday = money_day_begin(money_day(now) - 1);
    let known = with(app, tenant, |known| {
        known.settled.retain(|from, _| *from >= yesterday);
        known.settled.get(&from).copied()
    });
    let book = (app.store.clone(), tenant);
    let (settled, sum) = Settled::sum(known, &book, (from, now), time).await?;
    with(app, tenant, |known| known.settled.insert(from, settled));
    Ok(sum)
}

const fn tokens_of(used: &TenantUsage) -> u64 {
    used.usage.input_tokens + used.usage.output_tokens
}

fn no_room(stored: u64, max: u64) -> Error {
    let detail = format!(
        "the tenant stores {stored} of at most {max} bytes: delete sessions or timers that use \
         them, or raise `limits.bytes`"
    );
    Error::new(Code::LimitBytes, detail).after(MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn sums_are_kept_for_a_minute_and_the_last_one_before_it() {
        let mut sums = VecDeque::new();
        for secs in [0, 10, 50, 65, 70, 80] {
            note(&mut sums, at(secs), secs);
        }
        assert_eq!(sums.front(), Some(&(at(10), 10)));
        note(&mut sums, at(300), 300);
        assert_eq!(sums, [(at(80), 80), (at(300), 300)]);
    }

    #[test]
    fn what_was_taken_while_nobody_looked_counts_as_its_mean() {
        assert_eq!(per_minute((at(0), 100), (at(30), 700)), 600);
        assert_eq!(per_minute((at(0), 100), (at(60), 700)), 600);
        assert_eq!(per_minute((at(0), 100), (at(600), 700)), 60);
        assert_eq!(per_minute((at(0), 700), (at(60), 100)), 0);
    }

    #[test]
    fn what_is_found_late_was_taken_in_some_minutes_and_what_is_gone_was_never_there() {
        let sums = || VecDeque::from([(at(0), 100), (at(60), 700)]);
        let mut more = sums();
        shift(&mut more, 800, 5_800);
        assert_eq!(more, [(at(0), 4_100), (at(60), 4_700)]);
        let mut less = sums();
        shift(&mut less, 800, 300);
        assert_eq!(less, [(at(0), 0), (at(60), 200)]);
        let mut same = sums();
        shift(&mut same, 800, 800);
        assert_eq!(same, sums());
    }
}
