//! Checks the ledger entries of tenants and their agents against their limits on money and tokens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::agent::AgentName;
use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::tenant::{
    Amount, LedgerSpent, Limits, MoneySpan, Usd, money_day, money_day_begin, money_minute,
    money_minute_begin, money_month,
};
use mainspring_shared::time::Timestamp;

use super::{CACHE_TTL, MINUTE, of_usage};
use crate::app::App;
use crate::error::{Error, Quota};

/// The owner of an account: a tenant, or one of its agents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) tenant: TenantId,
    pub(super) agent: Option<AgentName>,
}

/// The ledger entries of accounts with limits, as last read.
#[derive(Debug, Default)]
pub(super) struct KnownLedger(Mutex<HashMap<Owner, Entered>>);

/// The entry of one account.
#[derive(Debug, Clone, Default)]
struct Entered {
    /// The minute, when it was read, and the amounts of that minute, its day and its month, if any.
    said: Option<(i64, Duration, Option<LedgerSpent>)>,
    /// Held while reading, so that concurrent requests share one read.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Why the cost or tokens of a minute, a day or a month forbid more sends; none if they do not.
pub(super) async fn refusal(
    app: &App,
    owner: &Owner,
    limits: &Limits,
) -> Result<Option<Error>, Error> {
    let spans = [
        (MoneySpan::Minute, limits.usd_per_minute, None),
        (MoneySpan::Day, limits.usd_per_day, limits.tokens_per_day),
        (
            MoneySpan::Month,
            limits.usd_per_month,
            limits.tokens_per_month,
        ),
    ];
    for (span, usd, tokens) in spans {
        if usd.is_none() && tokens.is_none() {
            continue;
        }
        let spent = match (entered(app, owner).await?, &owner.agent) {
            (Some(entered), _) => entered.of(span),
            (None, None) => of_usage(app, owner.tenant, span).await?,
            // An agent's account starts out empty.
            (None, Some(_)) => Amount::default(),
        };
        if let Some(max) = usd
            && Usd::of_nano(spent.nano_usd) >= max
        {
            let window = Window::of(span, app.database_time().await);
            return Ok(Some(no_money(max, window, owner.agent.as_ref())));
        }
        if let Some(max) = tokens
            && spent.tokens >= max
        {
            let window = Window::of(span, app.database_time().await);
            return Ok(Some(no_tokens(max, window, owner.agent.as_ref())));
        }
    }
    Ok(None)
}

/// The ledger's amounts for this minute, day and month; none if nothing was reserved in them.
async fn entered(app: &App, owner: &Owner) -> Result<Option<LedgerSpent>, Error> {
    let minute = money_minute(app.database_time().await);
    let now = app.clock.monotonic();
    let known = || {
        let said = with(app, owner, |entered| entered.said);
        said.filter(|(of, at, _)| *of == minute && now.saturating_sub(*at) < CACHE_TTL)
    };
    if let Some((_, _, spent)) = known() {
        return Ok(spent);
    }
    let turn = with(app, owner, |entered| Arc::clone(&entered.turn));
    let _turn = turn.lock_owned().await;
    if let Some((_, _, spent)) = known() {
        return Ok(spent);
    }
    let agent = owner.agent.clone();
    let spent = app.store.spent_money(owner.tenant, agent).await?;
    with(app, owner, |entered| {
        entered.said = Some((minute, now, spent));
    });
    Ok(spent)
}

fn with<T>(app: &App, owner: &Owner, what: impl FnOnce(&mut Entered) -> T) -> T {
    let ledger = &app.known.spending.ledger.0;
    let mut known = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    match known.get_mut(owner) {
        Some(entered) => what(entered),
        None => what(known.entry(owner.clone()).or_default()),
    }
}

/// The window of a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) span: MoneySpan,
    pub(super) length: Duration,
    /// How much of it is left.
    pub(super) left: Duration,
}

impl Window {
    fn of(span: MoneySpan, now: Timestamp) -> Self {
        let (from, until) = match span {
            MoneySpan::Minute => {
                let begin = money_minute_begin(money_minute(now));
                (begin, begin.after(MINUTE))
            }
            MoneySpan::Day => {
                let day = money_day(now);
                (money_day_begin(day), money_day_begin(day + 1))
            }
            MoneySpan::Month => (now.month(), next_month(now)),
        };
        Self {
            span,
            length: until.since(from),
            left: until.since(now),
        }
    }
}

fn next_month(now: Timestamp) -> Timestamp {
    /// Longer than any month, shorter than any two.
    const DAYS: i64 = 32;
    money_day_begin(money_month(now) + DAYS).month()
}

/// The owner of a limit, as a phrase.
fn whose(agent: Option<&AgentName>) -> String {
    agent.map_or_else(
        || "the tenant".to_owned(),
        |agent| format!("the agent {agent}"),
    )
}

fn no_money(max: Usd, window: Window, agent: Option<&AgentName>) -> Error {
    let span = window.span.as_str();
    let detail = format!(
        "{} has spent the {} US dollars that it may spend in a {span}",
        whose(agent),
        max.dollars()
    );
    let name = match (window.span, agent.is_some()) {
        (MoneySpan::Minute, false) => "usd-minute",
        (MoneySpan::Day, false) => "usd-day",
        (MoneySpan::Month, false) => "usd-month",
        (MoneySpan::Minute, true) => "agent-usd-minute",
        (MoneySpan::Day, true) => "agent-usd-day",
        (MoneySpan::Month, true) => "agent-usd-month",
    };
    let quota = Quota {
        name,
        unit: Some("micro-usd"),
        quota: max.0,
        window: Some(window.length),
        left: 0,
        reset: window.left,
    };
    Error::new(Code::LimitMoney, detail)
        .after(window.left)
        .with_quota(quota)
}

pub(super) fn no_tokens(max: u64, window: Window, agent: Option<&AgentName>) -> Error {
    let span = window.span.as_str();
    let whose = whose(agent);
    let detail = format!("{whose}'s model calls may take {max} tokens in a {span}");
    let name = match (window.span, agent.is_some()) {
        (MoneySpan::Minute, false) => "tokens",
        (MoneySpan::Day, false) => "tokens-day",
        (MoneySpan::Month, false) => "tokens-month",
        (MoneySpan::Minute, true) => "agent-tokens",
        (MoneySpan::Day, true) => "agent-tokens-day",
        (MoneySpan::Month, true) => "agent-tokens-month",
    };
    let quota = Quota {
        name,
        unit: Some("tokens"),
        quota: max,
        window: Some(window.length),
        left: 0,
        reset: window.left,
    };
    Error::new(Code::LimitTokens, detail)
        .after(window.left)
        .with_quota(quota)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_ends_where_the_next_one_begins() {
        let time = |text: &str| {
            let time: Timestamp = serde_json::from_value(text.into()).expect("a time");
            time
        };
        let july = time("2026-07-31T23:59:59.999Z");
        assert_eq!(july.month(), time("2026-07-01T00:00:00Z"));
        assert_eq!(next_month(july), time("2026-08-01T00:00:00Z"));
        let december = time("2026-12-01T00:00:00Z");
        assert_eq!(next_month(december), time("2027-01-01T00:00:00Z"));
    }
}
