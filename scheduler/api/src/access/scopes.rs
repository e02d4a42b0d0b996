//! Which scope each request needs: a function of its method and its route, so that no endpoint can
//! forget to ask.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::tenant::Scope;

use super::Caller;

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// A scope of its key.
    pub(crate) scope: Scope,
    /// Whether only the operator of the system may do it.
    pub(crate) operator: bool,
    /// Whether it names a tenant. To whoever does not operate the system there is none, its own included:
    /// the answer does not depend on which ids exist.
    pub(crate) names_tenant: bool,
}

/// What shows or changes the system as a whole.
const SYSTEM: [&str; 6] = [
    "/v1/tenants",
    "/v1/workers",
    "/v1/queue",
    "/v1/scaling",
    "/v1/providers",
    "/v1/pools",
];

/// What only administrators see and change.
const ADMINS: [&str; 5] = [
    "/v1/tenants",
    "/v1/keys",
    "/v1/provider-keys",
    "/v1/providers",
    "/v1/pools",
];

/// What settles what waits for someone.
const ANSWERS: [&str; 3] = [
    "/v1/sessions/{id}/tool-results",
    "/v1/sessions/{id}/resume",
    "/v1/sessions/{id}/abort",
];

/// What is created and cancelled by those who use agents; everything else that changes something
/// is for those who look after them.
const USES: [&str; 6] = [
    "/v1/sends",
    "/v1/runs",
    "/v1/timers",
    "/v1/blobs",
    "/v1/workflows",
    "/v1/sessions/{id}/context",
];

/// Requests to sessions that use them.
const SESSION_USES: [&str; 4] = [
    "/v1/sessions",
    "/v1/sessions:import",
    "/v1/sessions/{id}/sends",
    "/v1/sessions/{id}/fork",
];

impl Needs {
    /// What acting for another tenant takes.
    pub(crate) const OPERATOR: Self = Self {
        scope: Scope::Admin,
        operator: true,
        names_tenant: false,
    };

    /// What a request to a route needs.
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

    /// Whether the caller has it.
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
