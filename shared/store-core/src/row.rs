//! Rows as the domain steps read them.

use std::sync::Arc;

use crate::value::Value;

/// A row that a statement returned.
#[derive(Debug, Clone)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// A row of these values under the names of their columns.
    #[must_use]
    pub fn new(columns: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    /// The column of this name and its index. The search begins at `from`.
    pub(crate) fn find(&self, name: &str, from: usize) -> Option<(usize, &Value)> {
        let named = |index: &usize| self.columns.get(*index).is_some_and(|it| it == name);
        let count = self.columns.len();
        let index = (from..count).chain(0..from.min(count)).find(named)?;
        Some((index, self.values.get(index)?))
    }

    /// The value of a row with one column.
    pub(crate) fn only(&self) -> Option<&Value> {
        match &self.values[..] {
            [value] => Some(value),
            _ => None,
        }
    }
}
