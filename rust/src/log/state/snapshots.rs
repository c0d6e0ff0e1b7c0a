//! Producer snapshots: the producer state of a partition at an offset, in `<20 digits>.snapshot`,
//! so that a start replays only the log's last segment.
//!
//! Big-endian, 10 + 46 × count bytes:
//!
//! ```text
//!  0 version                  i16   1
//!  2 crc                      u32   CRC-32C of bytes 6 to the end
//!  6 count                    i32
//! 10 producer_id              i64   ┐
//!    producer_epoch           i16   │
//!    last_sequence            i32   │ of the last batch; -1, if there is none
//!    last_offset              i64   │ likewise
//!    offset_delta             i32   │ last_offset - first offset of the last batch; 0 likewise
//!    timestamp                i64   │ ms, of the last batch or marker
//!    coordinator_epoch        i32   │
//!    current_txn_first_offset i64   ┘ -1: none is open
//! ```
//!
//! Only the last batch of the idempotence window survives a restart, as in Kafka. A snapshot is
//! written in place and proved by its CRC: a torn one is deleted at the next start and the one
//! before it is taken. Kafka: `ProducerStateManager`, `ProducerSnapshot.json`.

use crate::error::{Error, Result};
use crate::log::names;
use crate::log::state::producer_entry::{BatchMetadata, ProducerEntry};
use crate::log::state::producers::ProducerState;
use crate::log::storage::{self, OpenMode, Storage};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const VERSION: i16 = 1;
const CRC_AT: usize = 2;
const COUNT_AT: usize = 6;
const ENTRIES_AT: usize = 10;
const ENTRY_BYTES: usize = 46;

/// The bytes of a snapshot of `state`, ordered by producer id.
pub fn encode(state: &ProducerState) -> Vec<u8> {
    let mut producers: Vec<(i64, &ProducerEntry)> = state.producers().collect();
    producers.sort_unstable_by_key(|(producer_id, _)| *producer_id);
    let mut bytes = Vec::with_capacity(ENTRIES_AT + ENTRY_BYTES * producers.len());
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(producers.len() as i32).to_be_bytes());
    for (producer_id, entry) in producers {
        let last = entry.last_batch();
        let transaction = entry.current_transaction_first_offset;
        bytes.extend_from_slice(&producer_id.to_be_bytes());
        bytes.extend_from_slice(&entry.producer_epoch.to_be_bytes());
        bytes.extend_from_slice(&last.map_or(-1, |batch| batch.last_sequence).to_be_bytes());
        bytes.extend_from_slice(&last.map_or(-1, |batch| batch.last_offset).to_be_bytes());
        bytes.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
        bytes.extend_from_slice(&entry.last_timestamp.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&transaction.unwrap_or(-1).to_be_bytes());
    }
    let crc = crc32c::crc32c(&bytes[COUNT_AT..]);
    bytes[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Producer ids with their entries, in the order of the file; `path` is for errors only.
///
/// Errors: `CorruptFile`: another version, a wrong CRC, a count that does not fit the size, an
/// entry that contradicts itself.
pub fn decode(bytes: &[u8], path: &Path) -> Result<Vec<(i64, ProducerEntry)>> {
    let refuse = |at: usize, reason: String| Err(Error::corrupt_file(path, at as u64, reason));
    let mut fields = Fields { bytes, at: 0 };
    let (Some(version), Some(crc), Some(count)) = (fields.i16(), fields.i32(), fields.i32()) else {
        return refuse(0, format!("a snapshot of {} bytes", bytes.len()));
    };
    if version != VERSION {
        return refuse(0, format!("snapshot version {version} is unknown"));
    }
    let computed = crc32c::crc32c(&bytes[COUNT_AT..]);
    if crc as u32 != computed {
        return refuse(
            CRC_AT,
            format!("CRC {:08x}, computed {computed:08x}", crc as u32),
        );
    }
    let entries_bytes = bytes.len() - ENTRIES_AT;
    if usize::try_from(count).ok() != Some(entries_bytes / ENTRY_BYTES)
        || !entries_bytes.is_multiple_of(ENTRY_BYTES)
    {
        return refuse(
            COUNT_AT,
            format!("{count} entries in {entries_bytes} bytes"),
        );
    }
    let mut producers = Vec::with_capacity(entries_bytes / ENTRY_BYTES);
    while fields.at < bytes.len() {
        let at = fields.at;
        match fields.producer() {
            Some(producer) => producers.push(producer),
            None => return refuse(at, "an entry with a negative offset delta".to_owned()),
        }
    }
    Ok(producers)
}

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*field)
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn producer(&mut self) -> Option<(i64, ProducerEntry)> {
        let producer_id = self.i64()?;
        let producer_epoch = self.i16()?;
        let last_sequence = self.i32()?;
        let last_offset = self.i64()?;
        let offset_delta = self.i32()?;
        let timestamp = self.i64()?;
        let coordinator_epoch = self.i32()?;
        let transaction = self.i64()?;
        if offset_delta < 0 || i64::from(offset_delta) > last_offset.max(0) {
            return None;
        }
        let last_batch = (last_offset >= 0).then_some(BatchMetadata {
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
        });
        let transaction = (transaction >= 0).then_some(transaction);
        let entry = ProducerEntry::new(
            producer_epoch,
            coordinator_epoch,
            timestamp,
            transaction,
            last_batch,
        );
        Some((producer_id, entry))
    }
}

