//! Vectors that need no network: texts with common words are near each other.

use async_trait::async_trait;
use mainspring_shared::memory::{Embedded, Embedder, Embedding, PaidCall};
use mainspring_shared::usage::Usage;

/// The dimensions, unless others are configured.
const DIMENSIONS: u32 = 64;

/// The `demo` provider's model for vectors. Each word of a text adds to one dimension, which follows from its
/// letters; the vector has the length 1. It knows words, not their meaning.
#[derive(Debug, Clone)]
pub struct DemoVectors {
    name: String,
    dimensions: u32,
}

impl DemoVectors {
    /// The model of a provider with this configured name.
    pub fn new(provider: &str, model: &str, dimensions: Option<u32>) -> Self {
        Self {
            name: format!("{provider}/{model}"),
            dimensions: dimensions.unwrap_or(DIMENSIONS),
        }
    }

    fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0_f32; self.dimensions as usize];
        for word in words(text) {
            let hash = hash(&word);
            let place = (hash >> 1) % u64::from(self.dimensions);
            vector[place as usize] += if hash & 1 == 0 { 1.0 } else { -1.0 };
        }
        if vector.iter().all(|n| *n == 0.0) {
            // A vector has to have a direction.
            vector[0] = 1.0;
        }
        let length = vector.iter().map(|n| n * n).sum::<f32>().sqrt();
        vector.iter().map(|n| n / length).collect()
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// FNV-1a, the same on every machine.
fn hash(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[async_trait]
impl Embedder for DemoVectors {
    async fn embed(&self, texts: Vec<String>) -> Embedded {
        let vectors = texts.iter().map(|text| Embedding {
            model: format!("{}@{}", self.name, self.dimensions),
            vector: self.vector(text),
        });
        Embedded {
            vectors: Ok(vectors.collect()),
            paid: Some(self.expected(&texts)),
        }
    }

    fn expected(&self, texts: &[String]) -> PaidCall {
        let tokens = texts.iter().map(|text| words(text).count() as u64);
        let model = self.name.split_once('/').map_or("", |(_, model)| model);
        PaidCall {
            model: model.to_owned(),
            usage: Usage {
                input_tokens: tokens.sum(),
                ..Usage::default()
            },
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: &str, b: &str) -> f32 {
        let model = DemoVectors::new("main", "demo", None);
        let (a, b) = (model.vector(a), model.vector(b));
        a.iter().zip(&b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn texts_are_as_near_as_they_have_common_words() {
        assert!((near("The cat sat.", "the CAT, sat") - 1.0).abs() < 1e-5);
        let some = near("the cat sat", "the cat ran");
        assert!(some > 0.3 && some < 0.99, "{some}");
        assert!(near("the cat sat", "prices rose again") < some);
        assert!((near("", "...") - 1.0).abs() < 1e-5);
    }

    #[tokio::test]
    async fn each_text_gets_a_vector_of_the_size_that_is_configured() {
        let model = DemoVectors::new("main", "demo", Some(8));
        let made = model.embed(vec!["one two".into(), String::new()]).await;
        let vectors = made.vectors.expect("vectors");
        let sizes: Vec<_> = vectors.iter().map(|made| made.vector.len()).collect();
        assert_eq!(sizes, [8, 8]);
        let paid = made.paid.expect("a cost");
        assert_eq!((paid.model.as_str(), paid.usage.input_tokens), ("demo", 2));
    }
}
