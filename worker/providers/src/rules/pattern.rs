//! Patterns of hosts and of models' names.

/// Whether a text matches a pattern, in which `*` stands for any characters. Both are in lower case.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The names by which a model may be known: as it is, and without what routers, clouds and fine-tuning add
/// (`openai/gpt-5`, `ft:gpt-4o:org::id`, `us.anthropic.claude-opus-4-8-v1:0`, `claude-opus-4-8@20260528`), without its
/// date, and Claude's with dashes for dots.
pub(super) fn names(model: &str) -> Vec<String> {
    let whole = model.trim().to_ascii_lowercase();
    let last = whole.rsplit('/').next().unwrap_or(&whole);
    let tuned = last.strip_prefix("ft:").unwrap_or(last);
    let plain = tuned.split([':', '@']).next().unwrap_or(tuned);
    let plain = match plain.find("claude-") {
        Some(at) => plain[at..].replace('.', "-"),
        None => plain.to_owned(),
    };
    let undated = undated(&plain).to_owned();
    let mut names = vec![whole.clone(), last.to_owned(), plain, undated];
    names.dedup();
    names
}

/// A name without the date, version or `latest` at its end.
fn undated(name: &str) -> &str {
    let name = name.strip_suffix("-latest").unwrap_or(name);
    let name = name.strip_suffix("-v1").unwrap_or(name);
    let digits = |part: &str, count: usize| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut parts = name.rsplitn(4, '-');
    let [last, month, year, rest] = [(); 4].map(|()| parts.next().unwrap_or_default());
    if digits(last, 8) {
        &name[..name.len() - last.len() - 1]
    } else if digits(last, 2) && digits(month, 2) && digits(year, 4) {
        rest
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*", "abc", true),
            ("*.b.c", "a.b.c", true),
            ("*.b.c", "b.c", false),
            ("*b*", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_model_is_known_behind_routers_clouds_and_fine_tunings() {
        for (model, name) in [
            ("openai/GPT-5-mini-2025-08-07", "gpt-5-mini"),
            ("ft:gpt-4o:org::id", "gpt-4o"),
            ("us.anthropic.claude-opus-4-8-v1:0", "claude-opus-4-8"),
            ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
            ("claude-opus-4-8@20260528", "claude-opus-4-8"),
            ("claude-opus-4-5-20251101", "claude-opus-4-5"),
            ("moonshotai/kimi-k2:free", "kimi-k2"),
            ("gpt-5.1", "gpt-5.1"),
            ("", ""),
        ] {
            let names = names(model);
            assert!(names.iter().any(|it| it == name), "{model}: {names:?}");
        }
    }
}
