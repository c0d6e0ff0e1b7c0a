"""A partition that is reassigned to other brokers while its log is here."""

import time
from pathlib import Path

from kafkalite import _native
from kafkalite.broker import _cleaner_settings
from kafkalite.config import Config
from kafkalite.listeners import connection_limits
from kafkalite.metadata.image import PartitionImage
from kafkalite.metadata.publisher import TopicState

HERE, THERE = 1, 2


def test_its_log_is_deleted_as_kafkas_is(tmp_path: Path) -> None:
    """It stayed until the next start, which called it stray."""
    claimed = _native.ClaimedDirectories(
        node_id=HERE,
        cluster_id="A" * 22,
        log_dirs=[str(tmp_path)],
        metadata_dir=str(tmp_path),
        recovery_threads=1,
        flush_threads=1,
        open_segments=16,
    )
    stays, goes = (
        PartitionImage(
            index=index,
            leader=HERE,
            leader_epoch=0,
            partition_epoch=0,
            replicas=(HERE,),
            isr=(HERE,),
            directories=(claimed.directories[0][1],),
        )
        for index in range(2)
    )
    config = Config({"log.dirs": str(tmp_path)})
    state = TopicState(bytes([7]) * 16, False, {}, (stays, goes))
    core = _native.BrokerCore(
        claimed=claimed,
        topics={"t": state},
        settings=config.settings(),
        cleaner=_cleaner_settings(config),
    )
    core.start([], [], names=[], limits=connection_limits(config, []))
    gone = goes._replace(leader=THERE, leader_epoch=1, partition_epoch=1, replicas=(THERE,))
    core.topics.publish({"t": state._replace(partitions=(stays, gone))})
    # The next rounds make the call, beside the control thread if the directory takes long.
    deadline = time.monotonic() + 30
    while (tmp_path / "t-1").exists() and time.monotonic() < deadline:
        core.requests.wait(20)
    names = [each.name for each in tmp_path.iterdir() if each.is_dir()]
    assert core.logs.find("t", 0) is not None
    assert core.logs.find("t", 1) is None
    assert "t-0" in names and "t-1" not in names
    assert [name for name in names if name.startswith("t-1.") and name.endswith("-delete")]
    core.stop()
    core.close(1)
