//! Computes the sizes of a request's parts, and which of them a provider's prompt cache is likely
//! to serve.

use mainspring_shared::budget::Price;
use mainspring_shared::message::Message;
use mainspring_shared::model::expect_tool_tokens;
use mainspring_shared::session::preview::{PartKind, PreviewCost, PreviewPart};
use mainspring_shared::usage::Usage;

use crate::llm::{Calibration, Request, expect_message_tokens, expect_tokens};

/// Minimum number of tokens at the beginning of a request for a provider to cache them.
const CACHE_MIN: u64 = 1_024;

/// A request whose parts are to be measured.
pub(super) struct Sizes<'a> {
    pub(super) request: &'a Request,
    /// The first `seq` that no stored message has.
    pub(super) next_seq: i64,
    pub(super) calibration: Calibration,
    /// The model's prices, if known.
    pub(super) price: Option<Price>,
    /// Whether the provider caches the beginnings of requests.
    pub(super) keeps: bool,
    /// The last message that the provider was recently asked with, after the same beginning.
    pub(super) cached_to: Option<i64>,
}

impl Sizes<'_> {
    /// The parts that exist, in order.
    pub(super) fn parts(&self) -> Vec<PreviewPart> {
        let request = self.request;
        let tools = request.tools.iter().map(|tool| expect_tool_tokens(tool));
        let system = request.system.iter().map(|system| expect_tokens(system));
        let tail = request.tail.iter().map(|tail| expect_tokens(tail));
        let messages = |of: fn(&Self, &Message) -> bool| {
            let messages = request.messages.iter();
            let messages = messages.filter(move |message| of(self, message));
            messages.map(|message| (expect_message_tokens(message), self.is_cached(message)))
        };
        let begins = self.cached_to.is_some();
        let parts = [
            self.part(PartKind::Tools, tools.map(|tokens| (tokens, begins))),
            self.part(PartKind::System, system.map(|tokens| (tokens, begins))),
            self.part(PartKind::Folds, messages(|_, message| is_fold(message))),
            self.part(
                PartKind::History,
                messages(|sizes, message| !is_fold(message) && message.seq < sizes.next_seq),
            ),
            self.part(
                PartKind::New,
                messages(|sizes, message| message.seq >= sizes.next_seq),
            ),
            self.part(PartKind::Tail, tail.map(|tokens| (tokens, false))),
        ];
        let sum = |of: fn(&PreviewPart) -> u64| parts.iter().map(of).sum::<u64>();
        let (tokens, cached) = (sum(|part| part.tokens), sum(|part| part.cached));
        let written = sum(|part| {
            if part.kind == PartKind::Tail {
                0
            } else {
                part.tokens
            }
        });
        let price = self.price.map(|price| price.for_input(tokens));
        // Cache writes without a price of their own cost nothing extra.
        let writes = self.keeps
            && written >= CACHE_MIN
            && self.price.is_some_and(|price| price.cache_write.is_some());
        let parts = parts.into_iter().map(|part| {
            let cached = if cached < CACHE_MIN { 0 } else { part.cached };
            let written = if writes && part.kind != PartKind::Tail {
                part.tokens - cached
            } else {
                0
            };
            let part = PreviewPart {
                cached,
                written,
                ..part
            };
            PreviewPart {
                cost_usd: price.map(|price| price.of(&read(part))),
                ..part
            }
        });
        parts.filter(|part| part.count > 0).collect()
    }

    fn is_cached(&self, message: &Message) -> bool {
        self.cached_to.is_some_and(|last| message.seq <= last)
    }

    fn part(&self, kind: PartKind, of: impl Iterator<Item = (u64, bool)>) -> PreviewPart {
        let (mut count, mut tokens, mut cached) = (0, 0, 0);
        for (one, is_cached) in of {
            count += 1;
            tokens += one;
            cached += if is_cached { one } else { 0 };
        }
        PreviewPart {
            kind,
            count,
            tokens: self.calibration.of(tokens),
            cached: self.calibration.of(cached),
            written: 0,
            cost_usd: None,
        }
    }
}

/// A part in the form of a provider's usage.
fn read(part: PreviewPart) -> Usage {
    Usage {
        input_tokens: part.tokens,
        cache_read_tokens: part.cached,
        cache_write_tokens: part.written,
        ..Usage::default()
    }
}

/// The cost of a request's parts, and of the longest answer to it.
pub(super) fn cost(parts: &[PreviewPart], price: &Price, answer_max: u32) -> PreviewCost {
    let sum = |of: fn(&PreviewPart) -> u64| parts.iter().map(of).sum::<u64>();
    let (tokens, cached, written) = (
        sum(|part| part.tokens),
        sum(|part| part.cached),
        sum(|part| part.written),
    );
    let price = price.for_input(tokens);
    let of = |input_tokens, cache_read_tokens, cache_write_tokens, output_tokens| {
        price.of(&Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            ..Usage::default()
        })
    };
    PreviewCost {
        input_usd: of(tokens, cached, written, 0),
        cache_read_usd: of(cached, cached, 0, 0),
        cache_write_usd: of(written, 0, written, 0),
        answer_max_usd: of(0, 0, 0, u64::from(answer_max)),
    }
}

/// Whether it is a fold: such messages belong to no send.
pub(super) fn is_fold(message: &Message) -> bool {
    message.send_id.0.is_nil()
}
