//! The names of a run's nodes: stable paths from the root.
//!
//! `/` is the root. Each level below adds one segment: `<index>` or `<index>:<id>` for a child of a
//! sequence or a parallel node, `case=<key>` or `default` for a branch's, `fallback` for a leaf's,
//! and the id or `body` for the others. The children of a fan-out or a loop follow their number:
//! `/1:research[2]/r`.

use std::fmt::Write as _;

/// The root's path.
pub const ROOT: &str = "/";

/// The segment of a child below its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// One of several, in order.
    At(u32, Option<&'a str>),
    /// The body of a fan-out or a loop, for one item or iteration.
    Round(u32, Option<&'a str>),
    /// A branch's case.
    Case(&'a str),
    /// A branch's default.
    Default,
    /// A failed leaf's fallback.
    Fallback,
    /// An only child.
    Only(Option<&'a str>),
}

/// The path of the child of `parent` with this segment.
pub fn child(parent: &str, step: &Step<'_>) -> String {
    let mut path = if parent == ROOT {
        String::new()
    } else {
        parent.to_owned()
    };
    if path.is_empty() && matches!(step, Step::Round(..)) {
        path.push('/');
    }
    let written = match step {
        Step::At(index, None) => write!(path, "/{index}"),
        Step::At(index, Some(id)) => write!(path, "/{index}:{}", escaped(id)),
        Step::Round(index, id) => write!(path, "[{index}]/{}", name(*id)),
        Step::Case(key) => write!(path, "/case={}", escaped(key)),
        Step::Default => write!(path, "/default"),
        Step::Fallback => write!(path, "/fallback"),
        Step::Only(id) => write!(path, "/{}", name(*id)),
    };
    written.expect("a String takes everything");
    path
}

fn name(id: Option<&str>) -> String {
    id.map_or_else(|| "body".to_owned(), escaped)
}

/// The parent's path; `None` for the root.
pub fn parent(path: &str) -> Option<&str> {
    if path == ROOT {
        return None;
    }
    let (above, _) = path.rsplit_once('/')?;
    let above = match above.strip_suffix(']') {
        Some(open) => open.rsplit_once('[')?.0,
        None => above,
    };
    Some(if above.is_empty() { ROOT } else { above })
}

/// The number of the item or iteration before the last segment.
pub fn round(path: &str) -> Option<u32> {
    let (above, _) = path.rsplit_once('/')?;
    let (_, number) = above.strip_suffix(']')?.rsplit_once('[')?;
    number.parse().ok()
}

/// The index at the beginning of the last segment.
pub fn index(path: &str) -> Option<u32> {
    let (_, segment) = path.rsplit_once('/')?;
    let digits = segment.split(':').next()?;
    digits.parse().ok()
}

/// Whether `path` is `above` or below it.
pub fn is_within(path: &str, above: &str) -> bool {
    above == ROOT
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[']))
}

/// Escapes the characters of a text that have a meaning in paths.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '/' | '[' | ']' | '%') || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_parent_and_place() {
        for (above, step, path) in [
            (ROOT, Step::At(0, Some("plan")), "/0:plan"),
            (ROOT, Step::At(12, None), "/12"),
            (ROOT, Step::Round(3, Some("r")), "/[3]/r"),
            ("/1:research", Step::Round(2, Some("r")), "/1:research[2]/r"),
            ("/1", Step::Round(2, None), "/1[2]/body"),
            ("/1[2]/r", Step::Fallback, "/1[2]/r/fallback"),
            ("/1", Step::Case("a/b[0]%"), "/1/case=a%2Fb%5B0%5D%25"),
            ("/1", Step::Default, "/1/default"),
            ("/1", Step::Only(Some("x]")), "/1/x%5D"),
        ] {
            assert_eq!(child(above, &step), path);
            assert_eq!(parent(path), Some(above), "{path}");
            match step {
                Step::At(at, _) => assert_eq!(index(path), Some(at)),
                Step::Round(at, _) => assert_eq!(round(path), Some(at)),
                Step::Case(_) | Step::Default | Step::Fallback | Step::Only(_) => {}
            }
        }
        assert_eq!(parent(ROOT), None);
    }

    #[test]
    fn within_is_by_segments() {
        assert!(is_within("/1:a[2]/r", "/1:a"));
        assert!(is_within("/1:a", "/1:a"));
        assert!(is_within("/1:a", ROOT));
        assert!(!is_within("/1:ab", "/1:a"));
    }
}
