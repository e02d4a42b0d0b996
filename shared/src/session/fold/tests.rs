use uuid::Uuid;

use super::*;

fn fold(n: i64, from_seq: i64, to_seq: i64) -> Fold {
    let new = NewFold {
        from_seq,
        to_seq,
        level: 0,
        kind: FoldKind::Summary,
        text: format!("{from_seq} to {to_seq}"),
        model: None,
        tokens_before: 10,
        tokens_after: 1,
    };
    new.at(n, SendId(Uuid::nil()), Timestamp(0))
}

fn shape(folds: &[Fold]) -> Vec<(i64, i64, i64, Option<i64>)> {
    let shape = folds.iter();
    let shape = shape.map(|fold| (fold.n, fold.from_seq, fold.to_seq, fold.covered_by));
    shape.collect()
}

#[test]
fn a_fold_covers_those_whose_messages_it_names_all_of() {
    let mut folds = Vec::new();
    attach(&mut folds, fold(1, 1, 4));
    attach(&mut folds, fold(2, 5, 9));
    assert_eq!(end(&folds), 9);
    attach(&mut folds, fold(3, 1, 9));
    attach(&mut folds, fold(4, 10, 12));
    assert_eq!(
        shape(&folds),
        [
            (1, 1, 4, Some(3)),
            (2, 5, 9, Some(3)),
            (3, 1, 9, None),
            (4, 10, 12, None)
        ]
    );
    assert_eq!((end(&folds), begin(1, 12), begin(20, 12)), (12, 13, 20));
    assert_eq!(end(&[]), 0);
}

#[test]
fn a_copy_has_the_folds_that_it_reaches_and_shows_what_their_covers_would_hide() {
    let mut folds = Vec::new();
    attach(&mut folds, fold(2, 1, 4));
    attach(&mut folds, fold(5, 5, 9));
    attach(&mut folds, fold(7, 1, 9));
    // The cover extends beyond what was copied.
    let copied = copies(folds.clone(), 0, 8);
    assert_eq!(shape(&copied), [(1, 1, 4, None)]);
    // The first two messages are gone.
    let copied = copies(folds, 2, 20);
    assert_eq!(
        shape(&copied),
        [(1, -1, 2, Some(3)), (2, 3, 7, Some(3)), (3, -1, 7, None)]
    );
}

#[test]
fn kinds_parse_back() {
    for kind in FoldKind::ALL {
        assert_eq!(FoldKind::parse(kind.as_str()), Some(kind));
    }
}
