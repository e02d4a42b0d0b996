//! Applies hunks where they belong.

use std::cell::Cell;
use std::fmt::Write as _;

use super::parse::{Hunk, HunkPosition, Line};
use crate::files::text::line_end;

/// Maximum number of places reported for an ambiguous hunk.
const PLACES_SAID_MAX: usize = 5;

/// Maximum work of locating the hunks of a patch in a file, in bytes that are compared. A sensible
/// patch needs a few times the bytes of the file.
const WORK_MAX: u64 = 256 << 20;

/// A text with all hunks applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) text: String,
    /// What was done, in words.
    pub(crate) said: String,
}

/// Applies all hunks to a text, in order, or returns why one cannot be applied.
pub(crate) fn apply(text: &str, hunks: &[Hunk]) -> Result<Applied, String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut file = File {
        texts: lines.iter().map(|line| without_end(line)).collect(),
        // Where the previous hunk ended; hunks do not overlap.
        from: 0,
        moved: 0,
        work: Cell::new(WORK_MAX),
    };
    let end = line_end(text);
    let mut ends_line = text.is_empty() || text.ends_with('\n');
    let mut result = String::with_capacity(text.len());
    let mut said = match hunks.len() {
        1 => "1 hunk is applied".to_owned(),
        n => format!("{n} hunks are applied"),
    };
    for (hunk, number) in hunks.iter().zip(1..) {
        let before = file.from;
        let at = file
            .find(hunk)
            .map_err(|why| format!("hunk {number} ({}) {why}", hunk.head))?;
        if let HunkPosition::Line { number: stated, .. } = hunk.place
            && file.moved != 0
        {
            let _ = write!(
                said,
                "; hunk {number} at line {} instead of {stated}",
                at + 1
            );
        }
        push_all(&mut result, &lines[before..at], end);
        let mut kept = at;
        for line in &hunk.lines {
            match line {
                // The file's own line: its end may differ from the patch's.
                Line::Keep(_) => {
                    push_all(&mut result, &lines[kept..=kept], end);
                    kept += 1;
                }
                Line::Remove(_) => kept += 1,
                Line::Add(text) => {
                    result.push_str(text);
                    result.push_str(end);
                }
            }
        }
        file.from = kept;
        if kept == lines.len() {
            ends_line = hunk.ends_line.unwrap_or(ends_line);
        }
    }
    push_all(&mut result, &lines[file.from..], end);
    if !ends_line {
        let bare = without_end(&result).len();
        result.truncate(bare);
    }
    Ok(Applied { text: result, said })
}

/// Appends lines, each with a line ending: the last one may have had none, and others may follow.
fn push_all(result: &mut String, lines: &[&str], end: &str) {
    for line in lines {
        result.push_str(line);
        if !line.ends_with('\n') {
            result.push_str(end);
        }
    }
}

fn without_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// How exactly lines have to match.
#[derive(Debug, Clone, Copy)]
enum Fit {
    Exact,
    /// Ignoring spaces at their ends.
    Loose,
}

/// A file in which hunks are located.
#[derive(Debug)]
struct File<'a> {
    texts: Vec<&'a str>,
    from: usize,
    /// The offset of the last hunk from its stated line.
    moved: isize,
    /// The work that is left. When there is none, nothing fits any more.
    work: Cell<u64>,
}

