//! Power cuts and kills on a real file system, with a process of its own that appends and flushes.
//!
//! ```text
//! this test ── starts ──► the writer (this binary again): append, flush, "flushed 42" on stdout, …
//!     │ after some lines: FS_IOC_SHUTDOWN of its loop-mounted ext4, which loses what was not synced,
//!     │ or SIGKILL at the n-th system call of a kind (strace)
//!     └► mounts again, opens the log: everything the writer has called flushed is there
//! ```
#![expect(unsafe_code, reason = "FS_IOC_SHUTDOWN is an ioctl")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;

use super::workbench::{NOBODY, NOW_MS, append, batch, options, serve};
use crate::random::{Random, is_long_run, skip};

/// `_IOR('X', 125, __u32)`, and: do not even write the journal.
const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
const SHUTDOWN_WITHOUT_LOG_FLUSH: u32 = 2;

/// How often a mount or unmount is tried that has to succeed; each try is a process.
const TRIES_MAX: usize = 1000;

/// Where the writer shall write; this binary is the writer if it is set.
const WRITER_HOME: &str = "KAFKALITE_TEST_WRITER_HOME";

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 20_000,
        index_interval_bytes: 1_000,
        ..LogConfig::default()
    }
}

fn open(home: &Path) -> LogDirectory {
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 64);
    let config = |_: &str| config();
    LogDirectory::open(&open_segments, home, &options(&config)).unwrap()
}

/// What stands at `offset`: two records whose size and content follow from it.
fn batch_at(offset: i64) -> Vec<u8> {
    batch(Codec::None, NOBODY, offset, 2, (offset * 37 % 900) as usize)
}

/// Not a test but the process that is cut off; ends only by that, or after 20,000 batches.
#[test]
#[ignore = "the writer that other tests start"]
fn writer() {
    let Some(home) = std::env::var_os(WRITER_HOME) else {
        return;
    };
    let directory = open(Path::new(&home));
    let log = directory.log("t", 0).unwrap_or_else(|| {
        directory
            .create_log("t", 0, Uuid([7; 16]), config(), NOW_MS)
            .unwrap()
    });
    let mut output = std::io::stdout();
    for round in 0..20_000 {
        let info = append(&log, batch_at(log.offsets().log_end_offset), 1).unwrap();
        if round % 3 != 0 {
            continue;
        }
        log.flush().unwrap();
        writeln!(output, "flushed {}", info.last_offset + 1).unwrap();
        if round % 60 == 0 {
            directory.write_checkpoints().unwrap();
        }
    }
}

