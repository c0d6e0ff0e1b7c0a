//! What must hold for any bytes that a client sends to a key that Rust answers: they are read or
//! refused, and what is read has an answer whose size field is right. Read as a large request, it
//! has the same answer. A broken promise is a panic.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use kafkalite::access::{Authorizer, Caller, Identity, Operation, Resource};
use kafkalite::api::fetch_sessions::FetchSessions;
use kafkalite::api::large::Kept;
use kafkalite::api::{
    self, ApiKey, Ask, Chunk, HOT_KEYS, k00_produce, k01_fetch, k02_list_offsets, k03_metadata,
    k18_api_versions,
};
use kafkalite::error::Result;
use kafkalite::image::{Features, Image};
use kafkalite::limits::ANSWER_BYTES_MAX;
use kafkalite::wire::{Reader, RequestHeader, frame};

/// The content of a frame.
pub fn requests(data: &[u8]) {
    answers(data);
}

/// The content of a frame, three times over, so that fetch sessions go on; returns how often it was
/// answered.
pub fn answers(data: &[u8]) -> usize {
    let mut image = Image::new("cluster", 1);
    image.permits.authorizer = Arc::new(EvenNames);
    let image = Arc::new(image);
    let sessions = FetchSessions::new(2, 7);
    let mut count = 0;
    for now_ms in [0, 1, 200_000] {
        if let Ok(Some(answer)) = answer(data, &image, &sessions, now_ms) {
            let size = frame::frame_size(&answer, usize::MAX);
            assert_eq!(size.expect("a size"), Some(answer.len()));
            count += 1;
            if let Some(large) = large_answer(data, &image).expect("it was read before") {
                assert_eq!(large, answer);
            }
        }
    }
    count
}

/// Clients may do everything to the topics whose names have an even number of bytes.
struct EvenNames;

impl Authorizer for EvenNames {
    fn authorize(&self, _: &Caller<'_>, _: Operation, resource: Resource<'_>) -> bool {
        matches!(resource, Resource::Topic(name) if name.len() % 2 == 0)
    }
}

fn known(key: i16) -> Option<&'static ApiKey> {
    HOT_KEYS.iter().find(|known| known.key == key)
}

fn ask<'a>(image: &'a Image, identity: &'a Identity, client_id: Option<&'a str>) -> Ask<'a> {
    Ask {
        image,
        caller: Caller {
            identity,
            client_id,
            listener: 0,
        },
    }
}

/// The answer to a request that is read as a large one is; `None` where it may be put together
/// otherwise: a ListOffsets that names a topic twice.
fn large_answer(data: &[u8], image: &Arc<Image>) -> Result<Option<Vec<u8>>> {
    let kept = Kept::new(data.to_vec(), 0..data.len());
    let mut reader = kept.reader_at(0);
    let header = RequestHeader::read(&mut reader, |key| Some(known(key)?.first_flexible))?;
    let identity = Identity::anonymous(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ask = ask(image, &identity, header.client_id);
    let mut chunks = match header.api_key {
        0 => {
            let mut produce = k00_produce::read_large(&header, &mut reader, &ask, &kept, image)?;
            if produce.acks == 0 {
                return Ok(None);
            }
            produce.large_answer(0, image, 0)
        }
        2 => {
            let mut request =
                k02_list_offsets::read_large(&header, &mut reader, &ask, &kept, image)?;
            let mut list = kept.reader_at(0);
            RequestHeader::read(&mut list, |key| Some(known(key)?.first_flexible))?;
            list.take(if header.api_version >= 2 { 5 } else { 4 })?;
            if list.array_length(header.flexible)? > 1 {
                return Ok(None);
            }
            request.answer()
        }
        3 => {
            let large = k03_metadata::Large::read(&header, reader, &kept)?;
            match large.answer(&ask, image, true)? {
                Some(chunks) => chunks,
                None => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    finished(&mut chunks).map(Some)
}

fn finished(chunks: &mut Vec<Chunk>) -> Result<Vec<u8>> {
    api::finish(chunks, ANSWER_BYTES_MAX).expect("the answer to a fuzzed request fits a frame");
    let mut whole = Vec::new();
    for chunk in chunks.drain(..) {
        match chunk {
            Chunk::Bytes(bytes) => whole.extend(bytes),
            Chunk::Later(mut later) => {
                while later.left_bytes() > 0 {
                    whole.extend(later.make()?);
                }
            }
            Chunk::File(..) => panic!("there is no file"),
        }
    }
    Ok(whole)
}

fn answer(
    data: &[u8],
    image: &Image,
    sessions: &FetchSessions,
    now_ms: u64,
) -> Result<Option<Vec<u8>>> {
    let mut reader = Reader::new(data);
    let header = RequestHeader::read(&mut reader, |key| Some(known(key)?.first_flexible))?;
    let Some(key) = known(header.api_key) else {
        return Ok(None);
    };
    let is_spoken = (key.min..=key.max).contains(&header.api_version);
    if !is_spoken && key.key != k18_api_versions::KEY.key {
        return Ok(None);
    }
    let identity = Identity::anonymous(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ask = ask(image, &identity, header.client_id);
    let reader = &mut reader;
    let mut chunks = match header.api_key {
        0 => {
            let mut spare = k00_produce::Spare::default();
            let produce = k00_produce::read(&header, reader, &ask, &mut spare, None)?;
            for each in &produce.partitions {
                assert!(
                    data.get(each.records.clone()).is_some(),
                    "records lie in the frame"
                );
            }
            // Behind another answer, as on a connection.
            let mut bytes = vec![0xff; 7];
            produce.answer(&mut bytes, 0, image, 0);
            vec![Chunk::Bytes(bytes.split_off(7))]
        }
        1 => {
            let mut fetch = k01_fetch::read(&header, reader, &ask, sessions, 1 << 20, now_ms)?;
            let mut fetch_read = k01_fetch::FetchRead::default();
            assert!(fetch.read_logs(&mut fetch_read, |_| true));
            assert!(
                fetch.is_due(&fetch_read),
                "no log is asked, so nothing is waited for"
            );
            fetch.answer(fetch_read, sessions, image, now_ms)
        }
        2 => {
            let mut request = k02_list_offsets::read(&header, reader, &ask, None)?;
            request.search(|_| true);
            request.answer()
        }
        3 => vec![Chunk::Bytes(k03_metadata::answer(
            &header,
            reader.clone(),
            &ask,
            true,
        )?)],
        _ => {
            let features = Features::default();
            vec![Chunk::Bytes(k18_api_versions::answer(
                &header, reader, &HOT_KEYS, &features,
            )?)]
        }
    };
    finished(&mut chunks).map(Some)
}
