//! What must hold for any bytes that a client sends to a key that Rust answers: they are read or
//! refused, and what is read has an answer whose size field is right. A broken promise is a panic.

use std::net::{IpAddr, Ipv4Addr};

use kafkalite::access::{AllowAll, Caller, Principal};
use kafkalite::api::fetch_sessions::FetchSessions;
use kafkalite::api::{
    self, Ask, Chunk, HOT_KEYS, k00_produce, k01_fetch, k02_list_offsets, k03_metadata,
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
    let image = Image::new("cluster", 1);
    let sessions = FetchSessions::new(2, 7);
    let mut count = 0;
    for now_ms in [0, 1, 200_000] {
        if let Ok(Some(answer)) = answer(data, &image, &sessions, now_ms) {
            let size = frame::frame_size(&answer, usize::MAX);
            assert_eq!(size.expect("a size"), Some(answer.len()));
            count += 1;
        }
    }
    count
}

fn answer(
    data: &[u8],
    image: &Image,
    sessions: &FetchSessions,
    now_ms: u64,
) -> Result<Option<Vec<u8>>> {
    let mut reader = Reader::new(data);
    let known = |key: i16| HOT_KEYS.iter().find(|known| known.key == key);
    let header = RequestHeader::read(&mut reader, |key| Some(known(key)?.first_flexible))?;
    let Some(key) = known(header.api_key) else {
        return Ok(None);
    };
    let is_spoken = (key.min..=key.max).contains(&header.api_version);
    if !is_spoken && key.key != k18_api_versions::KEY.key {
        return Ok(None);
    }
    let principal = Principal::default();
    let ask = Ask {
        image,
        caller: Caller {
            principal: &principal,
            client_id: header.client_id,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            listener: 0,
        },
        authorizer: &AllowAll,
    };
    let reader = &mut reader;
    let mut chunks = match header.api_key {
        0 => {
            let mut spare = k00_produce::Spare::default();
            let produce = k00_produce::read(&header, reader, &ask, &mut spare)?;
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
            let fetch = k01_fetch::read(&header, reader, &ask, sessions, 1 << 20, now_ms)?;
            let mut looked = k01_fetch::Looked::default();
            assert!(fetch.look(&mut looked, |_| true));
            assert!(
                fetch.is_due(&looked),
                "no log is asked, so nothing is waited for"
            );
            fetch.answer(looked, sessions, image, now_ms)
        }
        2 => {
            let mut request = k02_list_offsets::read(&header, reader, &ask)?;
            request.search(|_| true);
            vec![Chunk::Bytes(request.answer())]
        }
        3 => vec![Chunk::Bytes(k03_metadata::answer(
            &header,
            reader.clone(),
            &ask,
        )?)],
        _ => {
            let features = Features::default();
            vec![Chunk::Bytes(k18_api_versions::answer(
                &header, reader, &HOT_KEYS, &features,
            )?)]
        }
    };
    api::finish(&mut chunks, ANSWER_BYTES_MAX)
        .expect("the answer to a fuzzed request fits a frame");
    let bytes = chunks.into_iter().flat_map(|chunk| match chunk {
        Chunk::Bytes(bytes) => bytes,
        Chunk::File(..) => panic!("there is no file"),
    });
    Ok(Some(bytes.collect()))
}
