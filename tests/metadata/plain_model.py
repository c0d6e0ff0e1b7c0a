"""The metadata as a plain model: dictionaries that every record changes in place, with no thought
of sharing. It must agree with the fold on every sequence of records."""

from typing import Any

from kafkalite.metadata.image import Image


class PlainModel:
    """What `Fold` adds up, written down once more."""

    def __init__(self) -> None:
        self.topics: dict[bytes, dict[str, Any]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0

    def apply(self, message: Any) -> None:
        match message._name:
            case "TopicRecord":
                self.topics[message.topic_id] = {"name": message.name, "partitions": {}}
            case "PartitionRecord":
                self.topics[message.topic_id]["partitions"][message.partition_id] = {
                    "leader": message.leader,
                    "leader_epoch": message.leader_epoch,
                    "partition_epoch": message.partition_epoch,
                    "isr": message.isr,
                    "elr": message.eligible_leader_replicas or [],
                    "directories": message.directories,
                }
            case "PartitionChangeRecord":
                partition = self.topics[message.topic_id]["partitions"][message.partition_id]
                if message.leader != -2:
                    partition["leader"] = message.leader
                    partition["leader_epoch"] += 1
                for field, new in (
                    ("isr", message.isr),
                    ("elr", message.eligible_leader_replicas),
                    ("directories", message.directories),
                ):
                    if new is not None:
                        partition[field] = new
                partition["partition_epoch"] += 1
            case "RemoveTopicRecord":
                name = self.topics.pop(message.topic_id)["name"]
                for key in [key for key in self.configs if key[:2] == (2, name)]:
                    del self.configs[key]
            case "ConfigRecord":
                key = message.resource_type, message.resource_name, message.name
                self.configs.pop(key, None)
                if message.value is not None:
                    self.configs[key] = message.value
            case "FeatureLevelRecord":
                self.features.pop(message.name, None)
                if message.feature_level:
                    self.features[message.name] = message.feature_level
            case "ProducerIdsRecord":
                self.next_producer_id = message.next_producer_id

    def assert_is(self, image: Image) -> None:
        """Every fact of the model is in the image, and no other."""
        assert {each.id: each.name for each in image.topics.values()} == {
            topic_id: topic["name"] for topic_id, topic in self.topics.items()
        }
        assert image.topics_by_id == {each.id: each for each in image.topics.values()}
        alike: dict[str, set[str]] = {}
        for each in image.topics:
            if set(each) & set("._"):
                alike.setdefault(each.replace(".", "_"), set()).add(each)
        assert image.alike == alike
        for topic_id, topic in self.topics.items():
            found = image.topics_by_id[topic_id].partitions
            assert [each.index for each in found] == sorted(topic["partitions"])
            for each in found:
                assert topic["partitions"][each.index] == {
                    "leader": each.leader,
                    "leader_epoch": each.leader_epoch,
                    "partition_epoch": each.partition_epoch,
                    "isr": list(each.isr),
                    "elr": list(each.elr),
                    "directories": list(each.directories),
                }
        flat = {
            (kind, resource, name): value
            for (kind, resource), own in image.configs.items()
            for name, value in own.items()
        }
        assert flat == self.configs
        assert image.features == self.features
        assert (image.producer_ids.next_id if image.producer_ids else 0) == self.next_producer_id