fn start_writer(home: &Path, strace: &[&str]) -> Child {
    let this = std::env::current_exe().unwrap();
    let mut command = match strace {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command
        .args([
            "--exact",
            "faults::power_cuts::writer",
            "--ignored",
            "--nocapture",
        ])
        .env(WRITER_HOME, home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

/// The writer with strace, if that is between: killing strace alone would set the writer free.
fn kill_group(writer: &Child) {
    // SAFETY: a plain system call; the group is the one that `start_writer` has made, and its
    // leader has not been waited for, so the number is still its own.
    unsafe { libc::kill(-(writer.id() as libc::pid_t), libc::SIGKILL) };
}

/// From now on a read of the pipe says what is there and does not wait for more.
fn do_not_block(pipe: &OwnedFd) {
    // SAFETY: a plain system call on a descriptor that is open.
    let result = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// The last offset that a line calls flushed.
fn flushed_in(line: &str) -> Option<i64> {
    line.trim().rsplit_once("flushed ")?.1.parse().ok()
}

/// Everything below `flushed` is there, and whatever there is follows from its offset.
fn check(home: &Path, flushed: i64, case: &str) {
    let directory = open(home);
    let Some(log) = directory.log("t", 0) else {
        assert_eq!(flushed, 0, "{case}: the log is gone");
        return;
    };
    let served = serve(&log, ReadIsolation::HighWatermark, 1 << 20);
    let end = served.iter().fold(0, |next, batch| {
        assert_eq!(batch.base_offset, next, "{case}: a hole");
        assert_eq!(
            batch.content(),
            &batch_at(next)[17..],
            "{case}: offset {next}"
        );
        batch.next_offset()
    });
    assert!(
        end >= flushed,
        "{case}: ends at {end}, flushed was {flushed}"
    );
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A process that was killed a moment ago may still hold a file, and so may the child of another
/// test between its fork and its exec.
pub fn unmount(point: &Path) {
    let point = point.to_str().unwrap();
    let has_gone = (0..TRIES_MAX).any(|_| run("umount", &[point]));
    assert!(has_gone, "{point} cannot be unmounted");
}

/// An ext4 in a file, mounted.
struct LoopMount {
    image: PathBuf,
    point: PathBuf,
}

impl LoopMount {
    fn new(home: &Path) -> Option<LoopMount> {
        let mount = LoopMount {
            image: home.join("image"),
            point: home.join("mnt"),
        };
        std::fs::File::create(&mount.image)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        std::fs::create_dir(&mount.point).unwrap();
        let made = run("mkfs.ext4", &["-q", "-F", mount.image.to_str().unwrap()]);
        (made && mount.mount()).then_some(mount)
    }

    fn mount(&self) -> bool {
        run(
            "mount",
            &[
                "-o",
                "loop",
                self.image.to_str().unwrap(),
                self.point.to_str().unwrap(),
            ],
        )
    }

    /// Mounts again what was unmounted a moment ago: Linux may still be
    /// letting go of the loop device.
    fn mount_again(&self) {
        let has_come = (0..TRIES_MAX).any(|_| self.mount());
        assert!(has_come, "{} does not come back", self.point.display());
    }

    /// Takes the power away. Nothing but a loop mount is ever shut down.
    fn cut(&self) {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let point = self.point.to_str().unwrap();
        let source = mounts.lines().rev().find_map(|line| {
            let mut fields = line.split(' ');
            let source = fields.next()?;
            (fields.next()? == point).then_some(source)
        });
        assert!(
            source.is_some_and(|source| source.starts_with("/dev/loop")),
            "{point} is no loop mount: {source:?}"
        );
        let directory = std::fs::File::open(&self.point).unwrap();
        // SAFETY: the descriptor is open for the length of the call, which reads a u32.
        let result = unsafe {
            libc::ioctl(
                directory.as_raw_fd(),
                FS_IOC_SHUTDOWN as _,
                &SHUTDOWN_WITHOUT_LOG_FLUSH,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        run("umount", &["-l", self.point.to_str().unwrap()]);
    }
}

#[test]
fn a_power_cut_takes_nothing_that_was_flushed() {
    let home = tempfile::tempdir().unwrap();
    let Some(mount) = LoopMount::new(home.path()) else {
        return skip("power cuts: no ext4 can be loop-mounted here");
    };
    let data = mount.point.join("data");
    let mut random = Random::new(3);
    let mut flushed = 0;
    for cut in 0..if is_long_run() { 300 } else { 10 } {
        let case = format!("cut {cut}");
        let mut writer = start_writer(&data, &[]);
        let stdout = OwnedFd::from(writer.stdout.take().unwrap());
        let mut lines = BufReader::new(std::fs::File::from(stdout.try_clone().unwrap())).lines();
        for _ in 0..random.below(60) {
            match lines.next() {
                Some(line) => flushed = flushed_in(&line.unwrap()).unwrap_or(flushed),
                None => panic!("{case}: the writer has ended"),
            }
        }
        // What the writer says after the cut no one would have heard: the machine is off. (Linux
        // can answer 0 to an fdatasync that is under way when the journal is aborted.) So what it
        // has said until now counts, and nothing later.
        do_not_block(&stdout);
        while let Some(Ok(line)) = lines.next() {
            flushed = flushed_in(&line).unwrap_or(flushed);
        }
        mount.cut();
        kill_group(&writer);
        writer.wait().unwrap();
        unmount(&mount.point);
        mount.mount_again();
        check(&data, flushed, &case);
    }
    assert!(flushed > 100, "the writer has flushed up to {flushed} only");
    unmount(&mount.point);
}

/// SIGKILL in the middle of each kind of system call that changes something.
#[test]
fn a_kill_at_any_system_call_takes_nothing_that_was_flushed() {
    let probe = "-f -o /dev/null -e trace=fdatasync true";
    if !run("strace", &probe.split(' ').collect::<Vec<_>>()) {
        return skip("kills at the n-th system call: no strace that may trace here");
    }
    let calls = [
        "fdatasync",
        "pwrite64",
        "rename",
        "unlink",
        "fsync",
        "openat",
    ];
    let home = tempfile::tempdir().unwrap();
    let mut random = Random::new(4);
    let mut killed = 0;
    for (at, call) in calls
        .iter()
        .cycle()
        .take(if is_long_run() { 200 } else { 6 })
        .enumerate()
    {
        let data = home.path().join(format!("data-{}", at % 3));
        // openat is also how a process starts.
        let when = 1 + random.below(12) + if *call == "openat" { 30 } else { 0 };
        let trace = format!("trace={call}");
        let inject = format!("inject={call}:signal=SIGKILL:when={when}");
        let options = ["strace", "-f", "-qq", "-o", "/dev/null"];
        let strace = [&options[..], &["-e", &trace, "-e", &inject]].concat();
        let mut writer = start_writer(&data, &strace);
        let mut output = BufReader::new(writer.stdout.take().unwrap());
        let (mut flushed, mut line, mut count) = (0, String::new(), 0);
        while count < 60 && output.read_line(&mut line).unwrap() > 0 {
            flushed = flushed_in(&line).unwrap_or(flushed);
            line.clear();
            count += 1;
        }
        // A writer that never made that many of these calls is stopped here.
        killed += usize::from(count < 60);
        kill_group(&writer);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        flushed = rest
            .lines()
            .filter_map(flushed_in)
            .next_back()
            .unwrap_or(flushed);
        writer.wait().unwrap();
        if data.exists() {
            check(&data, flushed, &format!("killed at {call} {when}"));
        }
    }
    assert!(killed > 2, "only {killed} were killed in a call");
}
