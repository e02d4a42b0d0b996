//! Encryption of secrets that have to be read again, under a key of the operator that is never in
//! the database.

use std::fmt;

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainspring_shared::entropy::Entropy;
use sha2::{Digest, Sha256};

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Bytes of a nonce. Nonces are random, which is safe for some billions of secrets under one key.
const NONCE_BYTES: usize = 12;

/// The first part of a sealed secret: the scheme with which it was sealed.
const VERSION: &str = "v1";

/// Seals secrets with AES-256-GCM. The first key seals; all keys open.
pub struct Sealer {
    keys: Vec<(String, Aes256Gcm)>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|(id, _)| id);
        f.debug_list().entries(ids).finish()
    }
}

/// Keys cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no key.
    #[error("there is no key")]
    None,
    /// A key has the wrong format.
    #[error("key {place} is not the base64 of 32 bytes")]
    Invalid {
        /// The number of the key, from 1.
        place: usize,
    },
}

/// A sealed secret cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is sealed under a key that this process does not have.
    #[error("it is encrypted with the key {id}, which this process does not have")]
    UnknownKey {
        /// The key's id.
        id: String,
    },
    /// It was changed, or sealed for another context.
    #[error("it was changed, or sealed for something else")]
    Broken,
}

impl Sealer {
    /// Parses keys: each the base64 of 32 random bytes, separated by whitespace or commas.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        let words = words.filter(|word| !word.is_empty());
        let keys = words.zip(1..).map(|(word, place)| {
            let bytes = STANDARD.decode(word).ok();
            let bytes: Option<[u8; KEY_BYTES]> = bytes.and_then(|bytes| bytes.try_into().ok());
            let bytes = bytes.ok_or(KeyError::Invalid { place })?;
            Ok((id_of(&bytes), Aes256Gcm::new(&bytes.into())))
        });
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(KeyError::None);
        }
        Ok(Self { keys })
    }

    /// Generates a key, in the format that [`parse`](Self::parse) reads.
    pub fn new_key(entropy: &dyn Entropy) -> String {
        // Two random ids have 244 random bits; four have more than the 256 bits of a key.
        let mut hash = Sha256::new();
        for _ in 0..4 {
            hash.update(entropy.random_id().as_bytes());
        }
        STANDARD.encode(hash.finalize())
    }

    /// Seals a secret for `context`; it cannot be opened for any other.
    pub fn seal(&self, entropy: &dyn Entropy, context: &str, secret: &[u8]) -> String {
        let (id, cipher) = &self.keys[0];
        let random = Sha256::digest(
            [entropy.random_id(), entropy.random_id()]
                .map(uuid::Uuid::into_bytes)
                .concat(),
        );
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&random[..NONCE_BYTES]);
        let payload = Payload {
            msg: secret,
            aad: context.as_bytes(),
        };
        let sealed = cipher
            .encrypt(&Nonce::from(nonce), payload)
            .expect("a secret is far shorter than what the cipher takes");
        let (nonce, sealed) = (STANDARD.encode(nonce), STANDARD.encode(sealed));
        format!("{VERSION}.{id}.{nonce}.{sealed}")
    }

    /// Opens a secret that was sealed for `context`.
    pub fn open(&self, context: &str, sealed: &str) -> Result<Vec<u8>, OpenError> {
        let parts: Vec<&str> = sealed.split('.').collect();
        let [VERSION, id, nonce, sealed] = parts[..] else {
            return Err(OpenError::Broken);
        };
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| OpenError::Broken);
        let nonce: [u8; NONCE_BYTES] = decode(nonce)?.try_into().map_err(|_| OpenError::Broken)?;
        let sealed = decode(sealed)?;
        let mut keys = self.keys.iter();
        let key = keys.find(|(known, _)| known == id);
        let (_, cipher) = key.ok_or_else(|| OpenError::UnknownKey { id: id.to_owned() })?;
        let payload = Payload {
            msg: &sealed,
            aad: context.as_bytes(),
        };
        let opened = cipher.decrypt(&Nonce::from(nonce), payload);
        opened.map_err(|_| OpenError::Broken)
    }
}

/// The id of a key: enough of a hash to tell keys apart, and too little to find the key.
fn id_of(key: &[u8; KEY_BYTES]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"mainspring key id");
    hash.update(key);
    let digest = hash.finalize();
    digest[..4].iter().fold(String::new(), |mut id, byte| {
        use fmt::Write as _;
        let _ = write!(id, "{byte:02x}");
        id
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsEntropy;

    fn sealer(keys: &[&str]) -> Sealer {
        Sealer::parse(&keys.join(" ")).expect("keys")
    }

    #[test]
    fn what_was_sealed_opens_for_what_it_was_sealed_for() {
        let key = Sealer::new_key(&OsEntropy);
        let sealed = sealer(&[&key]).seal(&OsEntropy, "a", b"secret");
        assert!(!sealed.contains("secret"));
        assert_eq!(sealer(&[&key]).open("a", &sealed), Ok(b"secret".to_vec()));
        assert_eq!(sealer(&[&key]).open("b", &sealed), Err(OpenError::Broken));
        let again = sealer(&[&key]).seal(&OsEntropy, "a", b"secret");
        assert_ne!(again, sealed, "each has a nonce of its own");
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let key = Sealer::new_key(&OsEntropy);
        let sealed = sealer(&[&key]).seal(&OsEntropy, "a", b"secret");
        let (head, tail) = sealed.rsplit_once('.').expect("it has parts");
        let mut bytes = STANDARD.decode(tail).expect("base64");
        bytes[0] ^= 1;
        let changed = format!("{head}.{}", STANDARD.encode(bytes));
        for broken in [changed.as_str(), "", "v1", "v2.a.b.c", head] {
            assert_eq!(sealer(&[&key]).open("a", broken), Err(OpenError::Broken));
        }
    }

    #[test]
    fn an_old_key_still_opens_and_a_missing_one_is_named() {
        let (old, new) = (Sealer::new_key(&OsEntropy), Sealer::new_key(&OsEntropy));
        let sealed = sealer(&[&old]).seal(&OsEntropy, "a", b"secret");
        assert!(sealer(&[&new, &old]).open("a", &sealed).is_ok());
        let error = sealer(&[&new])
            .open("a", &sealed)
            .expect_err("it is under the old one");
        assert!(matches!(error, OpenError::UnknownKey { .. }), "{error}");
        let renewed = sealer(&[&new, &old]).seal(&OsEntropy, "a", b"secret");
        assert!(
            sealer(&[&new]).open("a", &renewed).is_ok(),
            "the first one seals"
        );
    }

    #[test]
    fn what_is_no_key_is_named_by_its_place_and_not_shown() {
        let key = Sealer::new_key(&OsEntropy);
        let error = Sealer::parse(&format!("{key},abc")).expect_err("it is short");
        assert_eq!(error, KeyError::Invalid { place: 2 });
        assert_eq!(Sealer::parse(" , ").expect_err("none"), KeyError::None);
        assert!(!format!("{:?}", sealer(&[&key])).contains(&key[..8]));
    }
}
