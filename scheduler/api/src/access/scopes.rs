//! What each request needs its key to allow. This is a function of its method and route, so that no
//! endpoint can forget to check.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::tenant::Right;

use super::Caller;
use super::operations::Operation;

/// Who may make a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Everyone.
    Anyone,
    /// Everyone but a token for one session.
    Keys,
    /// Operators of the system.
    Operators,
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// What its key must allow.
    pub(super) rights: &'static [Right],
    /// Whether its body may define an agent, or change one, for which the key must allow that, too.
    pub(super) may_define: bool,
    /// Who may make it, if they have the rights.
    pub(super) who: Who,
    /// Whether its path names a tenant. Everyone except operators is told that no such tenant
    /// exists, even for their own, so that the response does not depend on which ids exist.
    names_tenant: bool,
}

impl Needs {
    pub(super) const READ: Self = Self::all_of(&[Right::Read]);
    pub(super) const USE: Self = Self::all_of(&[Right::Use]);
    /// Starts work, with published agents or with others.
    pub(super) const START: Self = Self {
        may_define: true,
        ..Self::USE
    };
    /// Starts work that shows a transcript to whoever starts it, or to an agent of theirs.
    pub(super) const COPY: Self = Self {
        rights: &[Right::Use, Right::Read],
        ..Self::START
    };
    /// Starts work with a published agent, and shows what becomes of it.
    pub(super) const ASK: Self = Self::all_of(&[Right::Use, Right::Read]);
    /// Brings an agent along.
    pub(super) const IMPORT: Self = Self::all_of(&[Right::Use, Right::Define]);
    pub(super) const PUBLISH: Self = Self::all_of(&[Right::Publish]);
    pub(super) const ANSWER: Self = Self::all_of(&[Right::Answer]);
    pub(super) const MANAGE: Self = Self::all_of(&[Right::Manage]);
    pub(super) const ADMIN: Self = Self::all_of(&[Right::Administer]);
    pub(super) const OPERATOR_READ: Self = Self {
        who: Who::Operators,
        ..Self::READ
    };
    /// What changing the system requires, and acting for another tenant.
    pub(crate) const OPERATOR_ADMIN: Self = Self {
        who: Who::Operators,
        ..Self::ADMIN
    };

    const fn all_of(rights: &'static [Right]) -> Self {
        Self {
            rights,
            may_define: false,
            who: Who::Anyone,
            names_tenant: false,
        }
    }

    /// The same, for what outlives a token that was made with a key.
    pub(super) const fn by_key(self) -> Self {
        Self {
            who: Who::Keys,
            ..self
        }
    }

    /// What a request with this method to this route needs.
    pub(crate) fn of(method: &Method, route: &str) -> Self {
        let listed = Operation::of(method, route).map(|operation| operation.needs);
        // Nothing is served at what is not listed, so this only decides who is told so.
        let otherwise = match *method {
            Method::GET | Method::HEAD => Self::READ,
            _ => Self::MANAGE,
        };
        Self {
            names_tenant: route.starts_with("/v1/tenants/{id}"),
            ..listed.unwrap_or(otherwise)
        }
    }

    /// Whether the request changes who may do what, or concerns the whole system.
    pub(super) fn administers(self) -> bool {
        self.who == Who::Operators || self.rights.contains(&Right::Administer)
    }

    /// Checks that the caller has it.
    pub(crate) fn check(self, caller: &Caller) -> Result<(), Error> {
        if self.names_tenant && !caller.operates {
            return Err(super::no_tenant());
        }
        for right in self.rights {
            caller.require(*right)?;
        }
        if self.who == Who::Keys && caller.granted.is_some() {
            return Err(Error::new(
                Code::AuthForbidden,
                "a token for one session cannot do what would outlive it: use an API key",
            ));
        }
        if self.who == Who::Operators && !caller.operates {
            return Err(Error::new(
                Code::AuthForbidden,
                "only the root key and operators' keys, which have the scope operate, can \
                 perform system-wide operations",
            ));
        }
        Ok(())
    }
}
