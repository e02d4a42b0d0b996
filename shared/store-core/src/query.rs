//! Statements with their arguments.

use std::marker::PhantomData;

use crate::db::{Conn, Statement, StatementResult, Visit};
use crate::fault::{Fault, Result};
use crate::row::Row;
use crate::rows::Cells;
use crate::value::{FromValue, Value};

/// A statement with the arguments bound so far.
#[derive(Debug)]
pub(crate) struct Query {
    statement: &'static Statement,
    arguments: Vec<Value>,
}

/// A statement that has no arguments yet.
pub(crate) fn statement(of: &'static Statement) -> Query {
    Query {
        statement: of,
        arguments: Vec::new(),
    }
}

impl Query {
    /// Binds the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.arguments.push(value.into());
        self
    }

    pub(crate) async fn execute(self, conn: &mut Conn) -> Result<StatementResult> {
        conn.run(self.statement, self.arguments).await
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn) -> Result<Vec<Row>> {
        Ok(self.execute(conn).await?.rows)
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn) -> Result<Option<Row>> {
        Ok(self.execute(conn).await?.rows.into_iter().next())
    }

    pub(crate) async fn fetch_one(self, conn: &mut Conn) -> Result<Row> {
        self.fetch_optional(conn).await?.ok_or(Fault::NoRow)
    }

    /// Passes the rows to `visit`, one by one, until it returns false.
    pub(crate) async fn scan(self, conn: &mut Conn, visit: Visit<'_>) -> Result<()> {
        conn.scan(self.statement, self.arguments, visit).await
    }
}

/// Rows read as tuples of named columns.
pub(crate) trait FromRow: Sized {
    /// The names of the columns, in the tuple's order.
    type Names: Copy;

    fn from_row(row: &Row, names: Self::Names) -> Result<Self>;
}

macro_rules! tuples {
    ($($count:literal ($($name:ident $index:tt),+)),* $(,)?) => {$(
        impl<$($name: for<'v> FromValue<'v>),+> FromRow for ($($name,)+) {
            type Names = [&'static str; $count];

            fn from_row(row: &Row, names: Self::Names) -> Result<Self> {
                let mut cells = Cells::new(row, "");
                Ok(($(cells.get::<$name>(names[$index])?,)+))
            }
        }
    )*};
}

tuples![
    2 (A 0, B 1),
    3 (A 0, B 1, C 2),
    4 (A 0, B 1, C 2, D 3),
];

/// A statement whose rows are read as `T`.
#[derive(Debug)]
pub(crate) struct Typed<T: FromRow> {
    query: Query,
    names: T::Names,
}

/// A statement of whose rows the named columns are read as a tuple.
pub(crate) fn query_as<T: FromRow>(of: &'static Statement, names: T::Names) -> Typed<T> {
    Typed {
        query: statement(of),
        names,
    }
}

impl<T: FromRow> Typed<T> {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn) -> Result<Vec<T>> {
        let rows = self.query.fetch_all(conn).await?;
        let rows = rows.iter();
        rows.map(|row| T::from_row(row, self.names)).collect()
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn) -> Result<Option<T>> {
        let row = self.query.fetch_optional(conn).await?;
        row.map(|row| T::from_row(&row, self.names)).transpose()
    }

    pub(crate) async fn fetch_one(self, conn: &mut Conn) -> Result<T> {
        T::from_row(&self.query.fetch_one(conn).await?, self.names)
    }
}

/// A statement whose rows have a single column, of any name.
#[derive(Debug)]
pub(crate) struct Scalar<T> {
    query: Query,
    of: PhantomData<fn() -> T>,
}

/// A statement whose rows have a single column.
pub(crate) fn query_scalar<T: for<'v> FromValue<'v>>(of: &'static Statement) -> Scalar<T> {
    Scalar {
        query: statement(of),
        of: PhantomData,
    }
}

impl<T: for<'v> FromValue<'v>> Scalar<T> {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    fn read(row: &Row) -> Result<T> {
        let value = row.only().ok_or(Fault::NoRow)?;
        T::from_value(value).map_err(|detail| Fault::unreadable("", "", detail))
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn) -> Result<Vec<T>> {
        let rows = self.query.fetch_all(conn).await?;
        rows.iter().map(Self::read).collect()
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn) -> Result<Option<T>> {
        let row = self.query.fetch_optional(conn).await?;
        row.as_ref().map(Self::read).transpose()
    }

    pub(crate) async fn fetch_one(self, conn: &mut Conn) -> Result<T> {
        Self::read(&self.query.fetch_one(conn).await?)
    }
}
