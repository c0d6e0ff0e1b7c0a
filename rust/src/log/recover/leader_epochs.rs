//! The leader epochs of a log that is being loaded: as their file says, or as the records do where
//! it is wrong or begins too late, and cut to the log.

use crate::error::{Error, Result};
use crate::log::names::{self, LOG};
use crate::log::recover::Loader;
use crate::log::segment::rebuild::note_epoch;
use crate::log::segment::scan::BatchScanner;
use crate::log::state::epochs::LeaderEpochs;

impl Loader<'_> {
    pub(super) fn read_epochs(&mut self) -> Result<()> {
        let name = names::LEADER_EPOCH_CHECKPOINT;
        if !self.is_there(name) {
            self.written_epochs = Some(LeaderEpochs::default());
            return Ok(());
        }
        let fault = match LeaderEpochs::read(self.storage, self.directory()) {
            Ok(epochs) => {
                let fault = if epochs.is_empty() && self.has_emptied_epochs()? {
                    Some("it is empty")
                } else if self.begins_before(&epochs)? {
                    Some("the log begins before it does")
                } else {
                    None
                };
                self.epochs = epochs.clone();
                self.written_epochs = Some(epochs);
                fault.map(str::to_owned)
            }
            Err(Error::CorruptFile { reason, .. }) => Some(reason),
            Err(error) => return Err(error),
        };
        if let Some(fault) = fault {
            self.report
                .note(format!("rebuilt {name} from the records: {fault}"));
            self.take_epochs_of_records()?;
        }
        Ok(())
    }

    /// After a crash the log may begin where it began before its last DeleteRecords: the file has
    /// forgotten those epochs at once, and the checkpoint of log starts is written from time to
    /// time. A follower that knew none would cut what is committed. Of a log that begins with magic
    /// 0 or 1 no start looks through all records for epochs.
    fn begins_before(&self, epochs: &LeaderEpochs) -> Result<bool> {
        let log_start_offset = self.parameters.log_start_offset;
        let first = self.segments.at(log_start_offset);
        let Some(first) = first.or_else(|| self.segments.first()) else {
            return Ok(false);
        };
        let begin = log_start_offset.max(first.base_offset());
        let earliest = epochs.earliest();
        if self.parameters.was_clean || earliest.is_some_and(|known| known.start_offset <= begin) {
            return Ok(false);
        }
        let (file, path) = (first.file()?, first.files().path(LOG));
        let mut scanner = BatchScanner::new(&*file, &path, 0, first.size_bytes());
        let header = scanner.next_header();
        Ok(header.is_ok_and(|first| first.is_some_and(|(_, header)| header.magic >= 2)))
    }

    /// The file is there without a byte, although the log has records.
    fn has_emptied_epochs(&self) -> Result<bool> {
        let path = self.directory().join(names::LEADER_EPOCH_CHECKPOINT);
        let size = self.storage.file_size(&path);
        let is_empty = size.map_err(Error::io("stat", &path))? == Some(0);
        Ok(is_empty && self.segments.values().any(|one| one.size_bytes() > 0))
    }

    /// Puts the epochs of the records before those that the file has.
    fn take_epochs_of_records(&mut self) -> Result<()> {
        let known = std::mem::take(&mut self.epochs);
        let known_from = known
            .earliest()
            .map_or(i64::MAX, |first| first.start_offset);
        for segment in self.segments.values() {
            if segment.base_offset() >= known_from {
                break;
            }
            let file = segment.file()?;
            let path = segment.files().path(LOG);
            let mut scanner = BatchScanner::new(&*file, &path, 0, segment.size_bytes());
            // What is no batch is recovery's to judge; epochs behind it are found when it has.
            while let Ok(Some((_, header))) = scanner.next_header()
                && header.base_offset < known_from
            {
                note_epoch(&mut self.epochs, &header)?;
            }
        }
        for entry in known.entries() {
            if self
                .epochs
                .latest_epoch()
                .is_none_or(|latest| entry.epoch > latest)
            {
                self.epochs.assign(entry.epoch, entry.start_offset)?;
            }
        }
        Ok(())
    }

    pub(super) fn settle_epochs(
        &mut self,
        log_start_offset: i64,
        log_end_offset: i64,
    ) -> Result<()> {
        let on_disk = self.written_epochs.take();
        self.epochs.truncate_from_end(log_end_offset);
        self.epochs.truncate_from_start(log_start_offset);
        // With none left, the next batch writes the file, whatever its epoch. So the start of an
        // empty partition, whose last leader's epoch lies at its end, costs no fsync.
        if on_disk.is_some() && self.epochs.is_empty() {
            return Ok(());
        }
        if on_disk.as_ref() != Some(&self.epochs) {
            self.epochs.write(self.storage, self.directory())?;
        }
        Ok(())
    }
}
