//! Every operation of the API: what it needs, and what a bound key reaches by it. The table in
//! `docs/ACCESS.md` is made from this list.

use axum::http::Method;

use super::reach::Reach;
use super::scopes::Needs;

/// An operation of the API.
#[derive(Debug)]
pub(crate) struct Operation {
    method: &'static str,
    route: &'static str,
    pub(super) needs: Needs,
    pub(super) reach: Reach,
}

const fn row(method: &'static str, route: &'static str, needs: Needs, reach: Reach) -> Operation {
    Operation {
        method,
        route,
        needs,
        reach,
    }
}

/// All of them, by their paths.
#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    row("POST", "/a2a/{agent}", Needs::READ, Reach::Handler),
    row("GET", "/a2a/{agent}/.well-known/agent-card.json", Needs::READ, Reach::Handler),
    row("GET", "/a2a/{agent}/extendedAgentCard", Needs::READ, Reach::Handler),
    row("POST", "/a2a/{agent}/message:send", Needs::ASK, Reach::Handler),
    row("POST", "/a2a/{agent}/message:stream", Needs::ASK, Reach::Handler),
    row("GET", "/a2a/{agent}/tasks", Needs::READ, Reach::Handler),
    row("GET", "/a2a/{agent}/tasks/{task}", Needs::READ, Reach::Handler),
    row("POST", "/a2a/{agent}/tasks/{task}", Needs::READ, Reach::Handler),
    row("GET", "/a2a/{agent}/tasks/{task}/pushNotificationConfigs", Needs::READ, Reach::Handler),
    row("POST", "/a2a/{agent}/tasks/{task}/pushNotificationConfigs", Needs::READ, Reach::Handler),
    row("GET", "/a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}", Needs::READ, Reach::Handler),
    row("DELETE", "/a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}", Needs::READ, Reach::Handler),
    row("POST", "/ag-ui/{agent}", Needs::ASK, Reach::Handler),
    row("GET", "/mcp", Needs::READ, Reach::Handler),
    row("POST", "/mcp", Needs::READ, Reach::Handler),
    row("GET", "/v1/agents", Needs::READ, Reach::Handler),
    row("POST", "/v1/agents", Needs::PUBLISH, Reach::Handler),
    row("GET", "/v1/agents/{name}", Needs::READ, Reach::Agent),
    row("DELETE", "/v1/agents/{name}", Needs::PUBLISH, Reach::Agent),
    row("PUT", "/v1/agents/{name}/aliases/{alias}", Needs::PUBLISH, Reach::Agent),
    row("DELETE", "/v1/agents/{name}/aliases/{alias}", Needs::PUBLISH, Reach::Agent),
    row("GET", "/v1/agents/{name}/diff", Needs::READ, Reach::Agent),
    row("POST", "/v1/agents/{name}/pause", Needs::MANAGE, Reach::Closed),
    row("POST", "/v1/agents/{name}/resume", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/agents/{name}/versions", Needs::READ, Reach::Agent),
    row("GET", "/v1/agents/{name}/versions/{n}", Needs::READ, Reach::Agent),
    row("POST", "/v1/agents:diff", Needs::PUBLISH, Reach::Handler),
    row("POST", "/v1/blobs", Needs::USE, Reach::Free),
    row("GET", "/v1/blobs/{sha256}", Needs::READ, Reach::Free),
    row("GET", "/v1/calls", Needs::READ, Reach::Handler),
    row("POST", "/v1/calls:claim", Needs::ANSWER, Reach::Handler),
    row("POST", "/v1/calls:release", Needs::ANSWER, Reach::Handler),
    row("POST", "/v1/calls:renew", Needs::ANSWER, Reach::Handler),
    row("POST", "/v1/chat/completions", Needs::START, Reach::Handler),
    row("GET", "/v1/chat/completions/{id}", Needs::READ, Reach::Handler),
    row("POST", "/v1/conversations", Needs::START, Reach::Handler),
    row("GET", "/v1/conversations/{id}", Needs::READ, Reach::Handler),
    row("POST", "/v1/conversations/{id}", Needs::MANAGE, Reach::Handler),
    row("DELETE", "/v1/conversations/{id}", Needs::MANAGE, Reach::Handler),
    row("GET", "/v1/conversations/{id}/items", Needs::READ, Reach::Handler),
    row("POST", "/v1/conversations/{id}/items", Needs::START, Reach::Handler),
    row("GET", "/v1/conversations/{id}/items/{item_id}", Needs::READ, Reach::Handler),
    row("POST", "/v1/embeddings", Needs::START, Reach::Handler),
    row("GET", "/v1/info", Needs::READ, Reach::Free),
    row("GET", "/v1/keys", Needs::ADMIN, Reach::Closed),
    row("POST", "/v1/keys", Needs::ADMIN, Reach::Closed),
    row("GET", "/v1/keys/{id}", Needs::ADMIN, Reach::Closed),
    row("DELETE", "/v1/keys/{id}", Needs::ADMIN, Reach::Closed),
    row("POST", "/v1/keys/{id}/rotate", Needs::ADMIN, Reach::Closed),
    row("GET", "/v1/memories", Needs::READ, Reach::Handler),
    row("POST", "/v1/memories", Needs::MANAGE, Reach::Handler),
    row("DELETE", "/v1/memories", Needs::MANAGE, Reach::Handler),
    row("GET", "/v1/memories/erasures", Needs::READ, Reach::Handler),
    row("GET", "/v1/memories/{id}", Needs::READ, Reach::Memory),
    row("PATCH", "/v1/memories/{id}", Needs::MANAGE, Reach::Memory),
    row("DELETE", "/v1/memories/{id}", Needs::MANAGE, Reach::Memory),
    row("GET", "/v1/models", Needs::READ, Reach::Handler),
    row("GET", "/v1/models/{*id}", Needs::READ, Reach::Handler),
    row("GET", "/v1/pauses", Needs::READ, Reach::Closed),
    row("POST", "/v1/pools/{name}/pause", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("POST", "/v1/pools/{name}/resume", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("GET", "/v1/provider-keys", Needs::ADMIN, Reach::Closed),
    row("PUT", "/v1/provider-keys/{provider}", Needs::ADMIN, Reach::Closed),
    row("DELETE", "/v1/provider-keys/{provider}", Needs::ADMIN, Reach::Closed),
    row("POST", "/v1/providers/{name}/pause", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("POST", "/v1/providers/{name}/resume", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("GET", "/v1/queue", Needs::OPERATOR_READ, Reach::Closed),
    row("POST", "/v1/responses", Needs::START, Reach::Handler),
    row("GET", "/v1/responses/{id}", Needs::READ, Reach::Handler),
    row("DELETE", "/v1/responses/{id}", Needs::MANAGE, Reach::Handler),
    row("POST", "/v1/responses/{id}/cancel", Needs::USE, Reach::Handler),
    row("GET", "/v1/responses/{id}/input_items", Needs::READ, Reach::Handler),
    row("GET", "/v1/runs", Needs::READ, Reach::Handler),
    row("POST", "/v1/runs", Needs::START, Reach::Closed),
    row("GET", "/v1/runs/{id}", Needs::READ, Reach::Run),
    row("POST", "/v1/runs/{id}/cancel", Needs::USE, Reach::Run),
    row("GET", "/v1/runs/{id}/events", Needs::READ, Reach::Run),
    row("GET", "/v1/runs/{id}/export", Needs::READ, Reach::Run),
    row("GET", "/v1/runs/{id}/nodes", Needs::READ, Reach::Run),
    row("POST", "/v1/runs/{id}/nodes/{path}/amend", Needs::ANSWER, Reach::Closed),
    row("POST", "/v1/runs/{id}/nodes/{path}/cancel", Needs::USE, Reach::Closed),
    row("POST", "/v1/runs/{id}/nodes/{path}/retry", Needs::USE, Reach::Closed),
    row("POST", "/v1/runs/{id}/nodes/{path}/steer", Needs::USE, Reach::Closed),
    row("POST", "/v1/runs/{id}/pause", Needs::USE, Reach::Run),
    row("POST", "/v1/runs/{id}/resume", Needs::USE, Reach::Run),
    row("POST", "/v1/runs/{id}/retry", Needs::USE, Reach::Closed),
    row("POST", "/v1/runs:cancel", Needs::USE, Reach::Handler),
    row("POST", "/v1/runs:retry", Needs::USE, Reach::Closed),
    row("GET", "/v1/scaling/{pool}", Needs::OPERATOR_READ, Reach::Closed),
    row("GET", "/v1/secrets", Needs::ADMIN, Reach::Closed),
    row("GET", "/v1/secrets/{name}", Needs::ADMIN, Reach::Closed),
    row("PUT", "/v1/secrets/{name}", Needs::ADMIN, Reach::Closed),
    row("DELETE", "/v1/secrets/{name}", Needs::ADMIN, Reach::Closed),
    row("GET", "/v1/sends", Needs::READ, Reach::Handler),
    row("POST", "/v1/sends", Needs::START, Reach::Handler),
    row("GET", "/v1/sends/{id}", Needs::READ, Reach::Send),
    row("POST", "/v1/sends/{id}/cancel", Needs::USE, Reach::Send),
    row("GET", "/v1/sends/{id}/events", Needs::READ, Reach::Send),
    row("POST", "/v1/sends/{id}/retry", Needs::USE, Reach::Send),
    row("POST", "/v1/sends:batch", Needs::START, Reach::Handler),
    row("POST", "/v1/sends:cancel", Needs::USE, Reach::Handler),
    row("POST", "/v1/sends:resume", Needs::ANSWER, Reach::Handler),
    row("POST", "/v1/sends:retry", Needs::USE, Reach::Handler),
    row("GET", "/v1/sessions", Needs::READ, Reach::Handler),
    row("POST", "/v1/sessions", Needs::START, Reach::Handler),
    row("GET", "/v1/sessions/{id}", Needs::READ, Reach::Session),
    row("PATCH", "/v1/sessions/{id}", Needs::MANAGE, Reach::Session),
    row("DELETE", "/v1/sessions/{id}", Needs::MANAGE, Reach::Session),
    row("POST", "/v1/sessions/{id}/abort", Needs::ANSWER, Reach::Session),
    row("GET", "/v1/sessions/{id}/calls", Needs::READ, Reach::Session),
    row("GET", "/v1/sessions/{id}/calls/{call_id}/output", Needs::READ, Reach::Session),
    row("GET", "/v1/sessions/{id}/children", Needs::READ, Reach::Session),
    row("GET", "/v1/sessions/{id}/context", Needs::READ, Reach::Session),
    row("POST", "/v1/sessions/{id}/context", Needs::COPY, Reach::Session),
    row("GET", "/v1/sessions/{id}/events", Needs::READ, Reach::Session),
    row("GET", "/v1/sessions/{id}/export", Needs::READ, Reach::Session),
    row("POST", "/v1/sessions/{id}/fork", Needs::COPY, Reach::Session),
    row("GET", "/v1/sessions/{id}/inbox", Needs::READ, Reach::Session),
    row("GET", "/v1/sessions/{id}/lists", Needs::READ, Reach::Session),
    row("GET", "/v1/sessions/{id}/messages", Needs::READ, Reach::Session),
    row("POST", "/v1/sessions/{id}/prune", Needs::MANAGE, Reach::Session),
    row("POST", "/v1/sessions/{id}/resume", Needs::ANSWER, Reach::Session),
    row("POST", "/v1/sessions/{id}/sends", Needs::START, Reach::Session),
    row("POST", "/v1/sessions/{id}/tool-results", Needs::ANSWER, Reach::Session),
    row("GET", "/v1/sessions/{id}/usage", Needs::READ, Reach::Session),
    row("POST", "/v1/sessions:delete", Needs::MANAGE, Reach::Handler),
    row("POST", "/v1/sessions:import", Needs::IMPORT, Reach::Handler),
    row("GET", "/v1/skills", Needs::READ, Reach::Closed),
    row("POST", "/v1/skills", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/skills/{name}", Needs::READ, Reach::Closed),
    row("DELETE", "/v1/skills/{name}", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/skills/{name}/files/{*path}", Needs::READ, Reach::Closed),
    row("GET", "/v1/tenants", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("POST", "/v1/tenants", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("GET", "/v1/tenants/{id}", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("PATCH", "/v1/tenants/{id}", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("DELETE", "/v1/tenants/{id}", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("POST", "/v1/tenants/{id}/erase", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("GET", "/v1/tenants/{id}/erasure", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("POST", "/v1/tenants/{id}/pause", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("POST", "/v1/tenants/{id}/resume", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("GET", "/v1/tenants/{id}/usage", Needs::OPERATOR_ADMIN, Reach::Closed),
    row("GET", "/v1/timers", Needs::READ, Reach::Handler),
    row("POST", "/v1/timers", Needs::START.by_key(), Reach::Handler),
    row("GET", "/v1/timers/{id}", Needs::READ, Reach::Timer),
    row("DELETE", "/v1/timers/{id}", Needs::USE.by_key(), Reach::Timer),
    row("GET", "/v1/timers/{id}/occurrences", Needs::READ, Reach::Timer),
    row("PATCH", "/v1/timers/{id}", Needs::USE.by_key(), Reach::Timer),
    row("POST", "/v1/timers/{id}/fire", Needs::USE.by_key(), Reach::Timer),
    row("POST", "/v1/timers/{id}/pause", Needs::USE.by_key(), Reach::Timer),
    row("POST", "/v1/timers/{id}/resume", Needs::USE.by_key(), Reach::Timer),
    row("POST", "/v1/timers:batch", Needs::START.by_key(), Reach::Handler),
    row("POST", "/v1/tokens", Needs::READ.by_key(), Reach::Handler),
    row("GET", "/v1/tools", Needs::READ, Reach::Free),
    row("POST", "/v1/tools/{name}/pause", Needs::MANAGE, Reach::Closed),
    row("POST", "/v1/tools/{name}/resume", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/webhooks", Needs::READ, Reach::Closed),
    row("POST", "/v1/webhooks", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/webhooks/{id}", Needs::READ, Reach::Closed),
    row("PATCH", "/v1/webhooks/{id}", Needs::MANAGE, Reach::Closed),
    row("DELETE", "/v1/webhooks/{id}", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/webhooks/{id}/deliveries", Needs::READ, Reach::Closed),
    row("POST", "/v1/webhooks/{id}/deliveries/{delivery_id}/redeliver", Needs::MANAGE, Reach::Closed),
    row("POST", "/v1/webhooks/{id}/deliveries:redeliver", Needs::MANAGE, Reach::Closed),
    row("POST", "/v1/webhooks/{id}/rotate", Needs::MANAGE, Reach::Closed),
    row("GET", "/v1/workers", Needs::OPERATOR_READ, Reach::Closed),
    row("GET", "/v1/workflows/schema", Needs::READ, Reach::Free),
    row("POST", "/v1/workflows:validate", Needs::USE, Reach::Free),
];

impl Operation {
    /// The operation with this method at this route.
    pub(super) fn of(method: &Method, route: &str) -> Option<&'static Self> {
        let method = match method.as_str() {
            "HEAD" => "GET",
            method => method,
        };
        OPERATIONS
            .iter()
            .find(|operation| operation.route == route && operation.method == method)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mainspring_shared::tenant::{Right, Scope};

    use super::super::scopes::Who;
    use super::*;

    #[test]
    fn every_operation_is_listed_once() {
        let listed = OPERATIONS
            .iter()
            .map(|row| (row.method.to_owned(), row.route.to_owned()));
        let listed: Vec<_> = listed.collect();
        let there = crate::router::operations().into_iter();
        let there: BTreeSet<_> = there
            .map(|(method, path)| (method.to_string(), path))
            .collect();
        let missing: Vec<_> = there.iter().filter(|it| !listed.contains(it)).collect();
        assert!(missing.is_empty(), "not listed: {missing:?}");
        assert_eq!(
            listed.len(),
            there.len(),
            "an operation that is not there is listed"
        );
    }

    /// The scopes that include a right, as the table has them.
    fn scopes(right: Right) -> String {
        let names = right
            .scopes()
            .iter()
            .map(|scope| format!("`{}`", scope.as_str()));
        names.collect::<Vec<_>>().join(" or ")
    }

    fn table() -> String {
        let mut lines = vec![
            "| operation | scopes | bound keys |".to_owned(),
            "|---|---|---|".to_owned(),
        ];
        for Operation {
            method,
            route,
            needs,
            reach,
        } in OPERATIONS
        {
            let rights = needs.rights.iter().map(|right| scopes(*right));
            let mut needed = rights.collect::<Vec<_>>().join(", and ");
            if needs.may_define {
                needed += " (*)";
            }
            needed += match needs.who {
                Who::Anyone => "",
                Who::Keys => " (key)",
                Who::Operators => ", and an operator",
            };
            let reach = match reach {
                Reach::Free => "yes",
                Reach::Session => "of its sessions",
                Reach::Send => "of its sessions' sends",
                Reach::Timer => "of its sessions' timers",
                Reach::Run => "of its sessions' runs",
                Reach::Agent => "of its agents",
                Reach::Memory => "in its namespace",
                Reach::Handler => "what is inside",
                Reach::Closed => "no",
            };
            let route = route.replace("{*", "{");
            lines.push(format!("| `{method} {route}` | {needed} | {reach} |"));
        }
        lines.join("\n") + "\n"
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ACCESS.md");
        let document = std::fs::read_to_string(path).expect("docs/ACCESS.md can be read");
        let (before, _) = document.split_once("| operation |").expect("has the table");
        let made = format!("{before}{}", table());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &made).expect("docs/ACCESS.md can be written");
        }
        let committed = std::fs::read_to_string(path).expect("docs/ACCESS.md can be read");
        assert!(
            committed == made,
            "docs/ACCESS.md is out of date: UPDATE_DOCS=1 writes it"
        );
    }

    #[test]
    fn every_scope_is_explained() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TENANTS.md");
        let document = std::fs::read_to_string(path).expect("docs/TENANTS.md can be read");
        for scope in Scope::ALL {
            let row = format!("| `{}` |", scope.as_str());
            assert!(document.contains(&row), "{row}");
        }
    }
}
