//! A container image of nothing but the program: the layout of an OCI image, in a tar that `docker load` takes as well.

use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::contents::{Contents, document, said};
use super::elf::Needs;
use super::sha256;
use super::tree::{self, Effort, Tree};

/// By number, so that a cluster can see that it is not root.
pub(super) const USER: u32 = 65532;

/// The program in the image.
pub(super) const PROGRAM: &str = "/usr/local/bin/mainspring";

/// What programs that ask for names find. Nothing else is of the user's.
const USERS: &str =
    "root:x:0:0:root:/:/sbin/nologin\nmainspring:x:65532:65532:mainspring:/tmp:/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nmainspring:x:65532:\n";

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image in its file.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// What a registry knows it by.
    pub(super) digest: String,
}

pub(super) fn make(contents: &Contents, effort: Effort) -> anyhow::Result<Image> {
    let layer = root(contents)?.with_folders().tar(contents.epoch)?;
    let mut blobs = Blobs::default();
    let unpacked = format!("sha256:{}", sha256(&layer));
    let layer = blobs.add(LAYER, tree::gzip(&layer, effort)?);
    let config = blobs.add(CONFIG, config(contents, &unpacked).to_string().into_bytes());
    let labels = labels(contents);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": labels,
    });
    let mut manifest = blobs.add(MANIFEST, manifest.to_string().into_bytes());
    let digest = manifest["digest"].as_str().context("a digest")?.to_owned();
    let processor = contents.program.processor.debian;
    manifest["platform"] = json!({ "architecture": processor, "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": contents.version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    let loaded = json!([{
        "Config": path(&config)?,
        "RepoTags": [format!("mainspring:{}", contents.version)],
        "Layers": [path(&layer)?],
    }]);
    let mut tree = Tree::default();
    tree.file("oci-layout", *br#"{"imageLayoutVersion":"1.0.0"}"#);
    tree.file("index.json", index.to_string().into_bytes());
    tree.file("manifest.json", loaded.to_string().into_bytes());
    for (path, blob) in blobs.files {
        tree.file(path, blob);
    }
    Ok(Image {
        name: format!("mainspring-{}-oci-{processor}.tar", contents.version),
        bytes: tree.with_folders().tar(contents.epoch)?,
        digest,
    })
}

/// The files that a container sees. Certificates are in the program, unless some are mounted.
fn root(contents: &Contents) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    tree.file("etc/passwd", USERS.as_bytes());
    tree.file("etc/group", GROUPS.as_bytes());
    tree.folder("tmp", 0o1777);
    for path in libraries(contents)? {
        tree.program(path.trim_start_matches('/'), document(&path)?);
    }
    tree.program(
        PROGRAM.trim_start_matches('/'),
        contents.program.bytes.clone(),
    );
    tree.file("usr/share/doc/mainspring/LICENSE", document("LICENSE")?);
    // Where scanners of images look for it.
    tree.file(
        "usr/share/doc/mainspring/mainspring.cdx.json",
        contents.sbom.as_slice(),
    );
    Ok(tree)
}

/// The libraries of this machine that a linked program needs: it is packed to be tried, not to be published.
fn libraries(contents: &Contents) -> anyhow::Result<Vec<String>> {
    if contents.program.needs == Needs::Nothing {
        return Ok(Vec::new());
    }
    let lines = said(Command::new("ldd").arg(&contents.program.file))?;
    let path = |line: &str| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(str::to_owned)
    };
    Ok(lines.lines().filter_map(path).collect())
}

fn config(contents: &Contents, unpacked: &str) -> Value {
    json!({
        "created": contents.created,
        "architecture": contents.program.processor.debian,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "7464/tcp": {}, "7465/tcp": {} },
            "Env": ["PATH=/usr/local/bin"],
            "Entrypoint": [PROGRAM],
            "Cmd": ["--help"],
            // Nothing is written but below volumes and here.
            "WorkingDir": "/tmp",
            "Labels": labels(contents),
            // A scheduler finishes requests, a worker model calls; a second signal ends at once.
            "StopSignal": "SIGTERM",
        },
        "rootfs": { "type": "layers", "diff_ids": [unpacked] },
        "history": [{ "created": contents.created, "created_by": "cargo xtask package" }],
    })
}

