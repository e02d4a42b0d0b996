//! What would delay a call besides its own session: pauses, and the gate of its provider.

use mainspring_shared::error::Coded as _;
use mainspring_shared::id::TenantId;
use mainspring_shared::pause::PauseKey;
use mainspring_shared::session::preview::PreviewLimit;
use mainspring_shared::store::StartedSend;

use crate::Kernel;
use crate::llm::{Error, Hold, MONEY_IS_RESERVED, Request, Resolved};
use crate::tool::Offers;

/// Maximum number of tools that a limit names.
const TOOLS_NAMED: usize = 5;

/// Pauses of the send's tenant, agent, pool, provider and tools, as far as this worker knows them.
pub(super) fn pauses(
    kernel: &Kernel,
    send: &StartedSend,
    model: &Resolved,
    offers: &Offers,
) -> Vec<PreviewLimit> {
    let set = kernel.pauses.now();
    if set.is_empty() {
        return Vec::new();
    }
    let tenant = send.record.key.tenant;
    let limit = |key: &PauseKey, detail: String| PreviewLimit {
        code: format!("pause.{}", key.kind.as_str()),
        detail,
    };
    let mut limits = Vec::new();
    if let Some(key) = set.of_send(tenant, send.agent.name.as_deref()) {
        let detail = format!(
            "the {} {} is paused: its sends wait",
            key.kind.as_str(),
            key.name
        );
        limits.push(limit(&key, detail));
    }
    let pool = send.agent.pool();
    if set.holds_pool(pool) {
        limits.push(PreviewLimit {
            code: "pause.pool".to_owned(),
            detail: format!("the pool {pool} is paused: its workers take no sends"),
        });
    }
    if let Some(key) = set.of_provider(&model.provider) {
        let others = if send.agent.fallback.is_empty() {
            ""
        } else {
            ", unless one of the agent's fallback models is available"
        };
        let detail = format!(
            "the provider {} is paused: the call waits{others}",
            key.name
        );
        limits.push(limit(&key, detail));
    }
    let tools = offers.list().iter().map(|offer| offer.spec.name.as_str());
    let held: Vec<_> = tools.filter_map(|name| set.of_tool(tenant, name)).collect();
    if let Some(key) = held.first() {
        let names = held.iter().take(TOOLS_NAMED).map(|key| key.name.as_str());
        let more = held.len().saturating_sub(TOOLS_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let names = names.collect::<Vec<_>>().join(", ");
        limits.push(limit(
            key,
            format!("calls of paused tools wait: {names}{more}"),
        ));
    }
    limits
}

/// The state of the provider's gate in this worker: its rate limits, and a pause after failures.
pub(super) fn gate(
    kernel: &Kernel,
    (tenant, model): (TenantId, &Resolved),
    request: &Request,
) -> Option<PreviewLimit> {
    let keys = kernel.parts.providers.tenant_keys();
    let client = keys.known(tenant, &model.provider, &model.client);
    let (why, wait) = client.held(request)?;
    let what = match why {
        Hold::Rate => "its rate limit is reached",
        Hold::Outage => "it was down a moment ago",
        // No transport returns this.
        Hold::Money => MONEY_IS_RESERVED,
    };
    let detail = format!(
        "this worker holds calls to the provider {} for {wait:?}: {what}",
        model.provider
    );
    Some(PreviewLimit {
        code: Error::Held { why, wait }.code().as_str().to_owned(),
        detail,
    })
}
