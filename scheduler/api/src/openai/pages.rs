//! Pages of lists in OpenAI's form.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use mainspring_scheduler::error::Error;
use serde_json::{Value, json};

use crate::problem::Problem;

/// The number of items of a page.
const LIMIT: usize = 20;
const LIMIT_MAX: usize = 100;

/// A query. What only decides how much is shown may be repeated, and is ignored.
#[derive(Debug)]
pub(super) struct Params(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Ok(Query(pairs)) = pairs else {
            return Err(Error::invalid("?", "the query cannot be read").into());
        };
        let pairs = pairs
            .into_iter()
            .filter(|(name, _)| !name.starts_with("include"));
        Ok(Self(pairs.collect()))
    }
}

impl Params {
    /// Takes a parameter.
    pub(super) fn take<T: FromStr>(
        &mut self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, Error> {
        let text = self.0.remove(name);
        let value = text.map(|text| {
            text.parse()
                .map_err(|_| Error::invalid(format!("?{name}"), format!("{name} {expected}")))
        });
        value.transpose()
    }

    /// Refuses what nobody has taken.
    pub(super) fn end(self) -> Result<(), Error> {
        match self.0.keys().next() {
            Some(name) => Err(Error::invalid(
                format!("?{name}"),
                format!("there is no parameter {name:?}"),
            )),
            None => Ok(()),
        }
    }
}

/// Which items of a list.
#[derive(Debug, Default, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ItemsQuery {
    /// The id of the last item of the page before.
    after: Option<String>,
    /// The most items of the page, from 1 to 100.
    limit: Option<u32>,
    /// `asc` or `desc`, which is the default.
    order: Option<String>,
}

impl ItemsQuery {
    /// As many as fit a page, from the oldest on.
    pub(super) fn all() -> Self {
        Self {
            after: None,
            limit: u32::try_from(LIMIT_MAX).ok(),
            order: Some("asc".to_owned()),
        }
    }

    pub(super) fn read(mut params: Params) -> Result<Self, Error> {
        let query = Self {
            after: params.take("after", "must be an id")?,
            limit: params.take("limit", "must be a number")?,
            order: params.take("order", "must be asc or desc")?,
        };
        params.end()?;
        Ok(query)
    }
}

/// A page of the items, which are given from the oldest on.
pub(super) fn page(mut all: Vec<Value>, query: &ItemsQuery) -> Result<Value, Error> {
    match query.order.as_deref() {
        Some("asc") => {}
        None | Some("desc") => all.reverse(),
        Some(_) => return Err(Error::invalid("?order", "order must be asc or desc")),
    }
    let limit = query.limit.map_or(LIMIT, |limit| limit as usize);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Error::invalid(
            "?limit",
            format!("limit must be from 1 to {LIMIT_MAX}"),
        ));
    }
    if let Some(after) = &query.after {
        let place = all.iter().position(|item| item["id"] == after.as_str());
        let place =
            place.ok_or_else(|| Error::invalid("?after", "after names no item of the list"))?;
        all.drain(..=place);
    }
    let has_more = all.len() > limit;
    all.truncate(limit);
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    Ok(json!({
        "object": "list", "first_id": id(all.first()), "last_id": id(all.last()), "has_more": has_more, "data": all,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another_in_either_order() {
        let all = || {
            (0..5)
                .map(|n| json!({ "id": format!("i{n}") }))
                .collect::<Vec<_>>()
        };
        let ask = |after: Option<&str>, order: &str| {
            let query = ItemsQuery {
                after: after.map(str::to_owned),
                limit: Some(2),
                order: Some(order.to_owned()),
            };
            let page = page(all(), &query).expect("a page");
            let ids: Vec<String> = page["data"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|item| item["id"].to_string())
                .collect();
            (
                ids.join(","),
                page["has_more"] == true,
                page["last_id"].clone(),
            )
        };
        assert_eq!(
            ask(None, "asc"),
            ("\"i0\",\"i1\"".into(), true, json!("i1"))
        );
        assert_eq!(
            ask(Some("i3"), "asc"),
            ("\"i4\"".into(), false, json!("i4"))
        );
        assert_eq!(
            ask(Some("i3"), "desc"),
            ("\"i2\",\"i1\"".into(), true, json!("i1"))
        );
        let wrong = ItemsQuery {
            order: Some("up".into()),
            ..ItemsQuery::default()
        };
        assert!(page(all(), &wrong).is_err());
    }
}
