//! Scales down images that are larger than a model is to be shown them, in pixels or in bytes.
//!
//! The same input bytes always give the same output bytes, because a provider's prompt cache and
//! previews depend on it. So nothing here depends on time, on threads or on what was scaled before.

use std::io::Cursor;

use bytes::Bytes;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as Rows, PngEncoder};
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, ImageResult, Limits};
use mainspring_shared::message::IMAGE_SHOWN_BYTES_MAX as BYTES_MAX;

/// Maximum number of pixels of an image that is scaled: what today's cameras make. A few bytes can
/// claim to be many more.
const PIXELS_MAX: u64 = 64 << 20;

/// Maximum memory for decoding or scaling an image.
const ALLOC_MAX: u64 = 256 << 20;

/// JPEG quality out of 100: enough for models, though not for people.
const QUALITY: u8 = 85;

/// A scaled image.
#[derive(Debug, Clone)]
pub(super) struct Scaled {
    pub(super) media_type: &'static str,
    pub(super) data: Bytes,
}

/// Why an image cannot be scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not an image, or a damaged one.
    Unreadable,
    /// It has too many pixels.
    TooLarge,
}

impl Fault {
    /// The reason as told to the model.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Unreadable => "its content is not a readable image",
            Self::TooLarge => "it has too many pixels to be scaled down",
        }
    }
}

/// How often an image is made smaller by a quarter until it has few enough bytes.
const TRIES_MAX: u32 = 8;

/// Scales an image to a longer edge of `edge` pixels, or less if it has too many bytes then; `None` if it is no larger
/// and is shown unchanged. Of an animation only the first frame is kept.
pub(super) fn scaled(data: &[u8], edge: u32) -> Result<Option<Scaled>, Fault> {
    let mut reader = ImageReader::new(Cursor::new(data))
        .with_guessed_format()
        .map_err(|_| Fault::Unreadable)?;
    let format = reader.format().ok_or(Fault::Unreadable)?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(ALLOC_MAX);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| fault(&error))?;
    let (width, height) = decoder.dimensions();
    if width.max(height) <= edge && data.len() <= BYTES_MAX {
        return Ok(None);
    }
    let edge = edge.min(width.max(height)).max(1);
    if u64::from(width) * u64::from(height) > PIXELS_MAX || decoder.total_bytes() > ALLOC_MAX {
        return Err(Fault::TooLarge);
    }
    // The buffer of `resize` between its two passes: sixteen bytes per pixel, in rows of the
    // original width.
    let (wide, high) = (u64::from(width), u64::from(height));
    let rows = (high * u64::from(edge) / wide.max(high)).max(1);
    if wide * rows * 16 > ALLOC_MAX {
        return Err(Fault::TooLarge);
    }
    // The output has no metadata, so the orientation is applied here.
    let orientation = decoder.orientation();
    let whole = DynamicImage::from_decoder(decoder).map_err(|error| fault(&error))?;
    let whole = if whole.color().has_alpha() {
        DynamicImage::ImageRgba8(whole.into_rgba8())
    } else {
        DynamicImage::ImageRgb8(whole.into_rgb8())
    };
    let is_photograph = match format {
        ImageFormat::Jpeg => true,
        ImageFormat::WebP => !whole.color().has_alpha(),
        _ => false,
    };
    let mut edge = edge;
    for _ in 0..TRIES_MAX {
        // Consists only of sums and products, which are the same on every machine.
        let mut small = whole.resize(edge, edge, FilterType::CatmullRom);
        if let Ok(orientation) = orientation {
            small.apply_orientation(orientation);
        }
        if let Some(scaled) = written(small, is_photograph)? {
            return Ok(Some(scaled));
        }
        edge = (edge / 4 * 3).max(1);
    }
    Err(Fault::TooLarge)
}

