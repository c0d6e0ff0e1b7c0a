"""Forks beside threads: a child ends, whatever another thread of its parent had in hand at that
moment. Children of programs of their own, which an alarm ends that hang."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from client.fake import FakeBroker
from client.test_producer_process import many, run_program, values_of
from kafkalite import Broker
from kafkalite.client import Consumer, GroupOptions, Producer
from kafkalite.client.network.wakeup import Wakeup
from kafkalite.errors import InvalidArgumentError

LOCKS = """
    import gc, os, signal, sys, threading, time
    os.register_at_fork(after_in_child=lambda: signal.alarm(60))
    from kafkalite.client import Admin, Consumer, GroupOptions, Producer
    from kafkalite.errors import InvalidArgumentError

    servers, topic = sys.argv[1:]
    KINDS = (type(threading.Lock()), type(threading.RLock()))

    def locks():
        for client in [*gc.get_objects()]:
            if not type(client).__module__.startswith("kafkalite.client"):
                continue
            for name, value in getattr(client, "__dict__", {}).items():
                lock = value._cond._lock if isinstance(value, threading.Event) else value
                if isinstance(lock, KINDS):
                    yield f"{type(client).__name__}.{name}", lock

    producer = Producer(servers)
    producer.send(topic, b"parent")
    producer.flush()
    admin = Admin(servers)
    admin.list_topics()
    consumer = Consumer(servers, group=GroupOptions(topic, heartbeat_interval_ms=100))
    consumer.subscribe(topic)
    while not consumer.poll(100): pass
    alone = Consumer(servers)
    alone.assign([(topic, 0)])
    alone.poll(100)

    def work(name):
        producer.send(topic, name.encode())
        producer.flush()
        admin.list_topics()
        consumer.wakeup()
        for each in (consumer, alone):
            try:
                each.poll()
            except InvalidArgumentError as error:
                assert "make a Consumer" in str(error), error
            else:
                raise AssertionError("it was not refused")
            each.close()
        producer.send(topic, f"{name} at its end".encode())

    def ends_while_held(label, lock):
        held, is_over = threading.Event(), threading.Event()
        def hold():
            with lock:
                held.set()
                is_over.wait()
        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(10), label
        child = os.fork()
        if child == 0:
            work(label)
            sys.exit()
        _, status = os.waitpid(child, 0)
        is_over.set()
        holder.join()
        return status == 0

    found = [*locks()]
    print("LOCKS", *[name for name, _ in found])
    for at, (name, lock) in enumerate(found):
        if not ends_while_held(f"{at} {name}", lock):
            print("HANGS", name)
    consumer.close(); alone.close(); admin.close(); producer.close()
"""


def test_a_child_ends_whichever_lock_another_thread_has_at_the_fork(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """That of a consumer's `Wakeup` was waited for by the hook of the fork itself, for ever: one
    child of some thousands, since a thread that joins a group has it for microseconds. So was the
    condition of the event that ends heartbeats."""
    told = run_program(LOCKS, kafka_broker.bootstrap_servers, kafka_topic).splitlines()
    (locks,) = [line.split()[1:] for line in told if line.startswith("LOCKS")]
    assert [line for line in told if line.startswith("HANGS")] == []
    assert {"Wakeup._lock", "Membership._stop", "Producer._lock", "Cluster._lock"} <= {*locks}
    sent = [[f"{at} {name}", f"{at} {name} at its end"] for at, name in enumerate(locks)]
    expected = [b"parent", *(value.encode() for pair in sent for value in pair)]
    assert sorted(values_of(kafka_broker, kafka_topic)) == sorted(expected)


def test_a_child_has_no_part_in_a_close_that_another_thread_is_in() -> None:
    """It waited at its end for that thread's lock, for ever, or sent the parent's records again."""
    program = """
        import os, signal, sys, threading, time
        os.register_at_fork(after_in_child=lambda: signal.alarm(60))
        from kafkalite.client import Producer
        from kafkalite.errors import InvalidArgumentError, RequestTimedOutError

        producer = Producer(sys.argv[1])
        producer.send("orders", b"of the parent")
        def close():
            try:
                producer.close(2_000)
            except RequestTimedOutError:
                print("not taken")
        closing = threading.Thread(target=close)
        closing.start()
        held, is_over = threading.Event(), threading.Event()
        def hold():
            while not (producer._is_closed and producer._sender.pending_count):
                time.sleep(0.01)  # a poll
            with producer._lock:
                held.set()
                is_over.wait()
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                producer.send("orders", b"of the child")
            except InvalidArgumentError as error:
                assert "closed" in str(error)
                producer.close()
                sys.exit(7)
        _, status = os.waitpid(child, 0)
        is_over.set()
        print("child", os.waitstatus_to_exitcode(status))
    """
    with FakeBroker(lambda name, _: None if name == "Produce" else ...) as broker:
        told = run_program(program, broker.servers)
        produced = [request for request in broker.seen if request.name == "Produce"]
    assert "child 7" in told
    assert "not taken" in told
    assert len(produced) == 1


def test_a_callback_that_forks_is_gone_on_from_in_both_processes(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """The child came back from it into a call that had a lock of the parent's."""
    program = """
        import os, signal, sys, time
        os.register_at_fork(after_in_child=lambda: signal.alarm(60))
        from kafkalite.client import Producer
        producer = Producer(sys.argv[1])
        children = []
        producer.send(sys.argv[2], b"one", on_delivery=lambda *_: children.append(os.fork()))
        producer.flush()
        name = b"parent" if children[0] else b"child"
        for number in range(2):
            producer.send(sys.argv[2], b"%s-%d" % (name, number))
            producer.flush()
        producer.send(sys.argv[2], b"%s-%d" % (name, 2))
        while producer.pending_count:  # its thread goes on
            time.sleep(0.01)  # a poll
        if children[0]:
            print("child", os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
        producer.close()
    """
    told = run_program(program, kafka_broker.bootstrap_servers, kafka_topic)
    assert "child 0" in told
    assert "Error" not in told
    expected = [b"one", *many("parent", 3), *many("child", 3)]
    assert sorted(values_of(kafka_broker, kafka_topic)) == sorted(expected)


