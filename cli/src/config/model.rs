//! What a configuration may set for a model: the members of
//! [`FactsOverride`](mainspring_shared::model::FactsOverride).

use mainspring_runtime::Kind;

const TOKENS: Kind = Kind::Integer {
    min: 1,
    max: 1_000_000_000,
};

/// The members of `[models."NAME"]`.
pub(super) const MEMBERS: &[(&str, Kind)] = &[
    ("window", TOKENS),
    ("input_max", TOKENS),
    ("output_max", TOKENS),
    ("input", Kind::Choices(&["image", "pdf", "audio"])),
    ("native_schema", Kind::Switch),
    ("thinking", Kind::Choice(&["never", "optional", "always"])),
    ("adaptive", Kind::Switch),
    ("tokens", Kind::Number),
    ("price", PRICE),
    ("as_of", Kind::Text),
    ("source", Kind::Text),
];

/// The members of a price.
const PRICE: Kind = Kind::Table {
    members: &[
        ("input", Kind::Number),
        ("output", Kind::Number),
        ("cache_read", Kind::Number),
        ("cache_write", Kind::Number),
        ("long", LONG),
    ],
    needs: &["input", "output"],
};

/// The members of the price of long requests.
const LONG: Kind = Kind::Table {
    members: &[
        ("above", TOKENS),
        ("input", Kind::Number),
        ("output", Kind::Number),
    ],
    needs: &["above", "input", "output"],
};
