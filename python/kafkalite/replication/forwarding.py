"""Requests that the active controller answers: those of clients, in an Envelope (KIP-590), and this
broker's own.

    client ──► request ──► Envelope(its bytes, who has sent it) ──► controller
           ◄── the bytes that the controller has answered it with ◄──┘

Where there is no active controller, or the connection to it is lost, a request is sent again, to
the next one, for a minute at most; so does Kafka, where the second answer may say, too, that a
topic exists already. Kafka: `ForwardingManager`, `RPCProducerIdManager`,
`DefaultAutoTopicCreationManager`.
"""

import ipaddress
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalite import _native
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.protocol import codes, messages
from kafkalite.protocol.error_codes import error_code
from kafkalite.replication.observer import Address
from kafkalite.replication.refused import refused
from kafkalite.service.repeated import TROUBLES_INTERVAL_MS, Repeated
from kafkalite.tasks import Future

if TYPE_CHECKING:
    from kafkalite.context import Context
    from kafkalite.replication.member import Member

FORWARDED: Final = frozenset((19, 20, 37, 43, 45, 46, 55, 57, 64, 80, 81))
"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments, DescribeQuorum, UpdateFeatures, UnregisterBroker, AddRaftVoter,
RemoveRaftVoter."""
CONFIGS: Final = frozenset((33, 44))
"""AlterConfigs, IncrementalAlterConfigs, of which brokers answer a part themselves."""

API_VERSIONS_VERSION: Final = 4
RETRY_MS: Final = 100
REQUEST_TIMEOUT_MS: Final = 30_000
GIVE_UP_MS: Final = 60_000
CREATE_TOPICS_VERSION: Final = 7
CREATE_TIMEOUT_MS: Final = 15_000


class UnknownToControllerError(KafkaliteError):
    """The controller does not know the key, or this version of it: Kafka's reason to close the
    connection of who has asked."""


class RemoteEngine:
    """A `kafkalite.metadata.engine.Engine` whose changes the active controller makes."""

    def __init__(self, member: "Member") -> None:
        self._member = member
        self._context: Context | None = None
        self._repeated: Repeated | None = None
        self._producer_ids = iter(range(0))
        self._versions_of: Address | None = None
        """The controller whose versions are known."""
        self._asked_for_versions: Address | None = None
        """The controller that is being asked for its versions."""

    def is_forwarded(self, request: _native.Request) -> bool:
        """Says that the controller answers this request."""
        return request.api_key in FORWARDED

    async def forward(
        self, context: "Context", request: _native.Request, kind: type[messages.Message]
    ) -> None:
        """Has the controller answer a request of a client, and gives it that answer. One that no
        controller answers within a minute is told so; one that it does not know is Kafka's reason
        to close the connection."""
        try:
            asked = context.core.requests.forwarded(request)
            answer = await self._forward(context, request, kind, asked)
        except UnknownToControllerError:
            context.core.requests.close_connection(request)
        except ControllerError as refusal:
            self._refuse(context, request, kind, refusal.code, str(refusal))
        else:
            context.core.requests.respond_forwarded(request, answer)

    async def ask_controller(
        self, context: "Context", request: _native.Request, part: messages.Message
    ) -> Any:
        """Has the controller answer a message in place of a client's request, which is of the same
        kind; the answer. Raises ControllerError, and UnknownToControllerError, upon which the
        connection is to be closed."""
        name = type(part).__name__.removesuffix("Request")
        kind = getattr(messages, f"{name}Response")
        first_flexible = _native.message_versions(part._name)[3]
        version = request.api_version
        body = part.encode(version)
        asked = context.core.requests.forwarded(request, body)
        answer = await self._forward(context, request, type(part), asked)
        is_flexible = first_flexible is not None and version >= first_flexible
        if is_flexible and answer[4:5] != b"\0":
            sentence = "The controller's answer has fields that nobody knows."
            raise ControllerError(codes.UNKNOWN_SERVER_ERROR, sentence)
        return kind.decode(answer[5 if is_flexible else 4 :], version)

    async def _forward(
        self,
        context: "Context",
        request: _native.Request,
        kind: type[messages.Message],
        asked: bytes,
    ) -> bytes:
        """The bytes that the controller answers those of a client with, or of a part of its
        request. Raises ControllerError and UnknownToControllerError."""
        what = f"{kind.__name__.removesuffix('Request')} of {request.peer}"
        principal = messages.DefaultPrincipalData(
            type=request.principal.partition(":")[0],
            name=request.principal.partition(":")[2],
        )
        envelope = messages.EnvelopeRequest(
            request_data=asked,
            request_principal=bytes(2) + principal.encode(0),
            client_host_address=ipaddress.ip_address(request.client_host).packed,
        )
        try:
            answer = await self._ask(context, envelope, 0)
        except KafkaliteError as error:
            self._tell(
                context,
                ("silent", request.api_key),
                f"{what} is refused with REQUEST_TIMED_OUT, since no controller answers: {error}",
            )
            raise ControllerError(codes.REQUEST_TIMED_OUT, str(error)) from error
        code = answer.error_code
        if not code and answer.response_data is not None:
            told: bytes = answer.response_data
            return told
        self._tell(
            context,
            (code, request.api_key),
            f"{what} is refused by the controller with {error_code(code).name}: check that this "
            "broker has the permission ClusterAction, and that the controller supports the request",
        )
        if code == codes.UNSUPPORTED_VERSION:
            raise UnknownToControllerError("the controller does not know this request")
        sentence = "The controller has refused to be asked."
        raise ControllerError(codes.UNKNOWN_SERVER_ERROR, sentence)

    def _tell(self, context: "Context", kind: tuple[Any, int], sentence: str) -> None:
        if self._repeated is None:
            self._repeated = Repeated(context.log.warning, TROUBLES_INTERVAL_MS)
        self._repeated.tell(sentence, self._member.now_ms(), kind)

    def _refuse(
        self,
        context: "Context",
        request: _native.Request,
        kind: type[messages.Message],
        code: int,
        sentence: str,
    ) -> None:
        try:
            message = request.decode(kind)
        except KafkaliteError:
            message = None
        if message is None:
            # It is malformed, or would have as many elements repeated as no client looks at.
            context.core.requests.close_connection(request)
            return
        answer = refused(request.api_key, message, code, sentence)
        context.core.requests.respond(request, answer)

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, bytes]:
        """Has topics made; returns their ids once they are in force here. Raises ControllerError,
        and TimedOutError where that takes long."""
        kind = messages.CreateTopicsRequest
        request = kind(
            topics=[
                kind.CreatableTopic(
                    name=each.name,
                    num_partitions=each.partition_count,
                    replication_factor=each.replication_factor,
                    configs=[
                        kind.CreatableTopic.CreatableTopicConfig(name=name, value=value)
                        for name, value in each.configs.items()
                    ],
                )
                for each in wanted
            ],
            timeout_ms=CREATE_TIMEOUT_MS,
        )
        context = self._serving()
        answer = await self._ask(context, request, CREATE_TOPICS_VERSION)
        for each in answer.topics:
            if each.error_code not in (codes.NONE, codes.TOPIC_ALREADY_EXISTS):
                raise ControllerError(each.error_code, each.error_message or "not created")
        names = [each.name for each in wanted]
        member = self._member
        with context.time_limit(CREATE_TIMEOUT_MS):
            await member.until(lambda: all(name in member.image.topics for name in names))
        return {name: member.image.topics[name].id for name in names}

    def learn_versions(self) -> None:
        """Has a controller that has just become the active one asked which versions it answers, and
        clients told."""
        address, context = self._member.controller_address, self._context
        if context is None or address in (None, self._versions_of, self._asked_for_versions):
            return
        self._asked_for_versions = address
        context.tasks.start(self._learn_versions(context, address))

    async def _learn_versions(self, context: "Context", address: Address) -> None:
        request = messages.ApiVersionsRequest(
            client_software_name="kafkalite", client_software_version=_native.__version__
        )
        answer = await self._member.channels.ask(
            "forwarding", address, request, API_VERSIONS_VERSION, REQUEST_TIMEOUT_MS
        )
        if self._asked_for_versions == address:
            self._asked_for_versions = None
        if isinstance(answer, str) or answer.error_code:
            context.log.debug(f"the versions of the controller at {address}: {answer}")
            return
        self._versions_of = address
        self._member.publisher.publish_forwarded(
            self._member.image,
            [
                (each.api_key, each.min_version, each.max_version)
                for each in answer.api_keys
                if each.api_key in FORWARDED | CONFIGS
            ],
        )

    def next_producer_id(self) -> int | None:
        """A producer id that nobody else was given, of this broker's block; None where that is
        used up."""
        return next(self._producer_ids, None)

    async def allocate_producer_ids(self) -> None:
        """Takes another block of producer ids. Raises ControllerError."""
        context = self._serving()
        request = messages.AllocateProducerIdsRequest(
            broker_id=self._member.node_id, broker_epoch=self._member.broker_epoch
        )
        answer = await self._ask(context, request, 0)
        if answer.error_code:
            raise ControllerError(answer.error_code, "no producer ids")
        first = answer.producer_id_start
        self._producer_ids = iter(range(first, first + answer.producer_id_len))

    async def assign_directories(self, assignments: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Has the controller told until it has taken that in."""
        self._member.assign_directories(assignments)

    def serve(self, context: "Context") -> None:
        """From now on requests can be sent."""
        self._context = context

    def _serving(self) -> "Context":
        if self._context is None:
            raise ControllerError(codes.NOT_CONTROLLER, "the broker does not serve yet")
        return self._context

    async def _ask(self, context: "Context", message: Any, version: int) -> Any:
        """The answer of the active controller. Raises ControllerError where there is none for a
        minute."""
        member = self._member
        due_ms = member.now_ms() + GIVE_UP_MS
        reason = "no active controller is known"
        while (left_ms := due_ms - member.now_ms()) > 0:
            address = member.controller_address
            if address is not None:
                timeout_ms = min(left_ms, REQUEST_TIMEOUT_MS)
                answer = await member.channels.ask(
                    "forwarding", address, message, version, timeout_ms
                )
                if isinstance(answer, str):
                    reason = answer
                elif getattr(answer, "error_code", codes.NONE) != codes.NOT_CONTROLLER:
                    return answer
            pause = Future[None]()
            context.timers.call_at(member.now_ms() + RETRY_MS, partial(pause.set, None))
            await pause
        raise ControllerError(codes.REQUEST_TIMED_OUT, reason)
