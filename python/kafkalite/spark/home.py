"""A home for Spark without the archives of PySpark's sources, for sessions on this machine.

Spark's Python processes look into `python/lib/*.zip` of its home before they look where PySpark is
installed, and Python keeps nothing compiled of what is in an archive: each process compiles PySpark
anew, 2.2 s of CPU in place of 0.8 for the one that every stream starts.

    FOLDER/<digest of the path of the installed PySpark>/
        jars, bin, …    symbolic links to all that PySpark brings but `python`
"""

import hashlib
import site
import sysconfig
from contextlib import suppress
from pathlib import Path

__all__ = ["home_without_archives"]


def home_without_archives(pyspark: Path, folder: Path) -> Path | None:
    """The home, made in `folder` if need be; it stays there, since Spark uses it as long as its JVM
    lives. None where it would not do: another process of this Python must find PySpark installed,
    and `folder` must be there to be written to."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if site.ENABLE_USER_SITE:
        installed.add(site.getusersitepackages())
    if str(pyspark.parent) not in installed or not (pyspark / "bin" / "spark-submit").is_file():
        return None
    home = folder / hashlib.sha256(str(pyspark).encode()).hexdigest()[:16]
    try:
        home.mkdir(parents=True, exist_ok=True)
        for each in pyspark.iterdir():
            if each.name != "python":
                with suppress(FileExistsError):
                    (home / each.name).symlink_to(each)
    except OSError:
        return None
    return home
