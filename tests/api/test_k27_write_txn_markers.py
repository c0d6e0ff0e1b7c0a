"""WriteTxnMarkers by frames."""

from api.raw import Connection
from api.transactions import transactor
from kafkalite.protocol import messages


def test_an_operator_ends_a_hanging_transaction(connection: Connection, topic: str) -> None:
    client = transactor(connection)
    assert client.init() == 0
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.produce(topic, 0) == 0
    kind = messages.WriteTxnMarkersRequest.WritableTxnMarker
    where = kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 9])

    def write(epoch: int, coordinator_epoch: int, version: int = 0) -> list[int]:
        marker = kind(
            producer_id=client.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[where],
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        request = messages.WriteTxnMarkersRequest(markers=[marker])
        answer = connection.ask("WriteTxnMarkers", 2, request)
        return [row.error_code for row in answer.markers[0].topics[0].partitions]

    assert write(-1, 0) == [-1, -1]
    assert write(client.epoch, 0, version=-1) == [-1, 3]
    assert write(client.epoch - 1, 0) == [47, 3]
    assert write(client.epoch, 5) == [0, 3]
    assert write(client.epoch, 4) == [52, 3]
    assert client.stable_end(topic) == 2
