//! Every call by which the log touches the outside, as a trait. So each can be made to fail at its
//! n-th use, and a power cut can be simulated in memory. `DiskStorage` is the real one; the one of
//! the tests is `tests/rust/memory_storage`.
//!
//! Memory maps and raw system calls of storage are here; `net/poller.rs` has those of sockets. No
//! other file of the engine may use `unsafe` (`py/` aside).
#![expect(
    unsafe_code,
    reason = "memory maps, record locks and fallocate are system calls"
)]

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; reading only.
    Read,
    /// Must exist; reading and writing.
    ReadWrite,
    /// Made if missing, kept as it is if there; reading and writing.
    CreateOrOpen,
    /// Made, or emptied if there; reading and writing.
    CreateOrTruncate,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: String,
    pub is_directory: bool,
}

/// The file system as the log sees it. All paths are absolute or relative to the process; nothing
/// is created implicitly. A name is durable only after `sync_directory` on its directory.
pub trait Storage: Send + Sync + 'static {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>>;
    fn create_directory_all(&self, path: &Path) -> io::Result<()>;
    /// Entries in no order; names that are not UTF-8 are left out. A link to a directory is one.
    fn read_directory(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    /// Size in bytes, or `None` if there is no such file.
    fn file_size(&self, path: &Path) -> io::Result<Option<u64>>;
    /// When the file was last written, milliseconds since the epoch.
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;
    /// Has the file say that it was last written then, milliseconds since the epoch.
    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()>;
    /// Replaces `to` if it is there, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it.
    fn remove_directory_all(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in the directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// The file system that holds the directory, for making it durable as a whole. `None`: it might
    /// not tell of a write that failed, or some directory in it lies on another one. To be opened
    /// before the writes of which it is to tell.
    fn file_system(&self, directory: &Path) -> io::Result<Option<Box<dyn StorageFileSystem>>>;
    /// Takes the exclusive record lock (fcntl) of a whole file, which is made if missing. `None`:
    /// another process holds it. Released when the guard is dropped.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>>;
    /// Bytes available to this process on the file system of `path`.
    fn available_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Lets this process have `wanted` descriptors, as far as it may. Returns how many it can have.
    fn allow_descriptors(&self, wanted: u64) -> u64;
}

/// An open file. All reads and writes name their position; there is no cursor.
pub trait StorageFile: Send + Sync {
    /// May read less than asked; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], position_byte: u64) -> io::Result<usize>;
    /// May write less than given.
    fn write_vectored_at(&self, buffers: &[IoSlice<'_>], position_byte: u64) -> io::Result<usize>;
    fn size(&self) -> io::Result<u64>;
    fn set_size(&self, size_bytes: u64) -> io::Result<()>;
    /// Reserves blocks up to `size_bytes` without changing the size.
    fn preallocate(&self, size_bytes: u64) -> io::Result<()>;
    /// `fdatasync`: data and the size.
    fn sync_data(&self) -> io::Result<()>;
    /// Waits for the writes to the disk that have begun, and tells if one of them has failed, as
    /// `sync_data` would; begins none (`sync_file_range`). Nothing is durable for it.
    fn check_written(&self) -> io::Result<()>;
    /// The file's bytes. A real file is mapped: only for files that no one will cut or write any
    /// more (a cut map is SIGBUS).
    fn map(&self) -> io::Result<Mapping>;
    /// For `sendfile`; `None` if the file is no descriptor.
    fn descriptor(&self) -> Option<RawFd>;
}

/// A file system, as whoever has many files to sync sees it.
pub trait StorageFileSystem: Send + Sync {
    /// Everything written before, contents and names, is durable after `Ok` (`syncfs`). An error
    /// may be that of any file: nothing then is known of any.
    fn sync(&self) -> io::Result<()>;
}

/// Held as long as the lock is.
pub trait StorageLock: Send + Sync {}

/// The bytes of an immutable file.
pub enum Mapping {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl std::ops::Deref for Mapping {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Mapping::Mapped(map) => map,
            Mapping::Owned(bytes) => bytes,
        }
    }
}

/// Reads exactly `buffer.len()` bytes or says `UnexpectedEof`.
pub fn read_exact_at(file: &dyn StorageFile, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let read = read_full_at(file, buffer, position)?;
    if read < buffer.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Reads until `buffer` is full or the file ends; the count says which.
pub fn read_full_at(file: &dyn StorageFile, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], position + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes` or fails; how much was written before a failure is unknown.
pub fn write_all_at(file: &dyn StorageFile, bytes: &[u8], position: u64) -> io::Result<()> {
    write_all_vectored_at(file, &mut [IoSlice::new(bytes)], position)
}

/// As `write_all_at`, from several buffers by as few calls as the system takes.
pub fn write_all_vectored_at(
    file: &dyn StorageFile,
    mut buffers: &mut [IoSlice<'_>],
    mut position: u64,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        let vectors = buffers.len().min(crate::limits::APPEND_VECTORS_MAX);
        match file.write_vectored_at(&buffers[..vectors], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                position += count as u64;
                IoSlice::advance_slices(&mut buffers, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a whole small file; `None` if it is not there.
pub fn read_file(storage: &dyn Storage, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match storage.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; file.size()? as usize];
    let read = read_full_at(&*file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Replaces a small file so that after a crash either the old or the new content is there: write
/// `<path>.tmp`, fsync, rename, fsync of the directory.
pub fn replace_file(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file_unnamed(storage, path, bytes)?;
    match path.parent() {
        Some(directory) => storage.sync_directory(directory),
        None => Ok(()),
    }
}

/// Replaces a file without the fsync of the directory, which is the caller's: until then the old
/// content may come back, and no third one.
pub fn replace_file_unnamed(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file_by(storage, path, |file| write_all_at(file, bytes, 0))
}

/// Replaces a file without any sync: a kill leaves the old or the new content, a power cut may
/// leave neither. A file that has this content already is left alone. For what the next start makes
/// anew as long as nobody has synced it.
pub fn replace_file_unsynced(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if read_file(storage, path)?.is_some_and(|found| found == bytes) {
        return Ok(());
    }
    replace_file_with(storage, path, |file| write_all_at(file, bytes, 0))
}

/// Puts whatever `write` makes in the place of a file; the fsync of the directory is the caller's.
pub fn replace_file_by(
    storage: &dyn Storage,
    path: &Path,
    write: impl FnOnce(&dyn StorageFile) -> io::Result<()>,
) -> io::Result<()> {
    replace_file_with(storage, path, |file| {
        write(file)?;
        file.sync_data()
    })
}

fn replace_file_with(
    storage: &dyn Storage,
    path: &Path,
    write: impl FnOnce(&dyn StorageFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let file = storage.open(&temporary, OpenMode::CreateOrTruncate)?;
    write(&*file)?;
    drop(file);
    storage.rename(&temporary, path)
}

/// Says whether some process holds the record lock of a file on disk. Takes nothing and makes
/// nothing; a file that is not there is not locked.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // SAFETY: zeroed `flock` is a valid value of the C struct; l_pid must be 0 for OFD locks.
    let mut region: libc::flock = unsafe { std::mem::zeroed() };
    region.l_type = libc::F_WRLCK as _;
    region.l_whence = libc::SEEK_SET as _;
    // SAFETY: descriptor and struct live through the call, which writes into the struct.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut region) })?;
    Ok(region.l_type != libc::F_UNLCK as libc::c_short)
}

/// The operating system's file system (Linux; another system is a second implementation).
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskStorage;

struct DiskFile(fs::File);
struct DiskLock(fs::File);
/// Some directory of the file system. One descriptor for all syncs: the kernel notes in it which
/// errors it has told of, and those from before it was opened are somebody else's.
struct DiskFileSystem(fs::File);
impl StorageLock for DiskLock {}

impl Drop for DiskLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that was forked meanwhile has the descriptor, too.
        let _ = lock_whole(&self.0, libc::F_UNLCK);
    }
}

/// Takes or releases the record lock of a whole file, without waiting.
fn lock_whole(file: &fs::File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: zeroed `flock` is a valid value of the C struct; l_pid must be 0 for OFD locks.
    let mut region: libc::flock = unsafe { std::mem::zeroed() };
    region.l_type = kind as _;
    region.l_whence = libc::SEEK_SET as _;
    // SAFETY: descriptor and struct live through the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &region) })
}

impl Storage for DiskStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        options.create(matches!(
            mode,
            OpenMode::CreateOrOpen | OpenMode::CreateOrTruncate
        ));
        options.truncate(mode == OpenMode::CreateOrTruncate);
        Ok(Arc::new(DiskFile(options.open(path)?)))
    }

    fn create_directory_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                let kind = entry.file_type()?;
                let is_directory = if kind.is_symlink() {
                    fs::metadata(entry.path()).is_ok_and(|target| target.is_dir())
                } else {
                    kind.is_dir()
                };
                entries.push(DirectoryEntry { name, is_directory });
            }
        }
        Ok(entries)
    }

    fn file_size(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let modified = fs::metadata(path)?.modified()?;
        let since = modified
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let since = Duration::from_millis(u64::try_from(modified_ms).unwrap_or(0));
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.set_modified(std::time::UNIX_EPOCH + since)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn file_system(&self, directory: &Path) -> io::Result<Option<Box<dyn StorageFileSystem>>> {
        let file = fs::File::open(directory)?;
        // SAFETY: zeroed `statfs` is a valid out-parameter; the descriptor is open.
        let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
        check(unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) })?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let tells = syncfs_tells_of_failed_writes(stat.f_type as u32, &release)
            && holds_all(directory, file.metadata()?.dev())?;
        Ok(tells.then(|| Box::new(DiskFileSystem(file)) as Box<dyn StorageFileSystem>))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        let mut options = fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // Kafka locks with Java's FileChannel.tryLock, which is a record lock (fcntl); flock would
        // not exclude it. The open-file-description kind also excludes this process itself and
        // is not lost when some other descriptor of the file is closed.
        match lock_whole(&file, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Box::new(DiskLock(file)))),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: zeroed `statvfs` is a valid out-parameter; path is NUL-terminated.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        check(unsafe { libc::statvfs(path.as_ptr(), &mut stat) })?;
        Ok(stat.f_bavail as u64 * stat.f_frsize as u64)
    }

    fn allow_descriptors(&self, wanted: u64) -> u64 {
        // SAFETY: zeroed `rlimit` is a valid out-parameter.
        let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
        // SAFETY: the struct lives through the call, which writes into it.
        if check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }).is_err() {
            return u64::MAX; // nobody can say, and nobody will be kept from trying
        }
        let raised = libc::rlimit {
            rlim_cur: limit.rlim_max.min(wanted),
            ..limit
        };
        // SAFETY: the struct lives through the call, which reads it.
        if raised.rlim_cur > limit.rlim_cur
            && check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) }).is_ok()
        {
            return raised.rlim_cur;
        }
        limit.rlim_cur
    }
}

impl StorageFileSystem for DiskFileSystem {
    fn sync(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open for the length of the call.
        check(unsafe { libc::syncfs(self.0.as_raw_fd()) })
    }
}

/// File systems by the magic number of `statfs`, as in Linux' `magic.h`.
const EXT4: u32 = 0xEF53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683E;
const F2FS: u32 = 0xF2F5_2010;

/// Says whether all directories in this one lie on its file system, whose device is given. A
/// partition's directory may be a link or a mount.
fn holds_all(directory: &Path, device: u64) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if fs::metadata(&path).is_ok_and(|found| found.is_dir() && found.dev() != device) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says whether an error of `syncfs` can be relied on to come. Before 5.8 Linux answers success
/// whatever became of the writes, and before 5.17 drops what the file system itself says at its
/// sync (`sync_fs`). Others than these file systems keep to themselves what they hear of below
/// them: overlayfs answers success for writes that failed, on 6.18 as well.
fn syncfs_tells_of_failed_writes(file_system: u32, release: &str) -> bool {
    [EXT4, XFS, BTRFS, F2FS].contains(&file_system) && is_at_least(release, (5, 17))
}

/// Says whether a kernel release, "6.1.0-18-amd64", is of a version or later.
fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.trim().parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= version,
        _ => false,
    }
}

impl StorageFile for DiskFile {
    fn read_at(&self, buffer: &mut [u8], position_byte: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position_byte)
    }

    fn write_vectored_at(&self, buffers: &[IoSlice<'_>], position_byte: u64) -> io::Result<usize> {
        if let [single] = buffers {
            return self.0.write_at(single, position_byte);
        }
        // SAFETY: IoSlice is guaranteed to have the layout of iovec; the count is bounded by
        // APPEND_VECTORS_MAX and the buffers live through the call.
        let written = unsafe {
            libc::pwritev(
                self.0.as_raw_fd(),
                buffers.as_ptr().cast::<libc::iovec>(),
                buffers.len() as libc::c_int,
                position_byte as libc::off_t,
            )
        };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.0.set_len(size_bytes)
    }

    fn preallocate(&self, size_bytes: u64) -> io::Result<()> {
        // SAFETY: a plain system call on an open descriptor.
        let result = unsafe {
            libc::fallocate(
                self.0.as_raw_fd(),
                libc::FALLOC_FL_KEEP_SIZE,
                0,
                size_bytes as libc::off_t,
            )
        };
        match check(result) {
            // Preallocation is a hint: a file system without it writes as it always did.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            other => other,
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn check_written(&self) -> io::Result<()> {
        let descriptor = self.0.as_raw_fd();
        // SAFETY: a plain system call on an open descriptor; 0 bytes from 0 are the whole file.
        check(unsafe { libc::sync_file_range(descriptor, 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) })
    }

    fn map(&self) -> io::Result<Mapping> {
        if self.0.metadata()?.len() == 0 {
            return Ok(Mapping::Owned(Vec::new()));
        }
        // SAFETY: the caller promises (see the trait) that no one cuts the file while it is mapped;
        // the log replaces closed files by rename, never in place.
        Ok(Mapping::Mapped(unsafe { memmap2::Mmap::map(&self.0)? }))
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.0.as_raw_fd())
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared flush would not have reached what lies elsewhere.
    #[test]
    fn a_link_to_a_directory_is_one_and_may_lie_on_another_file_system() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let device = fs::metadata(directory.path())?.dev();
        fs::create_dir(directory.path().join("t-0"))?;
        std::os::unix::fs::symlink("t-0", directory.path().join("t-1"))?;
        assert!(holds_all(directory.path(), device)?);
        std::os::unix::fs::symlink("/proc/self", directory.path().join("t-2"))?;
        std::os::unix::fs::symlink("nowhere", directory.path().join("t-3"))?;
        assert!(!holds_all(directory.path(), device)?);
        let mut entries = DiskStorage.read_directory(directory.path())?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let is_directory: Vec<bool> = entries.iter().map(|each| each.is_directory).collect();
        assert_eq!(is_directory, [true, true, true, false]);
        Ok(())
    }

    /// Overlayfs answered success for writes that had failed, and records were acknowledged that
    /// were never on disk.
    #[test]
    fn syncfs_is_trusted_where_it_tells_of_failed_writes_and_nowhere_else() {
        for file_system in [EXT4, XFS, BTRFS, F2FS] {
            for (release, tells) in [
                ("5.17.0\n", true),
                ("5.17", true),
                ("6.18.44-fc-v657", true),
                ("10.0", true),
                ("5.16.20-generic", false),
                ("5.8.0", false),
                ("5.7.19", false),
                ("4.19", false),
                ("unknown", false),
                ("", false),
            ] {
                assert_eq!(
                    syncfs_tells_of_failed_writes(file_system, release),
                    tells,
                    "{file_system:#x} on {release:?}"
                );
            }
        }
        for (name, file_system) in [
            ("overlayfs", 0x794C_7630),
            ("tmpfs", 0x0102_1994),
            ("nfs", 0x6969),
            ("fuse", 0x6573_5546),
            ("9p", 0x0102_1997),
            ("zfs", 0x2FC1_2FC1),
            ("unknown", 0),
        ] {
            assert!(
                !syncfs_tells_of_failed_writes(file_system, "6.18.44"),
                "{name}"
            );
        }
    }

    #[test]
    fn descriptors_are_allowed_up_to_the_hard_limit_and_never_taken_back() {
        let before = DiskStorage.allow_descriptors(0);
        assert!(before > 0);
        assert_eq!(DiskStorage.allow_descriptors(1), before);
        let most = DiskStorage.allow_descriptors(u64::MAX);
        assert!(most >= before);
        assert_eq!(DiskStorage.allow_descriptors(0), most);
    }
}
