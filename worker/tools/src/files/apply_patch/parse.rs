//! Parses patches as models write them: unified hunks, with or without line numbers.

/// A hunk of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Its first line, for messages.
    pub(crate) head: String,
    pub(crate) place: HunkPosition,
    pub(crate) lines: Vec<Line>,
    /// Whether the file ends with a line ending afterwards, if the patch says so.
    pub(crate) ends_line: Option<bool>,
}

/// Where a hunk belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HunkPosition {
    /// At this line, from 1. Line counts are ignored because models miscount, except that a count
    /// of zero means after that line.
    Line { number: usize, behind: bool },
    /// After a line with this text.
    Anchor(String),
    /// Wherever its lines occur.
    Anywhere,
}

/// A line of a hunk, without its line ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Keep(String),
    Remove(String),
    Add(String),
}

impl Hunk {
    /// The lines that must be in the file.
    pub(crate) fn old(&self) -> Vec<&str> {
        let old = self.lines.iter().filter_map(|line| match line {
            Line::Keep(text) | Line::Remove(text) => Some(text.as_str()),
            Line::Add(_) => None,
        });
        old.collect()
    }
}

/// The hunks of a patch for one file, or what is wrong with the patch.
pub(crate) fn hunks(patch: &str) -> Result<Vec<Hunk>, String> {
    let lines: Vec<&str> = patch
        .lines()
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .collect();
    let mut hunks: Vec<Hunk> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("@@") {
            finish(&mut hunks);
            hunks.push(Hunk {
                head: (*line).to_owned(),
                place: place(line),
                lines: Vec::new(),
                ends_line: None,
            });
            continue;
        }
        if begins_file(&lines, at) {
            if !hunks.is_empty() {
                return Err("the patch is for more than one file".to_owned());
            }
            continue;
        }
        match hunks.last_mut() {
            Some(hunk) => hunk.take(line, at + 1)?,
            None if is_heading(line) => {}
            None => return Err(format!("line {} of the patch is before any @@", at + 1)),
        }
    }
    finish(&mut hunks);
    if hunks.is_empty() {
        return Err("the patch has no hunk: none of its lines begins with @@".to_owned());
    }
    if let Some(empty) = hunks.iter().find(|hunk| !hunk.changes()) {
        return Err(format!("hunk {:?} adds and removes nothing", empty.head));
    }
    Ok(hunks)
}

impl Hunk {
    fn take(&mut self, line: &str, number: usize) -> Result<(), String> {
        let mut chars = line.chars();
        match chars.next() {
            // An empty line whose leading space was lost.
            None => self.lines.push(Line::Keep(String::new())),
            Some(' ') => self.lines.push(Line::Keep(chars.as_str().to_owned())),
            Some('-') => self.lines.push(Line::Remove(chars.as_str().to_owned())),
            Some('+') => self.lines.push(Line::Add(chars.as_str().to_owned())),
            // "\ No newline at end of file", which refers to the previous line.
            Some('\\') => match self.lines.last() {
                Some(Line::Remove(_)) => self.ends_line = Some(true),
                Some(_) => self.ends_line = Some(false),
                None => {}
            },
            Some('*') if is_heading(line) => {}
            Some(_) => {
                return Err(format!(
                    "line {number} of the patch begins with none of ' ', '-', '+' and @@"
                ));
            }
        }
        Ok(())
    }

    fn changes(&self) -> bool {
        self.lines.iter().any(|line| !matches!(line, Line::Keep(_)))
    }
}

/// Drops empty lines from the end of the last hunk: they only separate it from what follows.
fn finish(hunks: &mut [Hunk]) {
    if let Some(hunk) = hunks.last_mut() {
        while hunk.lines.last() == Some(&Line::Keep(String::new())) {
            hunk.lines.pop();
        }
    }
}

/// Whether a line belongs to a file header, which is redundant since the call names the file.
fn begins_file(lines: &[&str], at: usize) -> bool {
    let starts = |at: usize, prefix| {
        lines
            .get(at)
            .is_some_and(|line: &&str| line.starts_with(prefix))
    };
    // Inside a hunk, either of the two alone is a removed or added line.
    let pair = starts(at, "--- ") && starts(at + 1, "+++ ");
    let second = at > 0 && starts(at, "+++ ") && starts(at - 1, "--- ");
    pair || second || starts(at, "diff --git ") || starts(at, "*** Update File: ")
}

