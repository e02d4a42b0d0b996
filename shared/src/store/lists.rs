//! Parameters of lists that agents keep.

use super::Result;
use crate::id::{SessionKey, TenantId};
use crate::list::{Bounds, Change, List, ListName, Refusal, Written};
use async_trait::async_trait;

/// Agents' lists.
#[async_trait]
pub trait Lists: Send + Sync {
    /// Changes a list as [`apply`](crate::list::apply) says, once per call id: a repeat gets the
    /// first call's outcome, with the list as it is by then.
    async fn write_list(&self, item: WriteList) -> Result<ListOutcome>;

    /// Reads a list; empty if nothing was written to it.
    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List>;
}

/// The methods of [`Lists`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! lists_methods {
    ($apply:ident) => {
        $apply! { Lists:
            write write_list(item: $crate::store::WriteList) -> $crate::store::ListOutcome;
            read read_list(
                tenant: $crate::id::TenantId,
                name: $crate::list::ListName
            ) -> $crate::list::List;
        }
    };
}

/// A change of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteList {
    /// The list.
    pub name: ListName,
    /// The session that it is written for and deleted with; if it does not exist, nothing is written.
    pub session: SessionKey,
    /// The call that changes it: a repeat changes nothing.
    pub call_id: String,
    /// The change.
    pub change: Change,
    /// The size limits of the list.
    pub bounds: Bounds,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListOutcome {
    /// It was made, now or earlier by the same call.
    Written {
        /// What it did.
        written: Written,
        /// The list as it is now.
        list: List,
    },
    /// It cannot be applied to the list as it is.
    Refused(Refusal),
    /// The session is unknown or deleted.
    Gone,
}
