//! Parameters of lists that agents keep.

use super::Result;
use crate::id::{SessionKey, TenantId};
use crate::list::{Bounds, Change, List, ListName, Refusal, Written};
use async_trait::async_trait;

/// Agents' lists.
#[async_trait]
pub trait Lists: Send + Sync {
    /// Changes a list as [`apply`](crate::list::apply) says, once for each call id: a repeat answers
    /// as the first time did, with the list as it is by then.
    async fn write_list(&self, item: WriteList) -> Result<ListOutcome>;

    /// A list; an empty one when nothing was written to it.
    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List>;
}

/// The methods of [`Lists`] as [`store_methods`](crate::store_methods) hands them over.
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
    /// The session that it is written for and goes with: without it nothing is written.
    pub session: SessionKey,
    /// The call that changes it: a repeat changes nothing.
    pub call_id: String,
    /// The change.
    pub change: Change,
    /// How much the list holds.
    pub bounds: Bounds,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListOutcome {
    /// It was made, now or by the same call before.
    Written {
        /// What it did.
        written: Written,
        /// The list as it is now.
        list: List,
    },
    /// It does not go together with the list as it is.
    Refused(Refusal),
    /// The session is unknown or deleted.
    Gone,
}