def test_a_listener_that_forks_is_told_in_the_child_whose_the_consumer_is(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """The lock of the call that it came back into was another: it was told of that."""
    program = """
        import os, signal, sys
        os.register_at_fork(after_in_child=lambda: signal.alarm(60))
        from kafkalite.client import Consumer
        from kafkalite.errors import InvalidArgumentError
        servers, topic = sys.argv[1:]
        children = []
        with Consumer(servers, group=topic) as consumer:
            consumer.subscribe(topic, on_assigned=lambda _: children.append(os.fork()))
            try:
                while not children:
                    consumer.poll(100)
            except InvalidArgumentError as error:
                assert "make a Consumer" in str(error)
                sys.exit(7)
            _, status = os.waitpid(children[0], 0)
            print("child", os.waitstatus_to_exitcode(status), consumer.assignment == [(topic, 0)])
    """
    told = run_program(program, kafka_broker.bootstrap_servers, kafka_topic)
    assert "child 7 True" in told


def test_clients_that_are_collected_before_the_child_knows_of_the_fork_are_the_parents(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """Hooks of the fork that were there before may run the collector: the child's copy of a dropped
    consumer left the group for the parent's member, that of a producer sent its records."""
    program = """
        import gc, os, sys
        gc.disable()
        os.register_at_fork(after_in_child=gc.collect)
        from kafkalite.client import Consumer, GroupAdmin, Producer
        servers, topic = sys.argv[1:]
        producer = Producer(servers, linger_ms=60_000)
        producer.send(topic, b"open")
        consumer = Consumer(servers, group=topic, fetch_wait_ms=10)
        consumer.subscribe(topic)
        while not consumer.assignment: consumer.poll(100)
        for each in (producer, consumer):
            each.itself = each
        del producer, consumer, each
        child = os.fork()
        if child == 0:
            os._exit(0)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with GroupAdmin(servers) as groups:
            print("members", len(groups.describe(topic).members))
        with Consumer(servers) as reader:
            print("records", reader.end_offsets([(topic, 0)])[topic, 0])
        os._exit(0)
    """
    told = run_program(program, kafka_broker.bootstrap_servers, kafka_topic)
    assert "child 0" in told
    assert "members 1" in told
    assert "records 0" in told


def test_a_fork_waits_for_a_client_that_writes_to_the_log() -> None:
    """The stream's lock was held in the child for ever: it could write nothing, nor end."""
    program = """
        import logging, os, signal, sys, threading, time
        os.register_at_fork(after_in_child=lambda: signal.alarm(60))
        from kafkalite.client import Admin
        from kafkalite.client.trouble import Troubles
        Admin("127.0.0.1:1")  # hooks are set with the first client
        ends, stream = os.pipe()
        logging.basicConfig(stream=os.fdopen(stream, "w"))
        taken = []
        def read_slowly():
            while os.read(ends, 10_000):
                taken.append(10_000)
                time.sleep(0.02)  # the fault: a slow stream
        threading.Thread(target=read_slowly, daemon=True).start()
        troubles = Troubles()
        for _ in range(20): troubles.warn("x" * 10_000)
        writer = threading.Thread(target=troubles.write)
        writer.start()
        while len(taken) < 3: time.sleep(0.001)  # a poll
        assert writer.is_alive()
        child = os.fork()
        if child == 0:
            logging.root.handlers[0].flush()
            os._exit(0)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert "child 0" in run_program(program)


def test_a_fork_does_not_wait_for_its_own_hold_on_logging() -> None:
    """The hook of `logging`, which is imported with the first line, came first and took the lock
    that the writer needed: each fork beside a writer took a second, and cut its line in two."""
    program = """
        import os, sys, threading, time
        from kafkalite.client import Admin
        from kafkalite.client.trouble import Troubles
        Admin("127.0.0.1:1")  # hooks are set with the first client
        assert "logging" not in sys.modules
        troubles, is_over = Troubles(), threading.Event()
        troubles.warn("first")
        troubles.write()
        import logging
        def write():
            while not is_over.is_set():
                logging.root.setLevel("ERROR")  # each line takes the lock of the module
                for _ in range(100): troubles.warn("next")
                troubles.write()
        threading.Thread(target=write).start()
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                os._exit(0)
            slowest = max(slowest, time.monotonic() - began)
            os.waitpid(child, 0)
        is_over.set()
        print("in time" if slowest < 0.9 else f"after {slowest:.2f} s")
    """
    assert "in time" in run_program(program)


def test_no_line_is_begun_between_the_wait_for_writers_and_the_fork() -> None:
    """Hooks that were there before ours are called behind its wait; the child found a writer, who
    was not there, and waited a second for it in each fork of its own."""
    program = """
        import os, signal, sys, threading, time
        begun, lines = threading.Event(), []
        class Stream:
            def write(self, text):
                begun.set()
                lines.append(text)
                time.sleep(0.2)  # the fault: a slow stream
            def flush(self): pass
        def begin_to_write():
            threading.Thread(target=troubles.write).start()
            begun.wait(0.1)
        os.register_at_fork(before=begin_to_write)
        import logging
        from kafkalite.client import Admin
        from kafkalite.client.trouble import Troubles
        Admin("127.0.0.1:1")  # hooks are set with the first client
        logging.basicConfig(stream=Stream())
        troubles = Troubles()
        troubles.warn("one line")
        child = os.fork()
        if child == 0:
            assert not lines, lines
            began = time.monotonic()
            if os.fork() == 0:
                os._exit(0)
            os._exit(0 if time.monotonic() - began < 0.9 else 1)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert "child 0" in run_program(program)


def test_a_signal_that_comes_while_a_fork_waits_is_taken_behind_the_fork() -> None:
    """Ctrl-C was raised within the hook, of which Python told on stderr, and went on."""
    program = """
        import _thread, logging, os, signal, sys, threading, time
        from kafkalite.client import Admin
        from kafkalite.client.trouble import Troubles
        Admin("127.0.0.1:1")  # hooks are set with the first client
        begun = threading.Event()
        class Stream:
            def write(self, text):
                begun.set()
                time.sleep(0.5)  # the fault: a slow stream
            def flush(self): pass
        logging.basicConfig(stream=Stream())
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append("SIGUSR1"))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        troubles = Troubles()
        troubles.warn("one line")
        parent = os.getpid()
        threading.Thread(target=troubles.write).start()
        begun.wait()
        for each in (signal.SIGUSR1, signal.SIGINT):
            threading.Timer(0.1, os.kill, (os.getpid(), each)).start()
        try:
            if os.fork() == 0:
                os._exit(0)
            print("not interrupted")
        except KeyboardInterrupt:
            print(*seen, "interrupted", "parent" if os.getpid() == parent else "child")
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    """
    assert run_program(program) == "SIGUSR1 interrupted parent\nset()\n"


def test_threads_that_a_child_of_multiprocessing_waits_for_may_send_until_their_end(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """The producer was closed at the end of the function, though the process waited for them."""
    producer = Producer(kafka_broker.bootstrap_servers, linger_ms=60_000)
    is_over = multiprocessing.get_context("fork").Event()

    def work() -> None:
        def send() -> None:
            is_over.wait(1.0)
            for value in many("thread", 10):
                producer.send(kafka_topic, value)

        threading.Thread(target=send).start()

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    producer.close()
    assert values_of(kafka_broker, kafka_topic) == many("thread", 10)


def test_a_fork_in_the_midst_of_a_close_costs_the_child_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread has closed the eventfd and not said so yet, the thread that forks has opened a file
    under its number: the child closed that. One of some thousand processes of multiprocessing,
    which opens pipes just before it forks, ended with exit code 1 and without a word."""
    wakeup, close = Wakeup(), os.close
    statuses = []

    def close_and_fork(descriptor: int) -> None:
        close(descriptor)
        assert os.dup2(0, descriptor) == descriptor
        child = os.fork()
        if child == 0:
            monkeypatch.undo()
            wakeup.after_fork()
            try:
                os.fstat(descriptor)
            except OSError:
                os._exit(1)
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])
        close(descriptor)

    monkeypatch.setattr("os.close", close_and_fork)
    wakeup.close()
    monkeypatch.undo()
    assert statuses == [0]


def test_a_signal_in_the_midst_of_the_hook_leaves_the_child_nothing_of_the_parents(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """Its handler raised, which ended the hook: the child numbered its batches as the parent did,
    and one of both was lost, acknowledged as a duplicate."""
    program = """
        import os, signal, sys
        from kafkalite.client import Producer
        from kafkalite.client.producer.sender import Sender
        servers, topic = sys.argv[1:]
        producer = Producer(servers)
        producer.send(topic, b"of the parent")
        producer.flush()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        close = Sender.close
        def interrupted(self):
            os.kill(os.getpid(), signal.SIGINT)
            close(self)
        Sender.close = interrupted
        try:
            child = os.fork()
        except KeyboardInterrupt:
            print("interrupted")
            child = 0
        Sender.close = close
        producer.send(topic, b"of the child" if child == 0 else b"of the parent, too")
        producer.close()
        if child == 0:
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    told = run_program(program, kafka_broker.bootstrap_servers, kafka_topic)
    assert "interrupted\nchild 7\n" in told  # Python 3.12 warns of forks beside threads
    values = [b"of the child", b"of the parent", b"of the parent, too"]
    assert sorted(values_of(kafka_broker, kafka_topic)) == values


def test_a_child_of_multiprocessing_that_is_interrupted_at_its_end_delivers_what_was_sent(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """Ctrl-C while it waited for its threads ended it without the end of its clients."""
    producer = Producer(kafka_broker.bootstrap_servers, linger_ms=60_000)

    def work() -> None:
        producer.send(kafka_topic, b"open")
        threading.Thread(target=threading.Event().wait, args=(60,)).start()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(50)
    assert worker.exitcode is not None
    producer.close()
    assert values_of(kafka_broker, kafka_topic) == [b"open"]


def test_a_producer_of_an_imported_module_is_closed_in_a_process_of_a_fork_server(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path
) -> None:
    """The server's child imports the program before it knows what it is: nothing was sent at its
    end."""
    program = tmp_path / "served.py"
    program.write_text(
        textwrap.dedent("""
            import multiprocessing, sys
            from kafkalite.client import Producer
            producer = Producer(sys.argv[1], linger_ms=60_000)
            def work(topic): producer.send(topic, b"open")
            if __name__ == "__main__":
                server = multiprocessing.get_context("forkserver")
                worker = server.Process(target=work, args=(sys.argv[2],))
                worker.start()
                worker.join()
                print("child", worker.exitcode)
                producer.close()
        """)
    )
    command = [sys.executable, program, kafka_broker.bootstrap_servers, kafka_topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("child 0\n", "")
    assert values_of(kafka_broker, kafka_topic) == [b"open"]


def test_a_listener_that_forks_in_the_midst_of_a_close_takes_the_parent_out_of_no_group(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """The child came back into the close, and left the group for the parent."""
    program = """
        import os, signal, sys
        os.register_at_fork(after_in_child=lambda: signal.alarm(60))
        from kafkalite.client import Consumer, GroupAdmin
        servers, topic = sys.argv[1:]
        def revoked(_):
            child = os.fork()
            if child:
                print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                with GroupAdmin(servers) as groups:
                    print("members", len(groups.describe(topic).members))
        consumer = Consumer(servers, group=topic)
        consumer.subscribe(topic, on_revoked=revoked)
        while not consumer.assignment: consumer.poll(100)
        consumer.close()
    """
    told = run_program(program, kafka_broker.bootstrap_servers, kafka_topic)
    assert "members 1" in told


def test_a_closed_wakeup_keeps_nobody_waiting() -> None:
    """The wait of a call that a handler of a signal had forked in raised ValueError."""
    wakeup = Wakeup()
    wakeup.close()
    wakeup.wait(float("inf"))


def test_a_consumer_with_wrong_options_leaves_no_descriptor_open() -> None:
    def open_count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_count()
    for _ in range(10):
        with pytest.raises(InvalidArgumentError, match="session_timeout_ms"):
            Consumer("127.0.0.1:1", group=GroupOptions("g", session_timeout_ms=-1))
    assert open_count() == before