/// An image in its new format; `None` if it has too many bytes.
fn written(image: DynamicImage, is_photograph: bool) -> Result<Option<Scaled>, Fault> {
    if !is_photograph {
        let data = png(&image).map_err(|error| fault(&error))?;
        if data.len() <= BYTES_MAX {
            let media_type = "image/png";
            return Ok(Some(Scaled { media_type, data }));
        }
    }
    let data = jpeg(image).map_err(|error| fault(&error))?;
    let media_type = "image/jpeg";
    Ok((data.len() <= BYTES_MAX).then_some(Scaled { media_type, data }))
}

fn png(image: &DynamicImage) -> ImageResult<Bytes> {
    let mut data = Vec::new();
    // The only level whose output does not depend on which zlib library is linked.
    let encoder = PngEncoder::new_with_quality(&mut data, CompressionType::Fast, Rows::Adaptive);
    image.write_with_encoder(encoder)?;
    Ok(data.into())
}

fn jpeg(image: DynamicImage) -> ImageResult<Bytes> {
    let mut data = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut data, QUALITY);
    image.into_rgb8().write_with_encoder(encoder)?;
    Ok(data.into())
}

fn fault(error: &image::ImageError) -> Fault {
    if matches!(error, image::ImageError::Limits(_)) {
        Fault::TooLarge
    } else {
        Fault::Unreadable
    }
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage, Rgba, RgbaImage};
    use mainspring_shared::blob::BlobHash;
    use proptest::prelude::*;

    use super::*;

    fn photograph(width: u32, height: u32) -> DynamicImage {
        let pixel = |x: u32, y: u32| Rgb([(x * 7) as u8, (y * 5) as u8, (x ^ y) as u8]);
        RgbImage::from_fn(width, height, pixel).into()
    }

    fn drawing(width: u32, height: u32) -> DynamicImage {
        let pixel = |x: u32, y: u32| Rgba([200, (x / 9) as u8, 10, (y / 9 * 9) as u8]);
        RgbaImage::from_fn(width, height, pixel).into()
    }

    fn file(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut data = Cursor::new(Vec::new());
        image.write_to(&mut data, format).expect("is written");
        data.into_inner()
    }

    fn read(scaled: &Scaled) -> DynamicImage {
        let format = ImageFormat::from_mime_type(scaled.media_type).expect("a format");
        image::load_from_memory_with_format(&scaled.data, format).expect("is what it says")
    }

    #[test]
    fn the_longer_edge_is_bounded_and_the_shape_stays() {
        for (image, format, media_type) in [
            (photograph(900, 300), ImageFormat::Jpeg, "image/jpeg"),
            (photograph(900, 300), ImageFormat::WebP, "image/jpeg"),
            (photograph(900, 300), ImageFormat::Png, "image/png"),
            (drawing(900, 300), ImageFormat::Png, "image/png"),
            (drawing(900, 300), ImageFormat::WebP, "image/png"),
            (drawing(900, 300), ImageFormat::Gif, "image/png"),
        ] {
            let data = file(&image, format);
            let small = scaled(&data, 300).expect("can be read").expect("is larger");
            assert_eq!(small.media_type, media_type, "{format:?}");
            let image = read(&small);
            assert_eq!((image.width(), image.height()), (300, 100), "{format:?}");
            // Again on another thread: the same bytes.
            let again = std::thread::spawn(move || scaled(&data, 300)).join();
            let again = again.expect("no panic").expect("can be read");
            assert_eq!(again.expect("is larger").data, small.data, "{format:?}");
        }
    }

    /// A library version that writes other bytes invalidates every provider's image cache once.
    /// That is acceptable, but it must be noticed.
    #[test]
    fn the_bytes_are_those_of_the_last_release() {
        let of = |image: &DynamicImage, format| {
            let small = scaled(&file(image, format), 64).expect("can be read");
            BlobHash::of(&small.expect("is larger").data).to_string()
        };
        let found = [
            of(&photograph(300, 200), ImageFormat::Png),
            of(&photograph(300, 200), ImageFormat::WebP),
            of(&drawing(200, 300), ImageFormat::Png),
        ];
        assert_eq!(
            found,
            [
                "65224a6345c012c25b833171ba7446a76fe3da40df4ea7817438461877839d0f",
                "5b3d4a9f86f5db05cb8583935ea42296821fe98b20df95a730eaf0ef654ca286",
                "2ad9983784001e0549a16ecc8e7fabc349995dd9a1c6bb4e1f7e1fa7a90a50ab",
            ]
        );
    }

    #[test]
    fn what_is_no_larger_stays_as_it_is() {
        let data = file(&photograph(300, 200), ImageFormat::Png);
        assert!(scaled(&data, 300).expect("can be read").is_none());
        assert!(scaled(&data, 299).expect("can be read").is_some());
    }

    #[test]
    fn what_has_too_many_bytes_is_made_smaller_however_many_pixels_it_may_have() {
        // Without any order, so that nothing can be saved.
        let mut state = 1_u32;
        let noise = RgbImage::from_fn(1_500, 1_000, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Rgb([(state >> 24) as u8, (state >> 16) as u8, (state >> 8) as u8])
        });
        let data = file(&noise.into(), ImageFormat::Png);
        assert!(data.len() > BYTES_MAX);
        let small = scaled(&data, u32::MAX)
            .expect("can be read")
            .expect("is larger");
        assert!(small.data.len() <= BYTES_MAX, "{} bytes", small.data.len());
        assert!(small.data.len().div_ceil(3) * 4 <= 5 << 20);
        let image = read(&small);
        assert_eq!((image.width(), image.height()), (1_500, 1_000));
    }

    #[test]
    fn a_photograph_that_lies_on_its_side_is_turned() {
        let upright = photograph(300, 100);
        let mut data = file(&upright, ImageFormat::Jpeg);
        // After the JPEG start marker: metadata that says "rotate by a quarter turn".
        let exif = [
            &b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01"[..],
            b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0",
        ];
        data.splice(2..2, exif.concat());
        let small = scaled(&data, 150).expect("can be read").expect("is larger");
        let image = read(&small);
        assert_eq!((image.width(), image.height()), (50, 150));
    }

    /// Few bytes and few pixels, but scaling it needs rows of the original width at sixteen bytes a
    /// pixel.
    #[test]
    fn a_picture_whose_rows_take_too_much_to_scale_is_not() {
        let line = RgbImage::from_pixel((ALLOC_MAX / 16) as u32 + 1, 1, Rgb([1, 2, 3]));
        let data = file(&line.into(), ImageFormat::Png);
        assert!(data.len() < 1 << 20, "{} bytes", data.len());
        assert_eq!(scaled(&data, 2_048).err(), Some(Fault::TooLarge));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let whole = file(&photograph(300, 200), ImageFormat::Png);
        assert_eq!(scaled(b"a picture", 64).err(), Some(Fault::Unreadable));
        assert_eq!(scaled(b"", 64).err(), Some(Fault::Unreadable));
        let half = &whole[..whole.len() / 2];
        assert_eq!(scaled(half, 64).err(), Some(Fault::Unreadable));
        // A few bytes that claim to be 60 000 by 60 000 pixels.
        let mut bomb = whole;
        bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        let crc = crc(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(scaled(&bomb, 64).err(), Some(Fault::TooLarge));
    }

    /// The checksum of a chunk of a PNG.
    fn crc(data: &[u8]) -> u32 {
        let step = |crc: u32, byte: &u8| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
            })
        };
        !data.iter().fold(u32::MAX, step)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_bytes_make_it_panic(
            format in 0usize..4,
            places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let formats = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
            let format = formats[format];
            let mut data = file(&photograph(40, 30), format);
            for (place, byte) in places {
                let place = place.index(data.len());
                data[place] = byte;
            }
            let _ = scaled(&data, 8);
        }
    }
}
