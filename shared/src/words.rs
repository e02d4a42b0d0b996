//! Finds the known word that was probably meant by an unknown one.

/// The word that was probably meant.
pub(crate) fn nearest<'w>(wrong: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if wrong.len() > 64 {
        return None;
    }
    let near = words.map(|word| (distance(wrong, word), word)).min()?;
    (near.0 <= 1 + near.1.len() / 4).then_some(near.1)
}

/// The Levenshtein distance of two words: how many characters to insert, remove or replace. Only
/// the first 64 count.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
