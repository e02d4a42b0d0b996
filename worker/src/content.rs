//! The content of images and files that messages only refer to, as models are shown it.

mod picture;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use lru::LruCache;
use mainspring_shared::blob::{self, BlobHash, Depot, Unstored, absent, filled};
use mainspring_shared::error::Coded as _;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::message::{ContentPart, IMAGE_SHOWN_BYTES_MAX, ImageSource, Message};
use mainspring_shared::tool::CallResult;
use tokio::sync::Semaphore;

use self::picture::{Fault, Scaled};
use crate::llm::{Error, Request};
use crate::metrics;

/// How many images are scaled at once: each may take half a gigabyte and one core.
static SCALING: Semaphore = Semaphore::const_new(1);

/// With more pictures than this in one request, Messages takes none with a longer edge than the other number.
const FREE_PICTURES_MAX: usize = 20;
const MANY_PICTURES_EDGE: u32 = 2_000;

/// A cache of recently read blobs, bounded by bytes, over the deployment's blob store. Content
/// never changes under its hash, so cached content needs no check.
#[derive(Debug)]
pub(crate) struct Content {
    depot: Arc<Depot>,
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Blobs, and images scaled to an edge.
    kept: LruCache<(TenantId, BlobHash, Option<u32>), Kept>,
    bytes: usize,
}

/// The result of scaling an image; `None` if it is small enough.
type Fit = Result<Option<Scaled>, Fault>;

#[derive(Debug, Clone)]
enum Kept {
    Whole(Bytes),
    Fit(Fit),
}

impl Content {
    pub(crate) fn new(depot: Arc<Depot>, bytes_max: usize) -> Self {
        let inner = Inner {
            kept: LruCache::unbounded(),
            bytes: 0,
        };
        Self {
            depot,
            bytes_max,
            inner: Mutex::new(inner),
        }
    }

    /// Replaces references with the content that the model is shown, and scales down images that
    /// are larger than the request or providers allow. Missing or damaged content is replaced with a text that
    /// says so. If the blob store is down, the attempt fails and is retried as if the provider were
    /// down.
    pub(crate) async fn fill(
        &self,
        tenant: TenantId,
        request: &mut Arc<Request>,
    ) -> Result<(), Error> {
        self.fill_with(tenant, request, &Unstored::new()).await
    }

    /// The same if some of the content is in no store.
    pub(crate) async fn fill_with(
        &self,
        tenant: TenantId,
        request: &mut Arc<Request>,
        unstored: &Unstored,
    ) -> Result<(), Error> {
        let pictures = request.messages.iter().flat_map(|message| &message.content);
        let pictures = pictures.filter(|part| matches!(part, ContentPart::Image { .. }));
        let edge = if pictures.count() > FREE_PICTURES_MAX {
            let edge = request.images_max_edge.unwrap_or(MANY_PICTURES_EDGE);
            Some(edge.min(MANY_PICTURES_EDGE))
        } else {
            request.images_max_edge
        };
        let changes = |part: &ContentPart| {
            part.blob().is_some() || (part.inline().is_some() && (edge.is_some() || is_heavy(part)))
        };
        let changed = |message: &Arc<Message>| message.content.iter().any(changes);
        if !request.messages.iter().any(changed) {
            return Ok(());
        }
        for message in &mut Arc::make_mut(request).messages {
            if !changed(message) {
                continue;
            }
            let mut parts = Vec::with_capacity(message.content.len());
            for part in &message.content {
                parts.push(self.shown((tenant, unstored), part, edge).await?);
            }
            *message = Arc::new(Message {
                content: parts,
                ..Message::clone(message)
            });
        }
        Ok(())
    }

