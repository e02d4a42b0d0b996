//! An uploaded skill: a ZIP archive, or its files as JSON.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mainspring_scheduler::error::{Error, FieldError};
use mainspring_shared::error::Code;
use mainspring_shared::skill::{
    SKILL_BYTES_MAX, SKILL_FILES_MAX, Skill, SkillFault, is_ignored, unwrapped,
};
use mainspring_shared::store::IdempotencyKey;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::access::Caller;
use crate::extract::{Whole, expect_kind, is_json, parse, push, read_body, run_blocking};
use crate::idempotency;
use crate::router::Api;

/// The media type of an archive.
pub(crate) const ARCHIVE: &str = "application/zip";

/// The accepted media types, for error messages.
const KINDS: &str = "application/zip or application/json";

const ROUTE: &str = "POST /v1/skills";

/// Maximum bytes of a body: a whole skill in base64, with its paths.
const BODY_BYTES_MAX: usize = SKILL_BYTES_MAX / 3 * 4 + (1 << 20);

/// Maximum number of entries of an archive: its files, their folders, and entries that are not part
/// of the skill.
const ENTRIES_MAX: usize = 4 * SKILL_FILES_MAX;

/// The files of a skill, by their paths in its folder.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillBody {
    /// Each path with the file's text, or with `{"base64": …}`.
    #[schema(value_type = Object)]
    files: BTreeMap<String, Content>,
}

/// A file's content.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text, or {\"base64\": BYTES}")]
enum Content {
    Text(String),
    Bytes(Encoded),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    base64: String,
}

/// Reads a skill, and the idempotency key of its request.
pub(super) async fn read(
    app: &Api,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Skill, Option<IdempotencyKey>), Error> {
    let is_archive = is_archive(headers);
    if !is_archive && headers.contains_key(CONTENT_TYPE) {
        expect_kind(headers, &[], is_json, KINDS)?;
    }
    let whole = read_body(app, headers, body, BODY_BYTES_MAX).await?;
    if !is_archive {
        expect_kind(headers, &whole, is_json, KINDS)?;
    }
    let key = match idempotency::header(headers)? {
        None => None,
        Some(_) if !is_archive => idempotency::of_request(caller, headers, ROUTE, &whole)?,
        Some(key) => {
            let hash = Sha256::digest(&*whole).into();
            Some(idempotency::key(caller, ROUTE, key, hash))
        }
    };
    let skill = run_blocking(|| skill(&whole, is_archive))?;
    Ok((skill, key))
}

fn is_archive(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    essence.is_some_and(|essence| {
        essence.eq_ignore_ascii_case(ARCHIVE)
            || essence.eq_ignore_ascii_case("application/x-zip-compressed")
    })
}

fn skill(body: &Whole, is_archive: bool) -> Result<Skill, Error> {
    let files = if is_archive {
        unpacked(body).map_err(|fault| invalid(vec![fault]))?
    } else {
        decoded(parse(body, "")?)?
    };
    let (folder, files) = unwrapped(files);
    Skill::read(folder.as_deref(), files).map_err(invalid)
}

fn decoded(body: SkillBody) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut files = BTreeMap::new();
    let mut errors = Vec::new();
    for (path, content) in body.files {
        let content = match content {
            Content::Text(text) => text.into_bytes(),
            Content::Bytes(Encoded { base64 }) => match BASE64_STANDARD.decode(base64) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let mut pointer = "/files".to_owned();
                    push(&mut pointer, &path);
                    pointer.push_str("/base64");
                    let detail = format!("is not base64: {error}");
                    errors.push(FieldError { pointer, detail });
                    continue;
                }
            },
        };
        if !path.split('/').any(is_ignored) {
            files.insert(path, content);
        }
    }
    if errors.is_empty() {
        Ok(files)
    } else {
        Err(Error::invalid_members(errors))
    }
}

/// The files of an archive. The sizes in its directory are not trusted: reading stops at the limits
/// of a skill. Paths are checked with the rest of the skill, and nothing is written to disk here.
fn unpacked(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, SkillFault> {
    let broken =
        |error: &ZipError| SkillFault::of("", format!("the archive cannot be read: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| broken(&error))?;
    if archive.len() > ENTRIES_MAX {
        let detail = format!("the archive has more than {ENTRIES_MAX} entries");
        return Err(SkillFault::of("", detail));
    }
    if archive.has_duplicate_names() {
        return Err(SkillFault::of(
            "",
            "the archive has two entries of one name",
        ));
    }
    let mut files = BTreeMap::new();
    let mut room = SKILL_BYTES_MAX as u64;
    for index in 0..archive.len() {
        // Look at the raw entry first: an encrypted one can only be opened raw.
        let entry = archive
            .by_index_raw(index)
            .map_err(|error| broken(&error))?;
        let path = entry.name().map_err(|error| broken(&error))?.into_owned();
        if entry.encrypted() {
            return Err(SkillFault::of(&path, "is encrypted"));
        }
        if entry.is_symlink() {
            return Err(SkillFault::of(&path, "is a link; a skill has only files"));
        }
        let is_dir = entry.is_dir();
        drop(entry);
        if is_dir || path.split('/').any(is_ignored) {
            continue;
        }
        let entry = archive.by_index(index);
        let entry = entry.map_err(|error| SkillFault::of(&path, error.to_string()))?;
        let mut content = Vec::new();
        let read = entry.take(room + 1).read_to_end(&mut content);
        read.map_err(|error| SkillFault::of(&path, format!("cannot be read: {error}")))?;
        let length = content.len() as u64;
        if length > room {
            let detail = format!("unpacked, a skill has at most {SKILL_BYTES_MAX} bytes");
            return Err(SkillFault::of("", detail));
        }
        room -= length;
        files.insert(path, content);
    }
    Ok(files)
}

/// `skill.invalid`, with a pointer to the file for each fault.
fn invalid(faults: Vec<SkillFault>) -> Error {
    let errors = faults.into_iter().map(|fault| {
        let mut pointer = "/files".to_owned();
        if !fault.path.is_empty() {
            push(&mut pointer, &fault.path);
        }
        FieldError {
            pointer,
            detail: fault.detail,
        }
    });
    Error::with_members(Code::SkillInvalid, errors.collect())
}
