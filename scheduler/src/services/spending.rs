//! What tenants and their agents have used, checked against their limits on tokens, money and
//! bytes.
//!
//! A limit is checked when a send is accepted or a blob is stored, and only for tenants and agents
//! that have one. Each scheduler reads their usage at most every two seconds, and the usage of
//! ended sends only every few minutes. Money, and tokens per day and month, come from the ledger,
//! in which workers reserve amounts before each call. Until the first call of a month they come
//! from the usage of the month's sends, which is read less often for earlier days. These checks
//! only avoid sends that could do nothing: it is the workers that enforce the limits.

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

/// How long a sum is used before it is read again.
const CACHE_TTL: Duration = Duration::from_secs(2);

/// How long the sum of past days is used: only sends that are still open add to it.
const MONTH_CACHE_TTL: Duration = settled::SUMMED_ANEW;

/// The window that tokens are counted over.
const MINUTE: Duration = Duration::from_mins(1);

/// What was read about tenants with limits, and about agents with limits.
#[derive(Debug, Default)]
pub struct KnownSpending {
    tenants: Mutex<HashMap<TenantId, Known>>,
    ledger: KnownLedger,
}

/// What was read about one tenant.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The usage of a day's sends: the day, when it was read, and the amount.
    today: Option<(i64, Duration, Amount)>,
    /// The same for the earlier days of its month.
    month: Option<(i64, Duration, Amount)>,
    /// Sums of tokens of all its recent sends, each with when it was read: the last one from over a
    /// minute ago, and later ones.
    tokens: VecDeque<(Duration, u64)>,
    /// The usage of ended sends, by the time from which the sends were accepted.
    settled: BTreeMap<Timestamp, Settled>,
    /// When it was read, and the size of its blobs in bytes.
    bytes: Option<(Duration, u64)>,
    /// Held while reading, so that concurrent requests share one read.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Why a tenant may not send at the moment; none if it may.
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
        let stored = bytes(app, tenant, CACHE_TTL).await?;
        if stored >= max {
            return Ok(Some(no_room(stored, max)));
        }
    }
    Ok(None)
}

/// Why an agent of a tenant may not get sends at the moment; none if it may.
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

/// The cost and tokens of the sends of today or this month.
async fn of_usage(app: &App, tenant: TenantId, span: MoneySpan) -> Result<Amount, Error> {
    match span {
        // Only the ledger counts by the minute.
        MoneySpan::Minute => Ok(Amount::default()),
        MoneySpan::Day => today(app, tenant).await,
        MoneySpan::Month => Ok(today(app, tenant).await?.and(month(app, tenant).await?)),
    }
}

/// Fails if storing `more` bytes would exceed the tenant's limit.
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

/// Waits for the exclusive right to read a tenant's usage.
async fn turn(app: &App, tenant: TenantId) -> OwnedMutexGuard<()> {
    let turn = with(app, tenant, |known| Arc::clone(&known.turn));
    turn.lock_owned().await
}

/// The usage of today's sends.
async fn today(app: &App, tenant: TenantId) -> Result<Amount, Error> {
    let day = money_day(app.database_time().await);
    let now = app.clock.monotonic();
    let known = || {
        let known = with(app, tenant, |known| known.today);
        known.filter(|(of, at, _)| *of == day && now.saturating_sub(*at) < CACHE_TTL)
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

/// The usage of this month's sends before today.
async fn month(app: &App, tenant: TenantId) -> Result<Amount, Error> {
    let today = app.database_time().await;
    let day = money_day(today);
    let now = app.clock.monotonic();
    let known = || {
        let known = with(app, tenant, |known| known.month);
        known.filter(|(of, at, _)| *of == day && now.saturating_sub(*at) < MONTH_CACHE_TTL)
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

/// The tokens that the tenant's sends used in the last minute, as seen by this scheduler, and when
/// there will be fewer. It compares sums, so the first one after a start shows nothing. If none was
/// read for over a minute, the result is the average since the last one.
async fn tokens(app: &App, tenant: TenantId) -> Result<(u64, Duration), Error> {
    let now = app.clock.monotonic();
    let is_old = || {
        let newest = with(app, tenant, |known| known.tokens.back().copied());
        newest.is_none_or(|(at, _)| now.saturating_sub(at) >= CACHE_TTL)
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

/// Tokens per minute between two sums.
fn per_minute(oldest: (Duration, u64), newest: (Duration, u64)) -> u64 {
    // A sum that starts on a later day is smaller.
    let taken = newest.1.saturating_sub(oldest.1);
    let passed = newest.0.saturating_sub(oldest.0).max(MINUTE).as_millis();
    let mean = u128::from(taken) * MINUTE.as_millis() / passed;
    u64::try_from(mean).unwrap_or(u64::MAX)
}

/// Adjusts earlier sums to a new sum that found more usage, or less. What was found was used at
/// some time within [`SUMMED_ANEW`](settled::SUMMED_ANEW), so only one minute's share of it counts
/// as used since.
fn shift(sums: &mut VecDeque<(Duration, u64)>, without: u64, with: u64) {
    let found = with.saturating_sub(without);
    let minutes = settled::SUMMED_ANEW.as_secs() / MINUTE.as_secs();
    let before = found - found / minutes;
    for (_, sum) in sums {
        *sum = (*sum + before).saturating_sub(without.saturating_sub(with));
    }
}

/// Adds a sum, and drops those before the last one that is over a minute old.
fn note(sums: &mut VecDeque<(Duration, u64)>, now: Duration, sum: u64) {
    sums.push_back((now, sum));
    let is_old = |at: Duration| now.saturating_sub(at) >= MINUTE;
    while sums.get(1).is_some_and(|(at, _)| is_old(*at)) {
        sums.pop_front();
    }
}

async fn bytes(app: &App, tenant: TenantId, ttl: Duration) -> Result<u64, Error> {
    let now = app.clock.monotonic();
    let known = || {
        let known = with(app, tenant, |known| known.bytes);
        known.filter(|(at, _)| now.saturating_sub(*at) < ttl)
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

/// The usage of the sends that were accepted within this time.
async fn used(
    app: &App,
    tenant: TenantId,
    from: Timestamp,
    until: Timestamp,
) -> Result<TenantUsage, Error> {
    let query = TenantUsageQuery::accepted(tenant, from, until);
    Ok(app.store.tenant_usage(query).await?)
}

/// The usage of the sends that were accepted since the start of a day. The caller must hold the
/// tenant's turn.
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