/// The snapshot files of a partition's directory. Its methods keep the files and this list of them
/// alike; one thread at a time (the append lock).
#[derive(Debug)]
pub struct ProducerSnapshots {
    directory: PathBuf,
    offsets: BTreeSet<i64>,
    /// The state was saved up to here; nothing new is written for the same offset.
    last_snapshot_offset: i64,
    /// Good ones that nobody needs any more, and that nobody has removed yet.
    given_up: Vec<i64>,
}

impl ProducerSnapshots {
    /// Lists the snapshots in `directory`; none is read.
    pub fn list(storage: &dyn Storage, directory: &Path) -> Result<ProducerSnapshots> {
        let entries = storage
            .read_directory(directory)
            .map_err(Error::io("readdir", directory))?;
        let files = entries.into_iter().filter(|entry| !entry.is_directory);
        let names: Vec<String> = files.map(|entry| entry.name).collect();
        Ok(Self::named(&names, directory))
    }

    /// The snapshots among the names of the files in `directory`.
    pub fn named(files: &[String], directory: &Path) -> ProducerSnapshots {
        let offsets = files.iter();
        ProducerSnapshots {
            directory: directory.to_path_buf(),
            offsets: offsets
                .filter_map(|name| names::base_offset_of(name, names::PRODUCER_SNAPSHOT, ""))
                .collect(),
            last_snapshot_offset: 0,
            given_up: Vec::new(),
        }
    }

    /// The directory got another name (a partition that is being deleted).
    pub fn set_directory(&mut self, directory: &Path) {
        self.directory = directory.to_path_buf();
    }

    pub fn latest(&self) -> Option<i64> {
        self.offsets.last().copied()
    }

    pub fn oldest(&self) -> Option<i64> {
        self.offsets.first().copied()
    }

    pub fn contains(&self, offset: i64) -> bool {
        self.offsets.contains(&offset)
    }

    /// Writes the state at its map end offset, unless that has been done. Returns the offset of a
    /// new file. With `sync` it is durable on return; else call `sync` before relying on it. If it
    /// cannot be written, none is there.
    pub fn take(
        &mut self,
        storage: &dyn Storage,
        state: &ProducerState,
        sync: bool,
    ) -> Result<Option<i64>> {
        let offset = state.map_end_offset();
        if offset <= self.last_snapshot_offset {
            return Ok(None);
        }
        let path = self.path(offset);
        let file = storage
            .open(&path, OpenMode::CreateOrTruncate)
            .map_err(Error::io("open", &path))?;
        self.given_up.retain(|each| *each != offset);
        self.offsets.insert(offset);
        let written = storage::write_all_at(&*file, &encode(state), 0);
        if let Err(error) = written {
            // On a full disk it is empty, and the next roll may come at another offset.
            let _ = self.delete(storage, offset);
            return Err(Error::io("write", &path)(error));
        }
        if sync {
            file.sync_data().map_err(Error::io("fdatasync", &path))?;
            self.sync_directory(storage)?;
        }
        assert!(self.offsets.contains(&offset) && self.last_snapshot_offset < offset);
        self.last_snapshot_offset = offset;
        Ok(Some(offset))
    }

    /// Makes the snapshot at `offset` durable, if there is one.
    pub fn sync(&self, storage: &dyn Storage, offset: i64) -> Result<()> {
        if !self.offsets.contains(&offset) {
            return Ok(());
        }
        let path = self.path(offset);
        let file = storage
            .open(&path, OpenMode::ReadWrite)
            .map_err(Error::io("open", &path))?;
        file.sync_data().map_err(Error::io("fdatasync", &path))?;
        self.sync_directory(storage)
    }

    /// Brings `state` to the newest snapshot that holds for a log from `log_start_offset` to
    /// `log_end_offset`. The caller then replays the batches from `state.map_end_offset()`.
    ///
    /// Snapshots out of these bounds are deleted, and so are those that turn out to be corrupt. If
    /// the state stands at the log end already, it is kept. Producers that have expired at `now_ms`
    /// are left out.
    pub fn truncate_and_reload(
        &mut self,
        storage: &dyn Storage,
        state: &mut ProducerState,
        log_start_offset: i64,
        log_end_offset: i64,
        now_ms: i64,
        expiration_ms: i64,
    ) -> Result<()> {
        self.remove_given_up(storage)?;
        let outside = |offset: &i64| *offset > log_end_offset || *offset <= log_start_offset;
        for offset in self
            .offsets
            .iter()
            .copied()
            .filter(outside)
            .collect::<Vec<_>>()
        {
            self.delete(storage, offset)?;
        }
        if state.map_end_offset() == log_end_offset {
            state.on_log_start_offset(log_start_offset);
            self.last_snapshot_offset = self.latest().unwrap_or(log_start_offset);
            return Ok(());
        }
        state.clear(log_start_offset);
        self.last_snapshot_offset = log_start_offset;
        while let Some(offset) = self.latest() {
            let path = self.path(offset);
            let bytes = storage::read_file(storage, &path).map_err(Error::io("read", &path))?;
            if let Ok(producers) = decode(&bytes.unwrap_or_default(), &path) {
                for (producer_id, entry) in producers {
                    state.load(producer_id, entry);
                }
                state.remove_expired(now_ms, expiration_ms);
                state.set_map_end_offset(offset);
                self.last_snapshot_offset = offset;
                return Ok(());
            }
            self.delete(storage, offset)?;
        }
        Ok(())
    }

