//! The rules that a site has for robots (RFC 9309).

/// Bytes of the rules that are read, as the standard demands at least.
pub(super) const BYTES_MAX: usize = 512 * 1024;

/// Bytes of the rules that are kept of a file. Few sites have a tenth of that.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What a site allows one robot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rules(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    allows: bool,
    pattern: String,
}

impl Rules {
    /// The rules of a file for the robot with this name, in lower case; those for all robots if it is not named.
    pub(super) fn parse(text: &str, robot: &str) -> Self {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut is_named = false;
        // Whether the group at hand is for the robot, and for all.
        let (mut for_own, mut for_all) = (false, false);
        let mut is_naming = false;
        let mut kept = 0;
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if !is_naming {
                        (for_own, for_all, is_naming) = (false, false, true);
                    }
                    let name = value.split(['/', ' ']).next().unwrap_or_default();
                    for_own |= name.eq_ignore_ascii_case(robot);
                    for_all |= name == "*";
                    is_named |= for_own;
                }
                "allow" | "disallow" => {
                    is_naming = false;
                    // An empty rule is none.
                    let rule = || Rule {
                        allows: key == "allow",
                        pattern: normal(value),
                    };
                    let has_room = !value.is_empty() && kept < KEPT_BYTES_MAX;
                    if for_own || for_all {
                        // A rule is more than its text.
                        kept += value.len() + size_of::<Rule>();
                    }
                    if for_own && has_room {
                        own.push(rule());
                    }
                    if for_all && has_room {
                        others.push(rule());
                    }
                }
                _ => {}
            }
        }
        Self(if is_named { own } else { others })
    }

    /// Whether the robot may read this path and query: the longest rule decides, and of two the one that allows.
    pub(super) fn allow(&self, path: &str) -> bool {
        let path = normal(path);
        let matching = self.0.iter().filter(|rule| matches(&rule.pattern, &path));
        let longest = matching.max_by_key(|rule| (rule.pattern.len(), rule.allows));
        path == "/robots.txt" || longest.is_none_or(|rule| rule.allows)
    }
}

/// The same with hexadecimal digits in upper case.
fn normal(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece
            .char_indices()
            .nth(2)
            .map_or(piece.len(), |(at, _)| at);
        whole.push('%');
        whole.push_str(&piece[..end].to_ascii_uppercase());
        whole.push_str(&piece[end..]);
    }
    whole
}

/// Whether a path begins with a pattern, in which `*` is anything and `$` at the end is the end. Each piece is looked
/// for once, at the first place that it can be at, so that no pattern takes longer than the path is long.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, to_end) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        if to_end && pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    !to_end || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(text: &str, path: &str) -> bool {
        Rules::parse(text, "mainspring").allow(path)
    }

    #[test]
    fn the_longest_rule_of_the_own_group_decides() {
        let text = "User-agent: other\nDisallow: /\n\nUSER-AGENT: *\nDisallow: /all\n\n\
            user-agent: else\nUser-Agent: Mainspring/2 # ours\nDisallow: /private\nAllow: /private/open$\nallow: /private/*.txt\n\
            disallow:\nSitemap: x\nDisallow: /%c3%a4\n";
        for (path, expected) in [
            ("/", true),
            ("/all", true),
            ("/private/x", false),
            ("/private/open", true),
            ("/private/open/x", false),
            ("/private/a/b.txt?x=1", true),
            ("/%C3%A4/x", false),
            ("/robots.txt", true),
        ] {
            assert_eq!(allows(text, path), expected, "{path}");
        }
        assert!(!allows("User-agent: *\nDisallow: /all", "/all/x"));
        assert!(allows(
            "User-agent: *\nDisallow: /\nUser-agent: mainspring\n",
            "/all/x"
        ));
        assert!(allows("Disallow: /", "/x"), "a rule of no group");
        assert!(allows("", "/x") && allows("<html>no: such\nfile</html>", "/x"));
        assert!(allows("user-agent: *\ndisallow: /a\nallow: /a", "/a"));
    }

    #[test]
    fn patterns_hold_at_both_ends() {
        for (pattern, path, expected) in [
            ("/*.php$", "/a.php", true),
            ("/*.php$", "/a.php?x", false),
            ("/a*b*c$", "/a--b--c", true),
            ("/a*b*c$", "/a--b--cd", false),
            ("/a*$", "/abc", true),
            ("/a$", "/a", true),
            ("/a$", "/ab", false),
            ("*", "/x", true),
            ("/x*y", "/xz", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_file_and_no_path_break_it(text in "(user-agent: ?\\*|disallow: ?|\\PC|\\n|%|\\*|\\$|/){0,60}", path in "/\\PC{0,20}") {
            allows(&text, &path);
        }
    }
}
