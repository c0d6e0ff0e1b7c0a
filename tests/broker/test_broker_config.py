"""`kafkalite.Broker(config=…)` beside its other arguments: obeyed or refused, never ignored."""

import re
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.client import Admin
from ports import free_ports


def test_listeners_of_the_configuration_are_obeyed(tmp_path: Path) -> None:
    """They were ignored without a word, unless `listen=None` stood beside them."""
    port, other = free_ports(2)
    config = {
        "listeners": f"ONE://127.0.0.1:{port},TWO://127.0.0.1:{other}",
        "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
        "inter.broker.listener.name": "ONE",
        "log.dirs": str(tmp_path / "data"),
        "node.id": 7,
    }
    with kafkalite.Broker(config=config) as broker:
        addresses = [f"127.0.0.1:{port}", f"127.0.0.1:{other}"]
        assert broker.bootstrap_servers == ",".join(addresses)
        for address in addresses:
            with Admin(address) as admin:
                (node,) = admin.describe_cluster().brokers
            assert (node.id, f"{node.host}:{node.port}") == (7, address)
        assert (broker.data, (tmp_path / "data" / "meta.properties").exists()) == (None, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"listen": "127.0.0.1:9", "config": {"listeners": "PLAINTEXT://127.0.0.1:0"}},
            "listen=127.0.0.1:9 and listeners=PLAINTEXT://127.0.0.1:0 in config say where",
        ),
        ({"data": "a", "config": {"log.dirs": "b,c"}}, "data=a and log.dirs=b,c in config name"),
        ({"data": "a", "config": {"log.dir": "b"}}, "data=a and log.dir=b in config name"),
        (
            {"config": {"kafkalite.die.with.parent": False}},
            "kafkalite.die.with.parent=false in config cannot be",
        ),
    ],
)
def test_a_key_that_another_argument_would_replace_is_refused(
    arguments: dict[str, Any], sentence: str
) -> None:
    """The argument won, and nothing told of the key."""
    with pytest.raises(kafkalite.KafkaliteError, match=re.escape(sentence)):
        kafkalite.Broker(**arguments)