    async fn shown(
        &self,
        (tenant, unstored): (TenantId, &Unstored),
        part: &ContentPart,
        edge: Option<u32>,
    ) -> Result<ContentPart, Error> {
        let Some(sha256) = part.blob() else {
            return Ok(self.inline(tenant, part, edge).await);
        };
        let is_picture = matches!(part, ContentPart::Image { .. });
        let edge = edge
            .or(is_heavy(part).then_some(u32::MAX))
            .filter(|_| is_picture);
        let key = edge.map(|edge| (tenant, sha256, edge));
        let known = key.and_then(|key| self.known_fit(key));
        // An image that was scaled before need not be read again.
        if let Some(shown) = known.as_ref().and_then(|known| replaced(part, known)) {
            return Ok(shown);
        }
        let read = match unstored.get(&sha256) {
            Some(data) => Ok(Some(data.clone())),
            None => self.read(tenant, sha256).await,
        };
        match read {
            Ok(Some(data)) => Ok(match key {
                Some(key) if known.is_none() => self.fitted(part, key, &data).await,
                _ => filled(part, &data),
            }),
            Ok(None) => Ok(absent(part, "its content is gone")),
            Err(blob::Error::Corrupt { .. }) => {
                tracing::error!(blob.sha256 = %sha256, "the blob store returned damaged content");
                metrics::blob_corrupt();
                Ok(absent(part, "its content is damaged"))
            }
            Err(error) => Err(Error::Content {
                code: error.code(),
                message: error.to_string(),
            }),
        }
    }

    /// Shows a part that refers to no blob.
    async fn inline(&self, tenant: TenantId, part: &ContentPart, edge: Option<u32>) -> ContentPart {
        let edge = edge.or(is_heavy(part).then_some(u32::MAX));
        let (
            ContentPart::Image {
                source: ImageSource::Base64 { data, .. },
            },
            Some(edge),
        ) = (part, edge)
        else {
            return part.clone();
        };
        match STANDARD.decode(data) {
            Ok(data) => {
                let key = (tenant, BlobHash::of(&data), edge);
                match self.known_fit(key) {
                    Some(known) => replaced(part, &known).unwrap_or_else(|| part.clone()),
                    None => self.fitted(part, key, &data.into()).await,
                }
            }
            Err(_) => absent(part, Fault::Unreadable.why()),
        }
    }

    /// The result of scaling an image, if it is cached.
    fn known_fit(&self, (tenant, sha256, edge): (TenantId, BlobHash, u32)) -> Option<Fit> {
        match self.lock().kept.get(&(tenant, sha256, Some(edge)))? {
            Kept::Fit(fit) => Some(fit.clone()),
            Kept::Whole(_) => None,
        }
    }

    /// An image with this content, no larger than the edge.
    async fn fitted(
        &self,
        part: &ContentPart,
        (tenant, sha256, edge): (TenantId, BlobHash, u32),
        data: &Bytes,
    ) -> ContentPart {
        let fit = scaled(data.clone(), edge).await;
        let shown = replaced(part, &fit).unwrap_or_else(|| filled(part, data));
        self.keep((tenant, sha256, Some(edge)), Kept::Fit(fit));
        shown
    }

    async fn read(&self, tenant: TenantId, sha256: BlobHash) -> Result<Option<Bytes>, blob::Error> {
        let key = (tenant, sha256, None);
        if let Some(Kept::Whole(known)) = self.lock().kept.get(&key) {
            return Ok(Some(known.clone()));
        }
        let read = self.depot.read(tenant, sha256).await?;
        if let Some(data) = &read {
            self.keep(key, Kept::Whole(data.clone()));
        }
        Ok(read)
    }

    fn keep(&self, key: (TenantId, BlobHash, Option<u32>), kept: Kept) {
        let mut inner = self.lock();
        inner.bytes += kept.weight();
        if let Some((_, old)) = inner.kept.push(key, kept) {
            inner.bytes -= old.weight();
        }
        while inner.bytes > self.bytes_max
            && let Some((_, gone)) = inner.kept.pop_lru()
        {
            inner.bytes -= gone.weight();
        }
    }

