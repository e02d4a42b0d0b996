//! The names under which a model goes: its vendor's own, and what routers, clouds and dates add.

/// Vendors as Bedrock names them before a model, possibly behind a region.
const VENDORS: &[&str] = &[
    "anthropic.",
    "deepseek.",
    "google.",
    "meta.",
    "minimax.",
    "mistral.",
    "moonshotai.",
    "openai.",
    "qwen.",
    "zai.",
];

/// Words that say how an otherwise same model is served.
const WORDS: &[&str] = &["latest", "preview", "exp", "instruct", "versatile", "turbo"];

/// How many parts of a name may be added ones.
const ADDED_MAX: usize = 8;

/// The name without its router's, vendor's and region's, in small letters.
pub(super) fn spoken(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.trim().to_ascii_lowercase();
    for vendor in VENDORS {
        match name.split_once(vendor) {
            Some((region, rest)) if region.is_empty() || region.ends_with('.') => {
                return rest.to_owned();
            }
            Some(_) | None => {}
        }
    }
    name
}

/// The names under which a model may be known, from the fullest on.
pub(super) fn of(model: &str) -> impl Iterator<Item = String> {
    let whole = spoken(model);
    let mut names = Vec::new();
    let mut rest = Some(whole.as_str());
    while let Some(name) = rest.filter(|_| names.len() < 3 * ADDED_MAX) {
        names.push(name.to_owned());
        // Routers write claude-opus-4.5, and some servers gpt-oss:120b.
        names.push(name.replace('.', "-"));
        names.push(name.replace(':', "-"));
        rest = shorter(name);
    }
    names.into_iter()
}

/// The name without the last thing that is added to it.
fn shorter(name: &str) -> Option<&str> {
    if let Some((rest, _)) = name.split_once('@') {
        return Some(rest);
    }
    if let Some((rest, added)) = name.rsplit_once(':') {
        // A version as Bedrock has it: v1:0, or 1:0.
        let rest = rest
            .strip_suffix("-1")
            .filter(|_| added == "0")
            .unwrap_or(rest);
        return Some(rest);
    }
    let (rest, last) = name.rsplit_once('-')?;
    let digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_version = last
        .strip_prefix('v')
        .is_some_and(|n| digits(n, n.len().max(1)));
    if is_version
        || WORDS.contains(&last)
        || digits(last, 8)
        || (digits(last, 3) && last.starts_with('0'))
    {
        return Some(rest);
    }
    let (before, middle) = rest.rsplit_once('-').unwrap_or(("", rest));
    // 2025-08-07, or after `preview` 06-05 and 09-2025.
    if digits(last, 2) && digits(middle, 2) {
        let dated = before.rsplit_once('-').filter(|(_, year)| digits(year, 4));
        let previewed = before.ends_with("-preview").then_some(before);
        return dated.map(|(rest, _)| rest).or(previewed);
    }
    if digits(last, 4) {
        let is_previewed = digits(middle, 2) && before.ends_with("-preview");
        return Some(if is_previewed { before } else { rest });
    }
    None
}
