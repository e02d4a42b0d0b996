//! Prompt caches and billing by the two vendors' published rules. Tokens are counted as four bytes
//! of the request each, the same for everything that is compared.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::time::Duration;

use mainspring_providers::Kind;
use mainspring_shared::budget::Price;
use mainspring_shared::model::ModelFacts;

/// How long a cache entry is kept after its last use.
const KEPT: Duration = Duration::from_mins(5);

/// Minimum tokens of a cached prefix.
const LEAST_TOKENS: u64 = 1024;

const BYTES_PER_TOKEN: u64 = 4;

/// OpenAI's cached prefixes grow in steps of this many tokens.
const STEP_TOKENS: u64 = 128;

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Input tokens by how they are billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Billed {
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) fresh: u64,
}

impl Billed {
    pub(crate) fn tokens(&self) -> u64 {
        self.read + self.written + self.fresh
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.read += other.read;
        self.written += other.written;
        self.fresh += other.fresh;
    }
}

/// A vendor with the cache of one customer.
#[derive(Debug)]
pub(crate) struct Vendor {
    kind: Kind,
    price: Price,
    /// Time of last use of cached prefixes, by hash.
    kept: BTreeMap<u64, Duration>,
}

impl Vendor {
    /// The vendor of a built-in model.
    pub(crate) fn of(kind: Kind, model: &str) -> Self {
        let price = ModelFacts::built_in(model).and_then(|facts| facts.price);
        Self {
            kind,
            price: price.expect("its price is known"),
            kept: BTreeMap::new(),
        }
    }

    /// The cost of tokens, expressed in uncached input tokens.
    pub(crate) fn weight(&self, billed: Billed) -> f64 {
        let read = self.price.cache_read.unwrap_or(self.price.input) / self.price.input;
        let write = self.price.cache_write.unwrap_or(self.price.input) / self.price.input;
        billed.read as f64 * read + billed.written as f64 * write + billed.fresh as f64
    }

    /// Serves a request, and caches what the vendor's rules say.
    pub(crate) fn serve(&mut self, body: &[u8], at: Duration) -> Billed {
        self.kept.retain(|_, used| at.saturating_sub(*used) <= KEPT);
        let text = std::str::from_utf8(body).expect("it is JSON");
        match self.kind {
            Kind::Anthropic => self.serve_marked(text, at),
            _ => self.serve_any(text, at),
        }
    }

    /// Marked prefixes are written, and read if an earlier request marked the same prefix. The
    /// published rule also looks back twenty blocks from each mark, which could only find more.
    fn serve_marked(&mut self, text: &str, at: Duration) -> Billed {
        let mut hasher = DefaultHasher::new();
        let (mut begin, mut bytes, mut marks) = (0, 0, Vec::new());
        for (place, _) in text.match_indices(MARK) {
            hasher.write(&text.as_bytes()[begin..place]);
            bytes += place - begin;
            begin = place + MARK.len();
            let tokens = bytes as u64 / BYTES_PER_TOKEN;
            if tokens >= LEAST_TOKENS {
                marks.push((hasher.finish(), tokens));
            }
        }
        let all = (bytes + text.len() - begin) as u64 / BYTES_PER_TOKEN;
        let known = marks
            .iter()
            .filter(|(hash, _)| self.kept.contains_key(hash));
        let read = known.map(|(_, tokens)| *tokens).max().unwrap_or(0);
        let marked = marks.last().map_or(0, |(_, tokens)| *tokens);
        for (hash, _) in marks {
            self.kept.insert(hash, at);
        }
        Billed {
            read,
            written: marked - read,
            fresh: all - marked,
        }
    }

    /// Every prefix is cached, in steps; if writing has a price, everything that was not read is
    /// written.
    fn serve_any(&mut self, text: &str, at: Duration) -> Billed {
        let all = text.len() as u64 / BYTES_PER_TOKEN;
        let step = (STEP_TOKENS * BYTES_PER_TOKEN) as usize;
        let mut hasher = DefaultHasher::new();
        let (mut read, mut is_known, mut tokens) = (0, true, 0);
        for piece in text.as_bytes().chunks_exact(step) {
            hasher.write(piece);
            tokens += STEP_TOKENS;
            if tokens < LEAST_TOKENS {
                continue;
            }
            let hash = hasher.finish();
            is_known &= self.kept.contains_key(&hash);
            if is_known {
                read = tokens;
            }
            self.kept.insert(hash, at);
        }
        let kept = if tokens >= LEAST_TOKENS { tokens } else { 0 };
        let written = match self.price.cache_write {
            Some(_) => kept - read,
            None => 0,
        };
        Billed {
            read,
            written,
            fresh: all - read - written,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(texts: &[&str]) -> String {
        texts.join(MARK)
    }

    #[test]
    fn what_was_marked_is_read_within_five_minutes_and_written_again_later() {
        let mut vendor = Vendor::of(Kind::Anthropic, "claude-opus-4-6");
        let long = "a".repeat(8_000);
        let body = marked(&[&long, "the rest"]);
        let mut serve = |body: &str, secs| vendor.serve(body.as_bytes(), Duration::from_secs(secs));
        let first = serve(&body, 0);
        assert_eq!((first.read, first.written, first.fresh), (0, 2_000, 2));
        assert_eq!(serve(&body, 200).read, 2_000);
        assert_eq!(serve(&body, 499).read, 2_000);
        assert_eq!(serve(&body, 900).read, 0);
        let longer = marked(&[&long, &long, "the rest"]);
        let next = serve(&longer, 901);
        assert_eq!((next.read, next.written), (2_000, 2_000));
        let short = marked(&["a", "the rest"]);
        assert_eq!(serve(&short, 902).written, 0, "too short to be kept");
        let billed = Billed {
            read: 100,
            written: 100,
            fresh: 100,
        };
        assert!((vendor.weight(billed) - 235.0).abs() < 1e-6);
    }

    #[test]
    fn every_beginning_of_enough_tokens_is_kept_in_steps() {
        let mut vendor = Vendor::of(Kind::OpenAiResponses, "gpt-5.1");
        let text = "b".repeat(4 * 1_300);
        let mut serve = |text: &str| vendor.serve(text.as_bytes(), Duration::ZERO);
        assert_eq!(serve(&text).read, 0);
        let again = serve(&text);
        assert_eq!((again.read, again.tokens()), (1_280, 1_300));
        assert_eq!(serve(&format!("c{text}")).read, 0, "another beginning");
        assert_eq!(serve(&text[..4 * 1_000]).read, 0, "too short");
    }
}
