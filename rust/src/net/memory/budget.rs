//! The memory that requests may take while they arrive or wait, for all connections together.
//!
//! As Kafka's `SimpleMemoryPool` (`queued.max.request.bytes`): whoever asks while anything is left
//! gets all it asks for, and then nobody gets anything until enough is given back. A frame asks for
//! its buffer, before that grows by what has come, and not for the size that it claims: a claim
//! costs its client nothing, and would keep others out of memory that nobody uses. So frames can
//! fill the budget and wait for each other half received: one frame at a time may exceed it. Kafka
//! has no limit by default; here it is a quarter of the machine's (or the control group's) memory.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::limits::{RECEIVE_BUDGET_MAX, RECEIVE_BUDGET_MIN};

pub struct ReceiveBudget {
    size_bytes: i64,
    used_bytes: AtomicI64,
    /// Somebody was refused and wants to be told.
    is_wanted: AtomicBool,
    /// A frame comes in beyond the budget.
    is_exceeded: AtomicBool,
    /// So does an answer.
    is_exceeded_by_answer: AtomicBool,
}

impl ReceiveBudget {
    /// `queued_bytes_max` is `queued.max.request.bytes`; not positive is the default.
    pub fn new(queued_bytes_max: i64, memory_bytes: Option<u64>) -> ReceiveBudget {
        let by_memory = memory_bytes.map_or(RECEIVE_BUDGET_MAX, |bytes| {
            (bytes / 4).clamp(RECEIVE_BUDGET_MIN, RECEIVE_BUDGET_MAX)
        });
        ReceiveBudget {
            size_bytes: match queued_bytes_max {
                1.. => queued_bytes_max,
                _ => by_memory as i64,
            },
            used_bytes: AtomicI64::new(0),
            is_wanted: AtomicBool::new(false),
            is_exceeded: AtomicBool::new(false),
            is_exceeded_by_answer: AtomicBool::new(false),
        }
    }

    pub fn used_bytes(&self) -> i64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub fn size_bytes(&self) -> i64 {
        self.size_bytes
    }

    pub fn is_exhausted(&self) -> bool {
        self.used_bytes() >= self.size_bytes
    }

    /// Half is used: what waits for one log directory that does not answer takes no more,
    /// so that the others go on.
    pub fn is_half_used(&self) -> bool {
        self.used_bytes() >= self.size_bytes / 2
    }

    /// Takes so many bytes if anything is left. Whoever is refused is told
    /// when there is room again.
    pub fn reserve(&self, bytes: usize) -> bool {
        if self.is_exhausted() {
            self.is_wanted.store(true, Ordering::SeqCst);
            // Somebody may have given back between the look and the note.
            if self.is_exhausted() {
                return false;
            }
        }
        self.charge(bytes);
        true
    }

    /// While nothing is left, lets a frame that has begun take what it asks for nevertheless, if no
    /// other one does so. `end_exceeding` must follow; whoever is refused is told then.
    pub fn exceed(&self) -> bool {
        !self.is_exceeded.swap(true, Ordering::SeqCst)
    }

    /// The frame that came in beyond the budget is whole, or gone. True: those who were
    /// refused have to be told.
    #[must_use]
    pub fn end_exceeding(&self) -> bool {
        self.is_exceeded.store(false, Ordering::SeqCst);
        self.is_wanted.swap(false, Ordering::SeqCst)
    }

    /// As `exceed`, of a request whose answer may take much: it keeps no frame waiting, however
    /// long its client takes to read. `end_exceeding_answer` must follow.
    pub fn exceed_by_answer(&self) -> bool {
        !self.is_exceeded_by_answer.swap(true, Ordering::SeqCst)
    }

    /// That answer is sent, or its connection is gone. True: those who were refused have to be
    /// told.
    #[must_use]
    pub fn end_exceeding_answer(&self) -> bool {
        self.is_exceeded_by_answer.store(false, Ordering::SeqCst);
        self.is_wanted.swap(false, Ordering::SeqCst)
    }