fn labels(contents: &Contents) -> Value {
    json!({
        "org.opencontainers.image.title": "mainspring",
        "org.opencontainers.image.description": "LLM agents as durable, distributed work",
        "org.opencontainers.image.licenses": "MIT",
        "org.opencontainers.image.version": contents.version,
        "org.opencontainers.image.revision": contents.revision,
        "org.opencontainers.image.created": contents.created,
    })
}

/// Files named by their hash.
#[derive(Debug, Default)]
struct Blobs {
    files: Vec<(String, Vec<u8>)>,
}

impl Blobs {
    /// Adds one, and returns how others refer to it.
    fn add(&mut self, kind: &str, content: Vec<u8>) -> Value {
        let hash = sha256(&content);
        let size = content.len();
        self.files.push((format!("blobs/sha256/{hash}"), content));
        json!({ "mediaType": kind, "digest": format!("sha256:{hash}"), "size": size })
    }
}

/// Where a blob is.
fn path(reference: &Value) -> anyhow::Result<String> {
    let digest = reference["digest"].as_str().context("a digest")?;
    Ok(format!("blobs/{}", digest.replace(':', "/")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn unpacked(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().expect("an archive");
        entries
            .map(|entry| {
                let mut entry = entry.expect("an entry");
                let path = entry.path().expect("a path").display().to_string();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).expect("a file");
                (path, content)
            })
            .collect()
    }

    #[test]
    fn each_part_is_named_by_its_hash_and_found_from_the_index() {
        let image = make(&Contents::sample(), Effort::Little).expect("an image");
        let files = unpacked(&image.bytes);
        let read = |path: &str| -> Value { serde_json::from_slice(&files[path]).expect("JSON") };
        let blob = |reference: &Value| {
            let path = path(reference).expect("a digest");
            let content = &files[&path];
            assert_eq!(path, format!("blobs/sha256/{}", sha256(content)));
            assert_eq!(reference["size"], content.len());
            content.clone()
        };
        let index = read("index.json");
        let manifest = &index["manifests"][0];
        assert_eq!(manifest["digest"], image.digest.as_str());
        assert_eq!(
            manifest["annotations"]["org.opencontainers.image.ref.name"],
            "1.2.3"
        );
        let manifest: Value = serde_json::from_slice(&blob(manifest)).expect("JSON");
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).expect("JSON");
        assert_eq!(config["config"]["User"], "65532:65532");
        let layer = blob(&manifest["layers"][0]);
        let mut root = Vec::new();
        flate2::read::GzDecoder::new(&*layer)
            .read_to_end(&mut root)
            .expect("gzip");
        let unpacked_digest = format!("sha256:{}", sha256(&root));
        assert_eq!(config["rootfs"]["diff_ids"], json!([unpacked_digest]));
        let loaded = read("manifest.json");
        assert_eq!(loaded[0]["RepoTags"], json!(["mainspring:1.2.3"]));
        assert_eq!(
            loaded[0]["Layers"],
            json!([path(&manifest["layers"][0]).expect("a digest")])
        );
        let root = unpacked(&root);
        let paths: Vec<_> = root.keys().map(|path| path.trim_end_matches('/')).collect();
        let expected = [
            "etc",
            "etc/group",
            "etc/passwd",
            "tmp",
            "usr",
            "usr/local",
            "usr/local/bin",
            "usr/local/bin/mainspring",
            "usr/share",
            "usr/share/doc",
            "usr/share/doc/mainspring",
            "usr/share/doc/mainspring/LICENSE",
            "usr/share/doc/mainspring/mainspring.cdx.json",
        ];
        assert_eq!(paths, expected, "nothing else is in it");
        assert_eq!(root["usr/local/bin/mainspring"], b"a program");
    }

    #[test]
    fn the_same_contents_are_the_same_image_and_other_ones_another() {
        let made = |contents: &Contents| make(contents, Effort::Little).expect("an image");
        let mut contents = Contents::sample();
        let image = made(&contents);
        let again = made(&Contents::sample());
        assert_eq!(
            (&again.digest, again.bytes == image.bytes),
            (&image.digest, true)
        );
        contents.epoch += 1;
        assert_ne!(made(&contents).digest, image.digest);
    }
}
