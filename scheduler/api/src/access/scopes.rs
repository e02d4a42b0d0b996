//! The scope that each request needs. This is a function of its method and route, so that no
//! endpoint can forget to check.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::tenant::Scope;

use super::Caller;

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The scope that its key must have.
    pub(crate) scope: Scope,
    /// Whether only an operator of the system may make it.
    pub(crate) operator: bool,
    /// Whether its path names a tenant. Everyone except operators is told that no such tenant
    /// exists, even for their own, so that the response does not depend on which ids exist.
    pub(crate) names_tenant: bool,
}

/// Routes that show or change the system as a whole.
const SYSTEM: [&str; 6] = [
    "/v1/tenants",
    "/v1/workers",
    "/v1/queue",
    "/v1/scaling",
    "/v1/providers",
    "/v1/pools",
];

/// Routes for administrators only.
const ADMINS: [&str; 5] = [
    "/v1/tenants",
    "/v1/keys",
    "/v1/provider-keys",
    "/v1/providers",
    "/v1/pools",
];

/// Routes that answer what waits for someone.
const ANSWERS: [&str; 3] = [
    "/v1/sessions/{id}/tool-results",
    "/v1/sessions/{id}/resume",
    "/v1/sessions/{id}/abort",
];

/// Routes for users of agents to create and cancel work. All other changes are for those who manage
/// the agents.
const USES: [&str; 6] = [
    "/v1/sends",
    "/v1/runs",
    "/v1/timers",
    "/v1/blobs",
    "/v1/workflows",
    "/v1/sessions/{id}/context",
];

/// Routes for using sessions.
const SESSION_USES: [&str; 8] = [
    "/v1/responses",
    "/v1/responses/{id}/cancel",
    "/v1/chat/completions",
    "/v1/conversations",
    "/v1/sessions",
    "/v1/sessions:import",
    "/v1/sessions/{id}/sends",
    "/v1/sessions/{id}/fork",
];

impl Needs {
    /// What acting for another tenant requires.
    pub(crate) const OPERATOR: Self = Self {
        scope: Scope::Admin,
        operator: true,
        names_tenant: false,
    };

    /// What a request with this method to this route needs.
    pub(crate) fn of(method: &Method, route: &str) -> Self {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let below = |prefix: &str| {
            route.strip_prefix(prefix).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || rest.starts_with(':')
            })
        };
        let operator = SYSTEM.into_iter().any(below);
        let scope = if ADMINS.into_iter().any(below) {
            Scope::Admin
        } else if reads {
            Scope::Read
        } else if ANSWERS.contains(&route) {
            Scope::Answer
        } else if SESSION_USES.contains(&route) || USES.into_iter().any(below) {
            Scope::Send
        } else {
            Scope::Manage
        };
        Self {
            scope,
            operator,
            names_tenant: route.starts_with("/v1/tenants/{id}"),
        }
    }

    /// Checks that the caller has it.
    pub(crate) fn check(self, caller: &Caller) -> Result<(), Error> {
        if self.names_tenant && !caller.operates {
            return Err(super::no_tenant());
        }
        if !caller.scopes.allow(self.scope) {
            return Err(Error::new(
                Code::AuthForbidden,
                format!("the API key lacks the scope {}", self.scope.as_str()),
            ));
        }
        if self.operator && !caller.operates {
            return Err(Error::new(
                Code::AuthForbidden,
                "only the root key and keys of the default tenant can perform system-wide \
                 operations",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_operation_needs() {
        let operations = crate::router::operations().into_iter();
        let lines = operations.map(|(method, path)| {
            let Needs {
                scope, operator, ..
            } = Needs::of(&method, &path);
            let whose = if operator { " operator" } else { "" };
            format!("{method} {path}: {}{whose}", scope.as_str())
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