    /// Takes so many bytes, whatever is left: they are in memory already.
    pub fn charge(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes as i64, Ordering::SeqCst);
    }

    /// Gives back. True: there is room again, and those who were refused have to be told.
    #[must_use]
    pub fn release(&self, bytes: usize) -> bool {
        let before = self.used_bytes.fetch_sub(bytes as i64, Ordering::SeqCst);
        assert!(before >= bytes as i64, "more is given back than was taken");
        before - (bytes as i64) < self.size_bytes && self.is_wanted.load(Ordering::SeqCst) && {
            self.is_wanted.swap(false, Ordering::SeqCst)
        }
    }
}

/// Memory that this process may use, bytes: the machine's, or what its control groups or
/// `ulimit -v` leave of that.
pub fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let total_kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    let limits = group_limit_files(&read("/proc/self/cgroup"))
        .into_iter()
        .filter_map(|file| read(&file).trim().parse().ok())
        .chain(address_space_bytes(&read("/proc/self/limits")));
    limits.chain([total_kib * 1024]).min()
}

/// The files that may hold a limit of memory: of the groups that `/proc/self/cgroup` names, of both
/// versions, and of those around them. In a container the names may be those of the machine
/// outside, and the group itself is what is mounted.
fn group_limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (folder, file) = match parts.next() {
            Some("") => ("/sys/fs/cgroup", "memory.max"),
            Some(kinds) if kinds.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut group = parts.next().unwrap_or_default().trim_end_matches('/');
        loop {
            files.push(format!("{folder}{group}/{file}"));
            match group.rfind('/') {
                Some(end) => group = group.get(..end).unwrap_or_default(),
                None => break,
            }
        }
    }
    files
}

/// Reads what `/proc/self/limits` says of the address space, unless it is unlimited.
fn address_space_bytes(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_anything_is_left_a_frame_gets_all_it_asks_for() {
        let budget = ReceiveBudget::new(100, None);
        assert!(budget.reserve(60));
        assert!(budget.reserve(1_000));
        assert!(!budget.reserve(1));
        assert!(!budget.release(950), "nothing is left yet");
        assert!(budget.release(60), "the refused one has to be told");
        assert!(!budget.release(50), "and only once");
        assert!(budget.reserve(1));
    }

    #[test]
    fn one_frame_at_a_time_exceeds_the_budget() {
        let budget = ReceiveBudget::new(100, None);
        budget.charge(100);
        assert!(!budget.reserve(1) && budget.exceed());
        assert!(!budget.reserve(1) && !budget.exceed());
        assert!(budget.end_exceeding(), "the refused one has to be told");
        assert!(!budget.reserve(1) && budget.exceed());
        assert!(budget.end_exceeding() && !budget.end_exceeding());
    }

    #[test]
    fn the_default_is_a_quarter_of_the_memory_within_bounds() {
        let size = |memory| ReceiveBudget::new(-1, memory).size_bytes as u64;
        assert_eq!(
            size(Some(4 * RECEIVE_BUDGET_MIN + 4)),
            RECEIVE_BUDGET_MIN + 1
        );
        assert_eq!(size(Some(1)), RECEIVE_BUDGET_MIN);
        assert_eq!(size(None), RECEIVE_BUDGET_MAX);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    /// Only the very group of version 2 was looked at: a limit of a slice around it, or one of
    /// version 1, counted for nothing.
    #[test]
    fn a_group_is_limited_by_those_around_it_in_both_versions() {
        let groups = "5:cpu,memory:/docker/4f\n1:name=systemd:/user\n0::/user.slice/a:b\n";
        let expected = [
            "/sys/fs/cgroup/memory/docker/4f/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/user.slice/a:b/memory.max",
            "/sys/fs/cgroup/user.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(group_limit_files(groups), expected);
        assert_eq!(group_limit_files("0::/"), ["/sys/fs/cgroup/memory.max"]);
        assert!(group_limit_files("").is_empty());
    }

    #[test]
    fn the_address_space_is_a_limit_too() {
        let limits = |soft| {
            format!(
                "Max stack size 8388608 unlimited bytes\nMax address space  {soft}  unlimited  bytes\n"
            )
        };
        assert_eq!(address_space_bytes(&limits("1048576")), Some(1 << 20));
        assert_eq!(address_space_bytes(&limits("unlimited")), None);
        assert_eq!(address_space_bytes(""), None);
    }
}
