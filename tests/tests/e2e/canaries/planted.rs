//! The planted secrets, the ways in which they may be encoded, and a search for them in all output.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy as _;

/// Length of a piece that is searched for: a part of a secret is a leak, too.
const PIECE: usize = 12;

/// A secret, or a control word.
#[derive(Debug)]
struct Canary {
    /// The kind of secret.
    name: &'static str,
    text: String,
    /// The decoded bytes, if it is base64 of something.
    meaning: Vec<u8>,
    /// The folders in which it may appear.
    belongs: &'static [&'static str],
}

/// Everything that was planted. No two secrets start alike, so a filter that hides one by its looks
/// does not hide another.
#[derive(Debug, Default)]
pub(super) struct Planted(Vec<Canary>);

/// Names of canaries that were found, each with the file.
pub(super) type Found = BTreeSet<(&'static str, String)>;

impl Planted {
    /// A new secret of this kind, which may appear only in the folders below `belongs`: 32 letters
    /// and digits, which are also valid base64.
    pub(super) fn secret(
        &mut self,
        name: &'static str,
        belongs: &'static [&'static str],
    ) -> String {
        let text = random();
        self.note(name, &text, belongs);
        text
    }

    /// A new secret in the form of a webhook signing key.
    pub(super) fn signing(
        &mut self,
        name: &'static str,
        belongs: &'static [&'static str],
    ) -> String {
        format!("whsec_{}", self.secret(name, belongs))
    }

    /// A new secret in the form of a key that seals secrets in the database: 32 bytes.
    pub(super) fn sealing(&mut self, name: &'static str) -> String {
        format!("{}0123456789A=", self.secret(name, &[]))
    }

    /// Adds a secret that was generated elsewhere.
    pub(super) fn note(
        &mut self,
        name: &'static str,
        text: &str,
        belongs: &'static [&'static str],
    ) {
        assert!(
            self.0.iter().all(|canary| canary.name != name),
            "{name} twice"
        );
        self.0.push(Canary {
            name,
            meaning: base64_decoded(text),
            text: text.to_owned(),
            belongs,
        });
    }

    /// Number of secrets, each of a different kind.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Canaries that were not found in one of the folders where they belong.
    pub(super) fn missed(&self, found: &Found) -> Vec<&'static str> {
        let is_there = |canary: &&Canary, place: &&str| {
            let named =
                |(name, file): &(&str, String)| *name == canary.name && file.starts_with(place);
            found.iter().any(named)
        };
        let missed = self
            .0
            .iter()
            .filter(|canary| canary.belongs.iter().any(|place| !is_there(canary, place)));
        missed.map(|canary| canary.name).collect()
    }

    /// The findings in places where the canary does not belong.
    pub(super) fn strays(&self, found: &Found) -> Found {
        let strays = found.iter().filter(|(name, file)| {
            let canary = self.0.iter().find(|canary| canary.name == *name);
            let belongs = canary.map_or(&[][..], |canary| canary.belongs);
            !belongs.iter().any(|place| file.starts_with(place))
        });
        strays.cloned().collect()
    }

    /// Searches this folder for all of them, in every encoding.
    pub(super) fn found(&self, folder: &Path) -> Result<Found> {
        let mut pieces = BTreeMap::new();
        for canary in &self.0 {
            for piece in canary.pieces() {
                pieces.insert(piece, canary.name);
            }
        }
        let list = tempfile::NamedTempFile::new()?;
        let lines: Vec<&str> = pieces.keys().map(String::as_str).collect();
        std::fs::write(list.path(), lines.join("\n") + "\n")?;
        let output = Command::new("grep")
            .args(["-r", "-a", "-o", "-F", "-f"])
            .arg(list.path())
            .arg(".")
            .current_dir(folder)
            .env("LC_ALL", "C")
            .output()?;
        // Exit code 1 means that nothing was found.
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(matches!(output.status.code(), Some(0 | 1)), "grep: {said}");
        let mut found = Found::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let (file, piece) = line.rsplit_once(':').context("a file and a piece")?;
            let name = pieces.get(piece).context("a piece of ours")?;
            found.insert((*name, file.trim_start_matches("./").to_owned()));
        }
        Ok(found)
    }
}

