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

    /// The column of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Value> {
        let index = self.columns.iter().position(|column| column == name)?;
        self.values.get(index)
    }

    pub(crate) fn at(&self, index: usize) -> Option<&Value> {
        self.values.get(index)
    }
}
