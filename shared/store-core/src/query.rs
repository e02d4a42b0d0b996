//! Statements with their arguments.

use std::marker::PhantomData;

use crate::db::{Conn, Done, Statement, Visit};
use crate::fault::{Fault, Result};
use crate::row::Row;
use crate::value::{FromValue, Value};

/// A statement with the arguments that are bound so far.
#[derive(Debug)]
pub(crate) struct Query {
    statement: &'static Statement,
    arguments: Vec<Value>,
}

/// A statement without arguments yet.
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

    pub(crate) async fn execute(self, conn: &mut Conn) -> Result<Done> {
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

    /// Shows the rows to `visit`, one after the other, until it returns false.
    pub(crate) async fn scan(self, conn: &mut Conn, visit: Visit<'_>) -> Result<()> {
        conn.scan(self.statement, self.arguments, visit).await
    }
}

/// Rows read as tuples of their columns.
pub(crate) trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self>;
}

fn column<T: for<'v> FromValue<'v>>(row: &Row, index: usize) -> Result<T> {
    let value = row.at(index).ok_or(Fault::NoRow)?;
    T::from_value(value).map_err(|detail| Fault::unreadable("", "", detail))
}

/// A row of one column, read as its value.
#[derive(Debug)]
pub(crate) struct One<T>(T);

impl<T: for<'v> FromValue<'v>> FromRow for One<T> {
    fn from_row(row: &Row) -> Result<Self> {
        column(row, 0).map(Self)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+)),* $(,)?) => {$(
        impl<$($name: for<'v> FromValue<'v>),+> FromRow for ($($name,)+) {
            fn from_row(row: &Row) -> Result<Self> {
                Ok(($(column::<$name>(row, $index)?,)+))
            }
        }
    )*};
}

tuples![
    (A 0, B 1),
    (A 0, B 1, C 2),
    (A 0, B 1, C 2, D 3),
    (A 0, B 1, C 2, D 3, E 4),
];

/// A statement whose rows are read as `T`.
#[derive(Debug)]
pub(crate) struct Typed<T> {
    query: Query,
    of: PhantomData<fn() -> T>,
}

/// A statement whose rows are tuples.
pub(crate) fn query_as<T: FromRow>(of: &'static Statement) -> Typed<T> {
    Typed {
        query: statement(of),
        of: PhantomData,
    }
}

/// A statement whose rows have one column.
pub(crate) fn query_scalar<T: for<'v> FromValue<'v>>(of: &'static Statement) -> Scalar<T> {
    Scalar(query_as(of))
}

impl<T: FromRow> Typed<T> {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn) -> Result<Vec<T>> {
        let rows = self.query.fetch_all(conn).await?;
        rows.iter().map(T::from_row).collect()
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn) -> Result<Option<T>> {
        let row = self.query.fetch_optional(conn).await?;
        row.as_ref().map(T::from_row).transpose()
    }

    pub(crate) async fn fetch_one(self, conn: &mut Conn) -> Result<T> {
        T::from_row(&self.query.fetch_one(conn).await?)
    }
}

/// A statement whose rows have one column.
#[derive(Debug)]
pub(crate) struct Scalar<T>(Typed<One<T>>);

impl<T: for<'v> FromValue<'v>> Scalar<T> {
    pub(crate) fn bind(self, value: impl Into<Value>) -> Self {
        Self(self.0.bind(value))
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn) -> Result<Vec<T>> {
        let rows = self.0.fetch_all(conn).await?;
        Ok(rows.into_iter().map(|One(value)| value).collect())
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn) -> Result<Option<T>> {
        Ok(self.0.fetch_optional(conn).await?.map(|One(value)| value))
    }

    pub(crate) async fn fetch_one(self, conn: &mut Conn) -> Result<T> {
        self.0.fetch_one(conn).await.map(|One(value)| value)
    }
}
