//! The ownership of a log directory: read without a change, refused with the reason, or taken by a
//! `meta.properties`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::log::directory::meta_properties::{META_PROPERTIES_FILE, MetaProperties};
use crate::log::names;
use crate::log::storage::{Storage, read_file, replace_file};

/// The contents of a directory before anything is touched.
pub(in crate::log) struct Found {
    pub identity: Option<MetaProperties>,
}

/// Looks at a directory without changing it; `None` if it is not there. Errors: see
/// `LogDirectory::claim`.
pub(in crate::log) fn examine(
    storage: &dyn Storage,
    path: &Path,
    wanted: &MetaProperties,
) -> Result<Option<Found>> {
    let entries = match storage.read_directory(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(path)(error)),
    };
    let refuse = |reason: String| Error::LogDirRefused {
        path: path.to_path_buf(),
        reason,
    };
    let meta_path = path.join(META_PROPERTIES_FILE);
    let text = read_file(storage, &meta_path).map_err(refused(path))?;
    let Some(text) = text else {
        // What a start leaves behind that was interrupted while it formatted an empty directory.
        let unfinished = format!("{META_PROPERTIES_FILE}.tmp");
        let harmless = [names::LOCK, names::LOST_AND_FOUND, unfinished.as_str()];
        let foreign = entries
            .iter()
            .find(|entry| !harmless.contains(&entry.name.as_str()));
        return match foreign {
            Some(entry) => Err(refuse(format!(
                "it holds {} but no {META_PROPERTIES_FILE}, so it is not a log directory of Kafka; \
                 name an empty one",
                entry.name
            ))),
            None => Ok(Some(Found { identity: None })),
        };
    };
    let identity = MetaProperties::parse(&text, &meta_path)?;
    check_identity(&identity, wanted).map_err(refuse)?;
    let stranger = entries.iter().find(|entry| {
        entry.is_directory
            && !names::OTHER_DIRECTORIES.contains(&entry.name.as_str())
            && names::parse_partition_directory(&entry.name).is_none()
            && !names::is_suffixed_directory(&entry.name)
    });
    match stranger {
        Some(entry) => Err(refuse(format!(
            "the directory {} in it is not in the form of topic-partition",
            entry.name
        ))),
        None => Ok(Some(Found {
            identity: Some(identity),
        })),
    }
}

/// Errors: why a directory is another broker's.
fn check_identity(
    found: &MetaProperties,
    wanted: &MetaProperties,
) -> std::result::Result<(), String> {
    if found.version == 0 {
        return Err("it belongs to a broker with ZooKeeper (version 0)".to_owned());
    }
    if found.cluster_id != wanted.cluster_id && wanted.cluster_id.is_some() {
        return Err(format!(
            "cluster.id in its {META_PROPERTIES_FILE} is {}, but {} is expected, which was given or \
             is that of the other directories: use directories of one cluster, or an empty one",
            found.cluster_id.as_deref().unwrap_or("?"),
            wanted.cluster_id.as_deref().unwrap_or("?"),
        ));
    }
    if found.node_id != wanted.node_id && wanted.node_id.is_some() {
        return Err(format!(
            "node.id in its {META_PROPERTIES_FILE} is {}, but the configuration has node.id={}: \
             correct node.id, or use another directory",
            found.node_id.unwrap_or(-1),
            wanted.node_id.unwrap_or(-1)
        ));
    }
    Ok(())
}

/// Writes `meta.properties`.
pub(in crate::log) fn format(
    storage: &dyn Storage,
    path: &Path,
    identity: &MetaProperties,
    now_ms: i64,
) -> Result<MetaProperties> {
    let missing = |what: &str| Error::InvalidArgument(format!("formatting needs a {what}"));
    identity
        .cluster_id
        .as_ref()
        .ok_or_else(|| missing("cluster id"))?;
    identity.node_id.ok_or_else(|| missing("node id"))?;
    identity
        .directory_id
        .ok_or_else(|| missing("directory id"))?;
    let meta_path = path.join(META_PROPERTIES_FILE);
    replace_file(storage, &meta_path, identity.print(now_ms).as_bytes()).map_err(refused(path))?;
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        storage
            .sync_directory(parent)
            .map_err(Error::io("fsync", parent))?;
    }
    Ok(identity.clone())
}

/// Takes back what a failed `format` has made, as far as the disk lets us.
pub(in crate::log) fn undo_format(
    storage: &dyn Storage,
    path: &Path,
    was_there: bool,
    had_lock: bool,
) {
    let unfinished = format!("{META_PROPERTIES_FILE}.tmp");
    let mut made = vec![META_PROPERTIES_FILE, &unfinished];
    if !had_lock {
        made.push(names::LOCK);
    }
    for name in made {
        let _ = storage.remove_file(&path.join(name));
    }
    let is_empty = storage
        .read_directory(path)
        .is_ok_and(|left| left.is_empty());
    if !was_there && is_empty {
        let _ = storage.remove_directory_all(path);
    }
}

pub(in crate::log) fn refused(path: &Path) -> impl Fn(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |error| Error::LogDirRefused {
        path: path.clone(),
        reason: error.to_string(),
    }
}
