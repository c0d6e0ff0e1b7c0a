//! The first half of an append, for which no lock is held: each request is judged by itself, and as
//! many of them as the caller wants inflated at once.

use super::append::AppendRequest;
use super::config::LogConfig;
use super::log::Log;
use crate::batch::validate::{Validated, validate};
use crate::error::{Error, Result};
use crate::limits::RECORD_ERRORS_MAX;

impl Log {
    /// Accepts or refuses the records of each request. `inflated_bytes_left` is what may be
    /// inflated for it; what was is taken away. The first request for which that is not enough is
    /// `TooCostly`, and so are those behind it: they may be of the same producer.
    pub(super) fn judge(
        &self,
        requests: &mut [AppendRequest<'_>],
        config: &LogConfig,
        now_ms: i64,
        inflated_bytes_left: &mut usize,
    ) -> Vec<Result<Validated>> {
        let mut scratch = self.open_segments.scratches.scratch(*inflated_bytes_left);
        let mut judged: Vec<Result<Validated>> = Vec::with_capacity(requests.len());
        let mut errors_left = RECORD_ERRORS_MAX;
        for request in requests.iter_mut() {
            if let Some(Err(Error::TooCostly)) = judged.last() {
                judged.push(Err(Error::TooCostly));
                continue;
            }
            let rules = config.validation_rules(request.origin, now_ms);
            judged.push(validate(request.records, &rules, &mut scratch));
            if let Some(Err(Error::RecordsRefused(refused))) = judged.last_mut() {
                refused.errors.truncate(errors_left);
                refused.errors.shrink_to_fit();
                errors_left -= refused.errors.len();
            }
        }
        *inflated_bytes_left = scratch.left_bytes();
        judged
    }
}