impl File<'_> {
    /// The line, from 0, at which the hunk applies.
    fn find(&mut self, hunk: &Hunk) -> Result<usize, String> {
        let old = hunk.old();
        let found = if old.is_empty() {
            self.insertion(hunk)
        } else {
            match &hunk.place {
                HunkPosition::Line { number, .. } => self.stated(&old, number.saturating_sub(1)),
                HunkPosition::Anchor(anchor) => self.behind_anchor(&old, anchor),
                HunkPosition::Anywhere => self.only(&old, None),
            }
        };
        if self.work.get() == 0 {
            return Err("takes too long to locate: give the numbers of its lines".to_owned());
        }
        let at = found?;
        if let HunkPosition::Line { number, behind } = hunk.place {
            let stated = if behind {
                number
            } else {
                number.saturating_sub(1)
            };
            self.moved = at as isize - stated as isize;
        }
        Ok(at)
    }

    /// The stated line if the hunk fits there, however often it fits elsewhere; otherwise the only
    /// line where it fits. Once a hunk was off its stated line, the line at the same offset counts
    /// as much as the stated one.
    fn stated(&self, old: &[&str], stated: usize) -> Result<usize, String> {
        for fit in [Fit::Exact, Fit::Loose] {
            let mut places = vec![stated];
            places.extend(stated.checked_add_signed(self.moved));
            places.dedup();
            places.retain(|at| *at >= self.from && self.fits(old, *at, fit));
            if !places.is_empty() {
                return single(&places);
            }
        }
        self.only(old, Some(stated))
    }

    fn behind_anchor(&self, old: &[&str], anchor: &str) -> Result<usize, String> {
        let anchors = self.anchors(anchor)?;
        for fit in [Fit::Exact, Fit::Loose] {
            let mut places: Vec<usize> = anchors
                .iter()
                .filter_map(|anchor| self.places(old, *anchor, fit).next())
                .collect();
            places.dedup();
            if !places.is_empty() {
                return single(&places);
            }
        }
        Err(self.missing(old, None))
    }

    fn only(&self, old: &[&str], stated: Option<usize>) -> Result<usize, String> {
        for fit in [Fit::Exact, Fit::Loose] {
            let places: Vec<usize> = self.places(old, self.from, fit).collect();
            if !places.is_empty() {
                return single(&places);
            }
        }
        Err(self.missing(old, stated))
    }

    /// Where to insert a hunk that has no line in common with the file.
    fn insertion(&self, hunk: &Hunk) -> Result<usize, String> {
        let at = match &hunk.place {
            HunkPosition::Line { number, behind } => {
                let stated = if *behind {
                    *number
                } else {
                    number.saturating_sub(1)
                };
                stated.checked_add_signed(self.moved)
            }
            HunkPosition::Anchor(anchor) => Some(single(&self.anchors(anchor)?)? + 1),
            HunkPosition::Anywhere if self.texts.is_empty() => Some(0),
            HunkPosition::Anywhere => {
                return Err("has no line of the file that says where it belongs".to_owned());
            }
        };
        at.filter(|at| (self.from..=self.texts.len()).contains(at))
            .ok_or_else(|| {
                format!(
                    "belongs to no line between {} and {}, where it has to be",
                    self.from,
                    self.texts.len()
                )
            })
    }

    /// The lines whose text equals the anchor; if there are none, those that contain it.
    fn anchors(&self, anchor: &str) -> Result<Vec<usize>, String> {
        let rest = || {
            let rest = self.texts.iter().enumerate().skip(self.from);
            rest.take_while(|(_, text)| self.charge(text))
        };
        let whole = rest().filter(|(_, text)| text.trim() == anchor);
        let mut anchors: Vec<usize> = whole.map(|(at, _)| at).collect();
        if anchors.is_empty() {
            let within = rest().filter(|(_, text)| text.contains(anchor));
            anchors = within.map(|(at, _)| at).collect();
        }
        if anchors.is_empty() {
            return Err(format!(
                "names {anchor:?}, which no line after {} contains",
                self.from
            ));
        }
        Ok(anchors)
    }

    fn places(&self, old: &[&str], from: usize, fit: Fit) -> impl Iterator<Item = usize> {
        let last = self.texts.len().checked_sub(old.len());
        let all = last.map(|last| from..=last).into_iter().flatten();
        all.filter(move |at| self.fits(old, *at, fit))
    }

    fn fits(&self, old: &[&str], at: usize, fit: Fit) -> bool {
        let Some(here) = self.texts.get(at..at.saturating_add(old.len())) else {
            return false;
        };
        here.iter().zip(old).all(|(here, old)| {
            self.charge(here)
                && match fit {
                    Fit::Exact => here == old,
                    Fit::Loose => here.trim_end() == old.trim_end(),
                }
        })
    }

    /// Charges for a look at a line. Returns whether there is work left.
    fn charge(&self, line: &str) -> bool {
        let left = self.work.get().saturating_sub(line.len() as u64 + 8);
        self.work.set(left);
        left > 0
    }

    fn missing(&self, old: &[&str], stated: Option<usize>) -> String {
        let mut said = "does not fit: its lines are not in the file".to_owned();
        if self.from > 0 {
            let _ = write!(said, " behind line {}", self.from);
        }
        let Some(here) = stated.and_then(|at| self.texts.get(at..)) else {
            return said;
        };
        let differ = |(here, old): &(&&str, &&str)| here.trim_end() != old.trim_end();
        if let Some((here, old)) = here.iter().zip(old).find(differ) {
            let _ = write!(
                said,
                "; where it says, there is {here:?} instead of {old:?}"
            );
        }
        said
    }
}

fn single(places: &[usize]) -> Result<usize, String> {
    if let [at] = places {
        return Ok(*at);
    }
    let mut said = format!("fits {} places, at lines ", places.len());
    for (n, at) in places.iter().take(PLACES_SAID_MAX).enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        let _ = write!(said, "{comma}{}", at + 1);
    }
    if places.len() > PLACES_SAID_MAX {
        said.push_str(", …");
    }
    said.push_str(": give more lines around it or its line number");
    Err(said)
}

#[cfg(test)]
mod tests;
