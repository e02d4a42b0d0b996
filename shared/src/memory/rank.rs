//! Ranks entries by how well they match a query: a function of their words and vectors, so that
//! every store gives the same order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::id::MemoryId;
use crate::time::Timestamp;

/// Saturation of BM25. Each word counts once per entry, so only the length normalization depends on it.
const K1: f64 = 1.2;
/// Strength of BM25's length normalization.
const B: f64 = 0.75;
/// The constant of reciprocal rank fusion, which sets how fast weight decreases with rank.
const RRF: f64 = 60.0;
/// An entry that scores less than this fraction of the best one shares only common words.
const SCORE_PART_MIN: f64 = 0.05;
/// Vectors less similar than this are unrelated.
const COSINE_MIN: f64 = 0.2;
/// Number of ranks that count when rankings are fused.
pub const PLACES_MAX: usize = 100;

/// An entry to rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The entry.
    pub id: MemoryId,
    /// When it last changed: of two equal matches, the newer one comes first.
    pub updated_at: Timestamp,
    /// Its words.
    pub words: BTreeSet<String>,
}

/// An entry's vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The entry.
    pub id: MemoryId,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The vector.
    pub vector: Vec<f32>,
}

/// The entries that share words with the query, best first, by BM25 over the candidates.
pub fn lexical(query: &BTreeSet<String>, candidates: &[Candidate]) -> Vec<(MemoryId, Timestamp)> {
    let count = candidates.len() as f64;
    let length = |candidate: &Candidate| candidate.words.len() as f64;
    let mean = candidates.iter().map(length).sum::<f64>() / count.max(1.0);
    let weights: BTreeMap<&str, f64> = query
        .iter()
        .map(|word| {
            let having = candidates.iter().filter(|one| one.words.contains(word));
            let having = having.count() as f64;
            let weight = (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
            (word.as_str(), weight)
        })
        .collect();
    let scored = candidates.iter().filter_map(|candidate| {
        let shared = query.iter().filter(|word| candidate.words.contains(*word));
        let weight: f64 = shared.map(|word| weights[word.as_str()]).sum();
        let norm = 1.0 - B + B * length(candidate) / mean.max(1.0);
        let score = weight * (K1 + 1.0) / (1.0 + K1 * norm);
        (score > 0.0).then_some((score, candidate.updated_at, candidate.id))
    });
    let mut scored: Vec<_> = scored.collect();
    scored.sort_by(first_the_best);
    let least = scored.first().map_or(0.0, |best| best.0 * SCORE_PART_MIN);
    scored.retain(|(score, ..)| *score >= least);
    scored.into_iter().map(|(_, at, id)| (id, at)).collect()
}

/// An entry, and the similarity of its vector to the query's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alike {
    /// The entry.
    pub id: MemoryId,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The cosine of the angle between the two.
    pub cosine: f64,
}

/// The similarity of each entry's vector to the query's; incomparable ones are left out.
pub fn compared(query: &[f32], candidates: &[Placed]) -> Vec<Alike> {
    let compared = candidates.iter().filter_map(|candidate| {
        Some(Alike {
            id: candidate.id,
            updated_at: candidate.updated_at,
            cosine: cosine(query, &candidate.vector)?,
        })
    });
    compared.collect()
}

/// The entries with vectors similar to the query's, nearest first.
pub fn nearest(compared: &[Alike]) -> Vec<(MemoryId, Timestamp)> {
    let near = compared.iter().filter(|one| one.cosine >= COSINE_MIN);
    let mut scored: Vec<_> = near
        .map(|one| (one.cosine, one.updated_at, one.id))
        .collect();
    scored.sort_by(first_the_best);
    scored.into_iter().map(|(_, at, id)| (id, at)).collect()
}

/// The cosine similarity of two vectors, from -1 to 1; `None` if they cannot be compared.
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        let pairs = x.iter().zip(y);
        pairs.map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    let size = dot(a, a).sqrt() * dot(b, b).sqrt();
    let alike = dot(a, b) / size;
    alike.is_finite().then_some(alike)
}

/// Fuses several rankings by reciprocal rank: being first in one counts about as much as being
/// second in two. Of two equals, the newer one comes first.
pub fn fused(rankings: &[Vec<(MemoryId, Timestamp)>]) -> Vec<MemoryId> {
    let mut scores: BTreeMap<MemoryId, (f64, Timestamp)> = BTreeMap::new();
    for ranking in rankings {
        for (place, (id, at)) in ranking.iter().take(PLACES_MAX).enumerate() {
            let score = scores.entry(*id).or_insert((0.0, *at));
            score.0 += 1.0 / (RRF + 1.0 + place as f64);
        }
    }
    let mut fused: Vec<_> = scores
        .into_iter()
        .map(|(id, (score, at))| (score, at, id))
        .collect();
    fused.sort_by(first_the_best);
    fused.into_iter().map(|(.., id)| id).collect()
}

/// The similarity of two texts, from 0 to 1: the fraction of common words among all words.
pub fn likeness(a: &BTreeSet<String>, b: &BTreeSet<String>) -> f64 {
    let common = a.intersection(b).count() as f64;
    let all = a.union(b).count() as f64;
    if all == 0.0 { 0.0 } else { common / all }
}

fn first_the_best(a: &(f64, Timestamp, MemoryId), b: &(f64, Timestamp, MemoryId)) -> Ordering {
    b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::memory::words::words;

    fn id(n: u128) -> MemoryId {
        MemoryId(Uuid::from_u128(n))
    }

    fn entries(texts: &[&str]) -> Vec<Candidate> {
        let numbered = texts.iter().zip(1..);
        let entry = |(text, n): (&&str, u128)| Candidate {
            id: id(n),
            updated_at: Timestamp(n as i64),
            words: words(text),
        };
        numbered.map(entry).collect()
    }

    fn order(query: &str, texts: &[&str]) -> Vec<MemoryId> {
        let ranked = lexical(&words(query), &entries(texts));
        ranked.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn rare_words_count_more_than_common_ones() {
        let texts = [
            "the cat sleeps on the sofa",
            "the dog is called Rex",
            "the train leaves at nine",
        ];
        assert_eq!(order("what is the dog called?", &texts)[0], id(2));
        assert_eq!(order("submarine", &texts), []);
    }

    #[test]
    fn of_equals_the_newer_one_is_first() {
        assert_eq!(order("tea", &["likes tea", "likes tea"]), [id(2), id(1)]);
    }

    #[test]
    fn vectors_are_ordered_by_their_angle() {
        let placed = |n: u128, vector: &[f32]| Placed {
            id: id(n),
            updated_at: Timestamp(0),
            vector: vector.to_vec(),
        };
        let candidates = [
            placed(1, &[0.0, 1.0]),
            placed(2, &[2.0, 0.1]),
            placed(3, &[1.0, 1.0]),
            placed(4, &[1.0]),
            placed(5, &[0.0, 0.0]),
        ];
        let near = nearest(&compared(&[1.0, 0.0], &candidates));
        let near: Vec<MemoryId> = near.into_iter().map(|(id, _)| id).collect();
        assert_eq!(near, [id(2), id(3)]);
    }

    #[test]
    fn what_two_rankings_agree_on_comes_first() {
        let at = Timestamp(0);
        let ranking = |ids: &[u128]| ids.iter().map(|n| (id(*n), at)).collect();
        let both = fused(&[ranking(&[1, 2, 3]), ranking(&[4, 2, 5])]);
        assert_eq!(both[0], id(2));
        assert_eq!(both.len(), 5);
    }
}
