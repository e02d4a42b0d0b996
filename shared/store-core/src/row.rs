//! Rows as the domain code reads them.

use std::sync::Arc;

use crate::value::Value;

/// The names of a statement's columns, shared by its rows.
#[derive(Debug, Default)]
pub struct Columns(Option<Arc<[String]>>);

impl Columns {
    /// Makes the next row. `names` is called for the first row only.
    ///
    /// # Errors
    ///
    /// The first error among the values.
    pub fn row<'n, E, N: Iterator<Item = &'n str>>(
        &mut self,
        names: impl FnOnce() -> N,
        values: impl Iterator<Item = Result<Value, E>>,
    ) -> Result<Row, E> {
        let columns = self
            .0
            .get_or_insert_with(|| names().map(str::to_owned).collect());
        Ok(Row {
            columns: columns.clone(),
            values: values.collect::<Result<_, E>>()?,
        })
    }
}

/// A row that a statement returned.
#[derive(Debug, Clone)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// The column with this name, and its index. The search begins at `from`.
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
