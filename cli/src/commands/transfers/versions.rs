//! The versions of an agent: which ones of an export already exist here, and under which numbers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::AgentLine;
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};

/// The agent whose versions are being read. An export's versions are matched in order against the
/// existing ones: earlier imports are found again, and the same spec may occur more than once.
#[derive(Debug)]
pub(super) struct Versions {
    pub(super) name: String,
    /// Hashes and numbers of the existing versions, oldest first.
    there: Vec<(String, i64)>,
    /// The versions before this index have been matched.
    place: usize,
    /// Maps the export's version numbers to the numbers here.
    numbers: BTreeMap<i64, i64>,
    /// Whether the newest version here is the export's last one.
    is_newest: bool,
}

impl Versions {
    pub(super) async fn read(client: &Client, name: &str) -> Result<Self, Failure> {
        let path = format!("/v1/agents/{name}/versions");
        let mut there = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let request = Request::get(&path).query("cursor", cursor.as_ref());
            let page = match client.ask(request).await {
                Ok(page) => page,
                Err(failure) if failure.exit == Exit::NotFound => break,
                Err(failure) => return Err(failure),
            };
            let rows = page["data"].as_array().into_iter().flatten();
            there.extend(rows.filter_map(|row| {
                let hash = row["hash"].as_str()?.to_owned();
                Some((hash, row["version"].as_i64()?))
            }));
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        there.reverse();
        Ok(Self {
            name: name.to_owned(),
            there,
            place: 0,
            numbers: BTreeMap::new(),
            is_newest: false,
        })
    }

    /// Finds a version or publishes it; returns whether it was published.
    pub(super) async fn take(&mut self, client: &Client, line: AgentLine) -> Result<bool, Failure> {
        self.is_newest = false;
        let behind = &self.there[self.place..];
        if let Some(found) = behind.iter().position(|(hash, _)| *hash == line.hash) {
            self.numbers.insert(line.version, behind[found].1);
            self.place += found + 1;
            self.is_newest = self.place == self.there.len();
            return Ok(false);
        }
        let body = json!({ "name": line.name, "spec": line.spec });
        let request = Request::post("/v1/agents").body(body);
        let (is_new, made) = client.make(request.key(client.fresh_key())).await?;
        if let Some(number) = made["version"].as_i64() {
            self.numbers.insert(line.version, number);
        }
        self.place = self.there.len();
        self.is_newest = true;
        Ok(is_new)
    }

    /// The number here of one of the export's versions.
    pub(super) fn number(&self, version: &Value) -> Option<i64> {
        self.numbers.get(&version.as_i64()?).copied()
    }

    pub(super) fn is_newest(&self) -> bool {
        self.is_newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(there: &[&str]) -> Versions {
        let numbered = there.iter().zip(1..);
        Versions {
            name: "reviewer".into(),
            there: numbered.map(|(hash, n)| ((*hash).to_owned(), n)).collect(),
            place: 0,
            numbers: BTreeMap::new(),
            is_newest: false,
        }
    }

    fn line(version: i64, hash: &str) -> AgentLine {
        AgentLine {
            name: "reviewer".into(),
            version,
            hash: hash.into(),
            spec: json!({}),
        }
    }

    #[tokio::test]
    async fn what_was_imported_is_found_in_its_order() {
        // Another test may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::new(&crate::config::Config::default()).expect("a client");
        let mut versions = of(&["own", "a", "b", "a"]);
        for (version, hash) in [(1, "a"), (2, "b"), (3, "a")] {
            let published = versions.take(&client, line(version, hash)).await;
            assert!(!published.expect("is found"), "{hash}");
        }
        assert_eq!(versions.number(&json!(1)), Some(2));
        assert_eq!(versions.number(&json!(3)), Some(4));
        assert_eq!(versions.number(&json!(4)), None);
        assert!(versions.is_newest());
    }
}