    /// Brings an empty `state` to the newest good snapshot above `log_start_offset` and at most at
    /// `offset`; no file is changed. The caller replays from `state.map_end_offset()`.
    pub fn load_latest(
        &self,
        storage: &dyn Storage,
        state: &mut ProducerState,
        log_start_offset: i64,
        offset: i64,
    ) -> Result<()> {
        state.clear(log_start_offset);
        if offset <= log_start_offset {
            return Ok(());
        }
        for at in self.offsets.range(log_start_offset + 1..=offset).rev() {
            let path = self.path(*at);
            let bytes = storage::read_file(storage, &path).map_err(Error::io("read", &path))?;
            if let Ok(producers) = decode(&bytes.unwrap_or_default(), &path) {
                for (producer_id, entry) in producers {
                    state.load(producer_id, entry);
                }
                state.set_map_end_offset(*at);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Deletes all snapshots; the state stands for a log that is empty at `offset`.
    pub fn truncate_fully(
        &mut self,
        storage: &dyn Storage,
        state: &mut ProducerState,
        offset: i64,
    ) -> Result<()> {
        self.remove_given_up(storage)?;
        for snapshot in self.offsets.clone() {
            self.delete(storage, snapshot)?;
        }
        self.last_snapshot_offset = 0;
        state.clear(offset);
        Ok(())
    }

    /// Takes those that belong to no segment off the list, at start. The newest of them is kept if
    /// it lies behind the last segment's base offset: it is the one of the log end. Each clean stop
    /// leaves one, so the files are removed when the broker serves (`take_given_up`).
    pub fn give_up_stray(&mut self, segment_base_offsets: &BTreeSet<i64>) {
        let stray: Vec<i64> = self
            .offsets
            .difference(segment_base_offsets)
            .copied()
            .collect();
        let last_segment = segment_base_offsets.last().copied();
        for (index, offset) in stray.iter().enumerate() {
            let is_newest = index + 1 == stray.len();
            if is_newest && last_segment.is_none_or(|base_offset| *offset >= base_offset) {
                continue;
            }
            self.offsets.remove(offset);
            self.given_up.push(*offset);
        }
    }

    /// Removes the snapshots that were given up: their records are about to be cut off, and they
    /// must not be taken for the state of others.
    fn remove_given_up(&mut self, storage: &dyn Storage) -> Result<()> {
        for offset in std::mem::take(&mut self.given_up) {
            remove(storage, &self.path(offset))?;
        }
        Ok(())
    }

    /// The files of those that were given up, for whoever removes them.
    pub fn take_given_up(&mut self) -> Vec<PathBuf> {
        let given_up = std::mem::take(&mut self.given_up);
        given_up.iter().map(|offset| self.path(*offset)).collect()
    }

    /// The log now starts at `log_start_offset` (retention, DeleteRecords).
    pub fn on_log_start_offset(&mut self, state: &mut ProducerState, log_start_offset: i64) {
        state.on_log_start_offset(log_start_offset);
        self.last_snapshot_offset = self.latest().unwrap_or(log_start_offset);
    }

    /// Deletes the snapshots above `offset`.
    pub fn delete_after(&mut self, storage: &dyn Storage, offset: i64) -> Result<()> {
        for snapshot in self
            .offsets
            .range(offset + 1..)
            .copied()
            .collect::<Vec<_>>()
        {
            self.delete(storage, snapshot)?;
        }
        Ok(())
    }

    /// Deletes the snapshot at `offset`, if there is one: its segment is gone.
    pub fn delete(&mut self, storage: &dyn Storage, offset: i64) -> Result<()> {
        if !self.offsets.remove(&offset) {
            return Ok(());
        }
        remove(storage, &self.path(offset))
    }

    /// Takes the snapshot at `offset` off the list and returns its path: the caller renames and
    /// deletes the file with those of its segment.
    pub fn forget(&mut self, offset: i64) -> Option<PathBuf> {
        self.offsets.remove(&offset).then(|| self.path(offset))
    }

    fn path(&self, offset: i64) -> PathBuf {
        names::segment_path(&self.directory, offset, names::PRODUCER_SNAPSHOT, "")
    }

    fn sync_directory(&self, storage: &dyn Storage) -> Result<()> {
        storage
            .sync_directory(&self.directory)
            .map_err(Error::io("fsync", &self.directory))
    }
}

/// Removes the file of a snapshot, if it is there.
pub(in crate::log) fn remove(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("unlink", path)(error))
        }
        _ => Ok(()),
    }
}