    /// Stores the large parts of a call's result as blobs before the result is stored. If that
    /// fails, they stay in the row.
    pub(crate) async fn spill(&self, session: SessionKey, call_id: &str, result: &mut CallResult) {
        if let Err(error) = self.depot.spill_result(session, call_id, result).await {
            tracing::warn!(
                %error,
                "could not store a large part of a result as a blob; keeping it in its row"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under this lock can panic midway, so the value is never half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The bytes that count against the cache's bound.
    fn weight(&self) -> usize {
        const ENTRY: usize = 100;
        ENTRY
            + match self {
                Self::Whole(data) => data.len(),
                Self::Fit(Ok(Some(scaled))) => scaled.data.len(),
                Self::Fit(Ok(None) | Err(_)) => 0,
            }
    }
}

/// Whether an image has more bytes than every provider accepts.
fn is_heavy(part: &ContentPart) -> bool {
    let ContentPart::Image { source } = part else {
        return false;
    };
    match source {
        ImageSource::Base64 { data, .. } => data.len() / 4 * 3 > IMAGE_SHOWN_BYTES_MAX,
        ImageSource::Blob { bytes, .. } => *bytes > IMAGE_SHOWN_BYTES_MAX as u64,
        ImageSource::Url { .. } => false,
    }
}

/// What replaces an image after scaling; `None` if it is shown unchanged.
fn replaced(part: &ContentPart, fit: &Fit) -> Option<ContentPart> {
    match fit {
        Ok(None) => None,
        Ok(Some(scaled)) => Some(ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: scaled.media_type.to_owned(),
                data: STANDARD.encode(&scaled.data),
            },
        }),
        Err(fault) => Some(absent(part, fault.why())),
    }
}

/// Scales an image without blocking the runtime. It always ends, because its work is bounded.
async fn scaled(data: Bytes, edge: u32) -> Fit {
    let turn = SCALING.acquire().await;
    let work = move || {
        let scaled = picture::scaled(&data, edge);
        drop(turn);
        scaled
    };
    // If the library panics, the image is unreadable.
    let scaled = tokio::task::spawn_blocking(work).await;
    scaled.unwrap_or(Err(Fault::Unreadable))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{ImageFormat, Rgb, RgbImage};
    use mainspring_runtime::{OsEntropy, SystemClock};
    use mainspring_shared::blob::BlobRef;
    use mainspring_shared::message::NewMessage;
    use mainspring_shared::time::Timestamp;
    use mainspring_store_model::ModelStore;

    use super::*;

    const MINE: TenantId = TenantId::DEFAULT;

    fn picture(width: u32, height: u32) -> Bytes {
        let pixel = |x: u32, y: u32| Rgb([x as u8, y as u8, (x * y) as u8]);
        let image = RgbImage::from_fn(width, height, pixel);
        let mut data = Cursor::new(Vec::new());
        image
            .write_to(&mut data, ImageFormat::Png)
            .expect("is written");
        data.into_inner().into()
    }

    fn inline(data: &[u8]) -> ContentPart {
        ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: "image/png".to_owned(),
                data: STANDARD.encode(data),
            },
        }
    }

    /// A request with these parts.
    fn request(parts: &[ContentPart], edge: Option<u32>) -> Request {
        let said = NewMessage::user(parts.to_vec(), 0);
        let send = mainspring_shared::id::SendId(uuid::Uuid::nil());
        Request {
            model: "m".to_owned(),
            system: None,
            messages: vec![Arc::new(said.at(1, send, Timestamp(0), 0))],
            max_tokens: 1,
            images_max_edge: edge,
            ..Request::default()
        }
    }

    /// The parts as shown by a `Content` without cached blobs, twice.
    async fn shown(
        depot: &Arc<Depot>,
        parts: &[ContentPart],
        edge: Option<u32>,
    ) -> Vec<ContentPart> {
        let request = request(parts, edge);
        let content = Content::new(depot.clone(), 1 << 20);
        let mut cold = Arc::new(request.clone());
        content.fill(MINE, &mut cold).await.expect("is there");
        let mut warm = Arc::new(request.clone());
        content.fill(MINE, &mut warm).await.expect("is there");
        assert_eq!(cold, warm);
        assert_eq!(
            cold.digest() == request.digest(),
            cold.messages == request.messages
        );
        cold.messages[0].content.clone()
    }

    fn size(part: &ContentPart) -> (u32, u32) {
        let (_, data) = part.inline().expect("a picture");
        let data = STANDARD.decode(data).expect("base64");
        let image = image::load_from_memory(&data).expect("a picture");
        (image.width(), image.height())
    }

    #[tokio::test]
    async fn pictures_are_scaled_wherever_their_content_is() {
        let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
        let depot = Arc::new(Depot::in_database(store, Arc::new(OsEntropy)));
        let (large, small) = (picture(300, 200), picture(60, 40));
        let mut named = Vec::new();
        for data in [&large, &small] {
            let stored = depot.put(MINE, None, "image/png", data.clone()).await;
            let blob: BlobRef = stored.expect("is put").blob;
            named.push(inline(b"").naming(blob));
        }
        let broken = inline(b"no picture");
        let url = ContentPart::Image {
            source: ImageSource::Url {
                url: "https://a.example/b.png".to_owned(),
            },
        };
        let parts = [
            named[0].clone(),
            inline(&large),
            named[1].clone(),
            inline(&small),
            url.clone(),
            broken.clone(),
        ];
        let all = shown(&depot, &parts, Some(100)).await;
        assert_eq!(size(&all[0]), (100, 67));
        assert_eq!(all[1], all[0]);
        assert_eq!(all[2..4], [inline(&small), inline(&small)]);
        assert_eq!(all[4], url);
        let words = "[image, image/png, 12 bytes: its content is not a readable image]";
        assert_eq!(all[5], ContentPart::text(words));
        // Without an edge, all images are shown as they were sent.
        let all = shown(&depot, &parts, None).await;
        let expected = [
            inline(&large),
            inline(&large),
            inline(&small),
            inline(&small),
            url,
            broken,
        ];
        assert_eq!(all, expected);
    }

    #[tokio::test]
    async fn what_providers_refuse_is_scaled_or_told_in_words_without_anybody_asking() {
        let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
        let depot = Arc::new(Depot::in_database(store, Arc::new(OsEntropy)));
        // One that is fine by itself, and too wide among many.
        let wide = inline(&picture(2_100, 20));
        let few = vec![wide.clone(); FREE_PICTURES_MAX];
        assert_eq!(shown(&depot, &few, None).await, few);
        let many = vec![wide; FREE_PICTURES_MAX + 1];
        let all = shown(&depot, &many, None).await;
        assert!(all.iter().all(|part| size(part).0 == MANY_PICTURES_EDGE));
        // More bytes than providers take, though they are fewer than a message may have.
        let heavy = inline(&vec![1; IMAGE_SHOWN_BYTES_MAX + 3]);
        assert_eq!(heavy.media_fault(), None);
        let all = shown(&depot, &[heavy], None).await;
        assert!(matches!(&all[0], ContentPart::Text { .. }));
    }

    #[tokio::test]
    async fn what_no_store_has_is_shown_as_it_would_be_from_one() {
        let store = || Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
        let depot = || Arc::new(Depot::in_database(store(), Arc::new(OsEntropy)));
        let (large, broken) = (picture(300, 200), Bytes::from_static(b"no picture"));
        let (has, has_not) = (depot(), depot());
        let (mut parts, mut content) = (Vec::new(), Vec::new());
        for data in [&large, &broken] {
            let stored = has.put(MINE, None, "image/png", data.clone()).await;
            parts.push(inline(b"").naming(stored.expect("is put").blob));
            content.push(STANDARD.encode(data));
        }
        let unstored = blob::unstored(&content);
        for edge in [None, Some(100)] {
            let expected = shown(&has, &parts, edge).await;
            let mut request = Arc::new(request(&parts, edge));
            // This one caches nothing.
            let content = Content::new(has_not.clone(), 0);
            let filled = content.fill_with(MINE, &mut request, &unstored).await;
            filled.expect("it is there");
            assert_eq!(request.messages[0].content, expected, "{edge:?}");
            assert!(expected[0].inline().is_some(), "{expected:?}");
        }
        let gone = shown(&has_not, &parts, None).await;
        assert!(gone.iter().all(|part| part.inline().is_none()), "{gone:?}");
    }
}
