//! Which worker pools a tenant may use.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::TenantId;
use crate::stored::Extra;

/// Worker pools that a tenant may name, and its own ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Pools {
    /// Pools that its agents, tools and runs may name besides its own; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<BTreeSet<String>>,
    /// Its own pools: tenants that do not list them here may not name them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub own: BTreeSet<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl Pools {
    /// The form to store; `None` if there are no restrictions.
    pub fn stored(&self) -> Option<&Self> {
        (*self != Self::default()).then_some(self)
    }

    /// Whether the tenant may name only certain pools, apart from the ban on other tenants' own pools.
    pub const fn is_bounded(&self) -> bool {
        self.allowed.is_some()
    }

    /// Why a tenant may not name a pool, given the pools of all tenants that have any; `None` if it may.
    pub fn fault(all: &[(TenantId, Self)], tenant: TenantId, pool: &str) -> Option<String> {
        let mine = all.iter().find(|(of, _)| *of == tenant);
        let mine = mine.map(|(_, pools)| pools);
        if mine.is_some_and(|mine| mine.own.contains(pool)) {
            return None;
        }
        if let Some((mine, allowed)) = mine.and_then(|it| Some((it, it.allowed.as_ref()?)))
            && !allowed.contains(pool)
        {
            let names: Vec<&str> = allowed.union(&mine.own).map(String::as_str).collect();
            let names = names.join(", ");
            return Some(format!(
                "must be one of the tenant's pools ({names}), not {pool}"
            ));
        }
        let is_owned = all.iter().any(|(_, pools)| pools.own.contains(pool));
        is_owned.then(|| format!("must not be {pool}, which belongs to another tenant"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_tenant_names_what_it_may_and_nobody_what_another_one_owns() {
        let pools = |allowed: Option<&[&str]>, own: &[&str]| Pools {
            allowed: allowed.map(names),
            own: names(own),
            ..Pools::default()
        };
        let all = [
            (TenantId(2), pools(Some(&["default", "gpu"]), &["blue"])),
            (TenantId(3), pools(None, &["red", "both"])),
            (TenantId(4), pools(Some(&[]), &["both"])),
            (TenantId(5), pools(Some(&["red"]), &[])),
        ];
        let may = |tenant| -> Vec<&str> {
            let every = ["default", "gpu", "other", "blue", "red", "both"];
            let fault = |pool: &&str| Pools::fault(&all, TenantId(tenant), pool).is_none();
            every.into_iter().filter(fault).collect()
        };
        assert_eq!(may(1), ["default", "gpu", "other"]);
        assert_eq!(may(2), ["default", "gpu", "blue"]);
        assert_eq!(may(3), ["default", "gpu", "other", "red", "both"]);
        assert_eq!(may(4), ["both"]);
        assert_eq!(may(5), [""; 0], "what it may name is another tenant's own");
        let fault = Pools::fault(&all, TenantId(2), "red");
        let expected = "must be one of the tenant's pools (blue, default, gpu), not red";
        assert_eq!(fault.as_deref(), Some(expected));
    }

    #[test]
    fn nothing_is_stored_of_a_tenant_that_names_none() {
        assert_eq!(Pools::default().stored(), None);
        let none: Pools = serde_json::from_str("{}").expect("reads");
        assert_eq!(none, Pools::default());
        let only: Pools = serde_json::from_str(r#"{"allowed":[]}"#).expect("reads");
        assert!(only.stored().is_some() && only.is_bounded());
    }
}