impl Canary {
    /// Parts of it, in every encoding.
    fn pieces(&self) -> BTreeSet<String> {
        let mut pieces = BTreeSet::new();
        let text = self.text.as_str();
        let last = text.len() - PIECE;
        for at in [0, last / 2, last] {
            pieces.insert(text[at..at + PIECE].to_owned());
        }
        for bytes in [text.as_bytes(), self.meaning.as_slice()] {
            let Some(bytes) = bytes.get(..2 * PIECE) else {
                continue;
            };
            let (head, tail) = bytes.split_at(PIECE);
            for part in [head, tail] {
                let hex = hex(part);
                pieces.insert(hex.to_uppercase());
                pieces.insert(hex);
                let numbers: Vec<String> = part.iter().map(u8::to_string).collect();
                pieces.insert(numbers.join(", "));
                pieces.insert(numbers.join(","));
            }
            // Preceding bytes shift its position within base64 groups of three by up to two bytes.
            for before in 0..3 {
                let mut moved = vec![0; before];
                moved.extend(bytes);
                let written = base64(&moved);
                let piece = &written[4..4 + 2 * PIECE];
                pieces.insert(piece.replace('+', "-").replace('/', "_"));
                pieces.insert(piece.to_owned());
            }
        }
        pieces
    }
}

/// A unique text.
pub(super) fn random() -> String {
    OsEntropy.random_id().as_simple().to_string()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 without padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().enumerate().fold(0_u32, |bits, (at, byte)| {
            bits | u32::from(*byte) << (16 - 8 * at)
        });
        for at in 0..=three.len() {
            let digit = (bits >> (18 - 6 * at)) & 63;
            text.push(char::from(DIGITS[digit as usize]));
        }
    }
    text
}

/// Decodes base64; empty if the text is not base64.
fn base64_decoded(text: &str) -> Vec<u8> {
    let digits: Option<Vec<u32>> = text
        .bytes()
        .map(|byte| DIGITS.iter().position(|digit| *digit == byte))
        .map(|at| at.and_then(|at| u32::try_from(at).ok()))
        .collect();
    let mut bytes = Vec::new();
    for four in digits.unwrap_or_default().chunks_exact(4) {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit);
        bytes.extend(&bits.to_be_bytes()[1..]);
    }
    bytes
}

#[test]
fn a_secret_is_found_however_it_is_written_and_only_where_it_does_not_belong() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut planted = Planted::default();
    let text = planted.secret("the one", &["right"]);
    let whole = text.as_bytes();
    let meaning = base64_decoded(&text);
    ensure!(meaning.len() == 24 && base64(&meaning) == text);
    ensure!(base64(b"any carnal pleas") == "YW55IGNhcm5hbCBwbGVhcw");
    let ways = [
        text.clone(),
        text[..14].to_owned(),
        text[text.len() - 14..].to_owned(),
        hex(whole),
        hex(whole).to_uppercase(),
        hex(&meaning),
        format!("{whole:?}"),
        base64(whole),
        base64(format!("u:{text}").as_bytes()),
        base64(format!("user:{text}").as_bytes()),
    ];
    for folder_name in ["right", "wrong"] {
        std::fs::create_dir(folder.path().join(folder_name))?;
    }
    for (n, way) in ways.iter().enumerate() {
        std::fs::write(folder.path().join(format!("right/{n}")), way)?;
    }
    let found = planted.found(folder.path())?;
    ensure!(found.len() == ways.len() && planted.strays(&found).is_empty());
    ensure!(planted.missed(&found).is_empty());
    ensure!(planted.missed(&Found::new()) == ["the one"]);
    for (n, way) in ways.iter().enumerate() {
        let around = format!("\0before {way} behind");
        std::fs::write(folder.path().join(format!("wrong/{n}")), around)?;
    }
    let strays = planted.strays(&planted.found(folder.path())?);
    let missed: Vec<_> = (0..ways.len())
        .filter(|n| !strays.contains(&("the one", format!("wrong/{n}"))))
        .collect();
    ensure!(missed.is_empty(), "missed: {missed:?} of {ways:?}");
    Ok(())
}
