//! Lists, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::call::{Call, Caller};
use crate::error::Error;

/// A page of a list.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// Its items.
    pub data: Vec<T>,
    /// Where the next one begins; `None` for the last one.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// A list, of which pages are read as they are needed.
#[derive(Debug)]
pub struct Pages<T> {
    caller: Arc<Caller>,
    call: Call,
    ready: VecDeque<T>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    First,
    At(String),
    Nothing,
}

impl<T: DeserializeOwned> Pages<T> {
    pub(crate) fn new(caller: Arc<Caller>, call: Call) -> Self {
        Self {
            caller,
            call,
            ready: VecDeque::new(),
            next: Next::First,
        }
    }

    /// One page: the first, or the one that begins at a cursor.
    pub async fn page(&self, cursor: Option<&str>) -> Result<Page<T>, Error> {
        self.caller.read(&self.call.clone().at(cursor)).await
    }

    /// The next item; `None` after the last one. An error changes nothing: the same page is asked for again.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let page = match &self.next {
                Next::First => self.page(None).await?,
                Next::At(cursor) => self.page(Some(cursor)).await?,
                Next::Nothing => return Ok(None),
            };
            self.ready = page.data.into();
            self.next = page.next_cursor.map_or(Next::Nothing, Next::At);
        }
    }

    /// All items, of all pages.
    pub async fn all(mut self) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        while let Some(item) = self.next().await? {
            all.push(item);
        }
        Ok(all)
    }
}
