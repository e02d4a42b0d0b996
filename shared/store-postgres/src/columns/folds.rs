//! Folds as columns.

use mainspring_shared::session::fold::{Fold, NewFold};
use uuid::Uuid;

use super::{maybe_text, text};
use crate::retry::PgQuery;

/// Folds of several items to attach.
#[derive(Debug, Default)]
pub(crate) struct FoldColumns {
    ords: Vec<i64>,
    from: Vec<i64>,
    to: Vec<i64>,
    levels: Vec<i32>,
    kinds: Vec<&'static str>,
    texts: Vec<String>,
    models: Vec<Option<String>>,
    before: Vec<i64>,
    after: Vec<i64>,
}

impl FoldColumns {
    pub(crate) fn push(&mut self, ord: i64, fold: Option<&NewFold>) {
        let Some(fold) = fold else { return };
        self.ords.push(ord);
        self.from.push(fold.from_seq);
        self.to.push(fold.to_seq);
        self.levels.push(fold.level);
        self.kinds.push(fold.kind.as_str());
        self.texts.push(text(&fold.text).into_owned());
        self.models.push(maybe_text(fold.model.as_deref()));
        self.before.push(fold.tokens_before);
        self.after.push(fold.tokens_after);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ords.is_empty()
    }

    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        query
            .bind(self.ords)
            .bind(self.from)
            .bind(self.to)
            .bind(self.levels)
            .bind(self.kinds)
            .bind(self.texts)
            .bind(self.models)
            .bind(self.before)
            .bind(self.after)
    }
}

/// Folds of a copied session.
#[derive(Debug)]
pub(crate) struct CopiedFolds<'f>(pub(crate) &'f [Fold]);

impl CopiedFolds<'_> {
    pub(crate) fn bind(self, query: PgQuery) -> PgQuery {
        let rows = || self.0.iter();
        let texts = rows().map(|fold| text(&fold.text).into_owned());
        let models = rows().map(|fold| maybe_text(fold.model.as_deref()));
        query
            .bind(rows().map(|fold| fold.n).collect::<Vec<i64>>())
            .bind(rows().map(|fold| fold.from_seq).collect::<Vec<i64>>())
            .bind(rows().map(|fold| fold.to_seq).collect::<Vec<i64>>())
            .bind(rows().map(|fold| fold.level).collect::<Vec<i32>>())
            .bind(
                rows()
                    .map(|fold| fold.kind.as_str())
                    .collect::<Vec<&'static str>>(),
            )
            .bind(texts.collect::<Vec<String>>())
            .bind(models.collect::<Vec<Option<String>>>())
            .bind(rows().map(|fold| fold.tokens_before).collect::<Vec<i64>>())
            .bind(rows().map(|fold| fold.tokens_after).collect::<Vec<i64>>())
            .bind(rows().map(|fold| fold.send_id.0).collect::<Vec<Uuid>>())
            .bind(rows().map(|fold| fold.created_at.0).collect::<Vec<i64>>())
            .bind(
                rows()
                    .map(|fold| fold.covered_by)
                    .collect::<Vec<Option<i64>>>(),
            )
    }
}