fn is_heading(line: &str) -> bool {
    let known = [
        "index ",
        "old mode ",
        "new mode ",
        "*** Begin Patch",
        "*** End ",
    ];
    line.trim().is_empty() || known.iter().any(|start| line.starts_with(start))
}

fn place(head: &str) -> HunkPosition {
    let inner = head.trim_start_matches('@').trim();
    if let Some(stated) = stated(inner) {
        return stated;
    }
    let text = inner.trim_end_matches('@').trim();
    if text.is_empty() {
        HunkPosition::Anywhere
    } else {
        HunkPosition::Anchor(text.to_owned())
    }
}

/// `-12,3 +12,4 @@ anything`.
fn stated(inner: &str) -> Option<HunkPosition> {
    let mut words = inner.split_whitespace();
    let old = words.next()?.strip_prefix('-')?;
    words.next()?.strip_prefix('+')?;
    let (number, count) = match old.split_once(',') {
        Some((number, count)) => (number, count.parse::<usize>().ok()?),
        None => (old, 1),
    };
    Some(HunkPosition::Line {
        number: number.parse().ok()?,
        behind: count == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(patch: &str) -> Hunk {
        let mut hunks = hunks(patch).expect("is a patch");
        assert_eq!(hunks.len(), 1, "{hunks:?}");
        hunks.remove(0)
    }

    #[test]
    fn a_hunk_says_where_it_belongs_in_three_ways() {
        let at = |head: &str| one(&format!("{head}\n-a\n")).place;
        let line = |number| HunkPosition::Line {
            number,
            behind: false,
        };
        assert_eq!(at("@@ -12,3 +14,4 @@ fn main() {"), line(12));
        assert_eq!(at("@@ -7 +7 @@"), line(7));
        assert_eq!(
            at("@@ fn main() {"),
            HunkPosition::Anchor("fn main() {".into())
        );
        assert_eq!(
            at("@@ class A: @@"),
            HunkPosition::Anchor("class A:".into())
        );
        assert_eq!(at("@@"), HunkPosition::Anywhere);
        assert_eq!(at("@@ @@"), HunkPosition::Anywhere);
        let behind = one("@@ -3,0 +4,1 @@\n+a\n").place;
        let expected = HunkPosition::Line {
            number: 3,
            behind: true,
        };
        assert_eq!(behind, expected);
    }

    #[test]
    fn headers_and_wrappers_are_passed_over() {
        let plain = one("@@ -1 +1 @@\n-a\n+b\n");
        for before in [
            "--- a/f\n+++ b/f\n",
            "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n",
            "*** Begin Patch\n*** Update File: f\n",
            "\n",
        ] {
            let patch = format!("{before}@@ -1 +1 @@\n-a\n+b\n\n*** End Patch\n");
            assert_eq!(one(&patch), plain, "{before}");
        }
        assert_eq!(
            one("@@ -1 +1 @@\r\n-a\r\n+b\r\n"),
            Hunk {
                head: "@@ -1 +1 @@".into(),
                ..plain
            }
        );
    }

    #[test]
    fn lines_that_look_like_headers_are_lines_inside_a_hunk() {
        let hunk = one("@@\n--- old\n more\n+++ new\n");
        assert_eq!(
            hunk.lines,
            [
                Line::Remove("-- old".into()),
                Line::Keep("more".into()),
                Line::Add("++ new".into())
            ]
        );
    }

    #[test]
    fn what_is_no_patch_for_one_file_is_refused() {
        for (patch, why) in [
            ("", "no hunk"),
            ("-a\n+b\n", "before any @@"),
            ("@@\nplain\n", "begins with none"),
            ("@@\n same\n", "adds and removes nothing"),
            ("@@\n-a\n--- a/g\n+++ b/g\n@@\n-b\n", "more than one file"),
            ("@@\n-a\ndiff --git a/g b/g\n", "more than one file"),
        ] {
            let fault = hunks(patch).expect_err(patch);
            assert!(fault.contains(why), "{fault}");
        }
    }
}
