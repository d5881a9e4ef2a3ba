"""The public names of `import turbopump`: every error, and option errors that name the allowed
values."""

import ast
import asyncio
import inspect
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import turbopump
from turbopump.net.client import errors as client_errors
from turbopump.net.client.options import remoting_options
from turbopump.net.transport import errors as transport_errors
from turbopump.net.transport.options import ClientTlsSettings, RemotingOptions


@pytest.mark.parametrize("module", [client_errors, transport_errors])
def test_every_error_of_the_client_is_exported(module: Any) -> None:
    errors = {
        name
        for name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Exception) and found.__module__ == module.__name__
    }
    assert errors and errors <= set(turbopump.__all__)
    assert all(getattr(turbopump, name) is getattr(module, name) for name in errors)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"body": "text"}, "bytes, not str: text.encode()"),
        ({"body": {"a": 1}}, "bytes, not dict"),
        ({"body": None}, "bytes, not NoneType"),
        ({"body": b"x", "keys": "order-1"}, r"keys=\['order-1'\]"),
    ],
)
def test_a_message_names_its_types(arguments: Any, words: str) -> None:
    with pytest.raises(turbopump.InvalidArgument, match=words):
        turbopump.Message("T", **arguments)
    for body in (b"x", bytearray(b"x"), memoryview(b"x")):
        turbopump.Message("T", body)  # type: ignore[arg-type]


def test_one_tls_option() -> None:
    own = ClientTlsSettings(cert_path="c", key_path="k")
    trusting = ClientTlsSettings(trust_cert_path="ca.pem", auth_server=True, test_mode=False)
    for given, tls in (
        (False, None),
        (True, ClientTlsSettings()),
        ("ca.pem", trusting),
        (Path("ca.pem"), trusting),
        (own, own),
    ):
        assert remoting_options(turbopump.ClientOptions(tls=given)).tls == tls
    assert remoting_options(turbopump.ClientOptions()) == RemotingOptions(), "the same defaults"
    options = turbopump.ClientOptions(connect_timeout_ms=1, idle_timeout_ms=2, max_in_flight=3)
    remoting = remoting_options(options)
    assert (remoting.connect_timeout_ms, remoting.idle_timeout_ms, remoting.max_in_flight) == (
        1,
        2,
        3,
    )


def hidden_types(public: dict[str, Any]) -> set[str]:
    """`Class.member: type` for each type of this package that a signature of a public class names
    and that is not public."""
    found = set()
    for name, made in public.items():
        for member, value in inspect.getmembers(made) if inspect.isclass(made) else ():
            called = value.fget if isinstance(value, property) else value
            if not callable(called) or (member.startswith("_") and member != "__init__"):
                continue
            try:
                signature = str(inspect.signature(called))
            except ValueError:  # of a builtin
                continue
            for named in re.findall(r"turbopump\.[\w.]+\.(\w+)", signature):
                if named not in public:
                    found.add(f"{name}.{member}: {named}")
    return found


def test_every_type_of_a_public_signature_is_exported() -> None:
    public = {name: getattr(turbopump, name) for name in turbopump.__all__}
    assert hidden_types({"Producer": turbopump.Producer}) > {"Producer.send: SendResult"}
    assert not hidden_types(public)


def test_type_checkers_find_each_name_where_programs_do() -> None:
    tree = ast.parse(Path(turbopump.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    seen = {name.asname: node.module for node in imports for name in node.names if name.asname}
    assert seen == turbopump._HOMES


def test_the_first_page_has_an_example_and_names_public_classes() -> None:
    page = turbopump.__doc__ or ""
    example, rest = page.split("receive:\n")[1].split("Senders\n")
    compile(textwrap.dedent(example), "example", "exec")
    assert set(re.findall(r"\b[A-Z]\w*[a-z][A-Z]\w+", rest)) <= set(turbopump.__all__)
    clients = re.findall(r"^    ([A-Z]\w+)  ", rest, re.MULTILINE)
    assert len(clients) == 8 and set(clients) <= set(turbopump.__all__)


LIFE = {"start", "close"}


@pytest.mark.parametrize(
    ("made", "members"),
    [
        (turbopump.Producer, {"queues", "recall", "send", "send_batch", "send_oneway"}),
        (turbopump.TransactionProducer, {"send_in_transaction", "transaction"}),
        (turbopump.SimpleConsumer, {"ack", "change_invisible", "receive", "subscribe"}),
        (turbopump.PopConsumer, {"on_message", "subscribe"}),
    ],
)
def test_clients_show_no_member_of_the_machinery(made: type, members: set[str]) -> None:
    assert {name for name in dir(made) if not name.startswith("_")} == LIFE | members


def test_every_exported_error_has_one_base() -> None:
    found = [getattr(turbopump, name) for name in turbopump.__all__]
    errors = [one for one in found if inspect.isclass(one) and issubclass(one, Exception)]
    assert len(errors) > 10
    assert all(issubclass(one, turbopump.TurbopumpError) for one in errors)
    assert issubclass(turbopump.CallTimeout, TimeoutError)
    assert issubclass(turbopump.ConnectError, ConnectionError)
    assert str(turbopump.CallTimeout("late")) == "late"


WRONG: list[Any] = [
    lambda: turbopump.Producer("g", 9876),  # type: ignore[arg-type]
    lambda: turbopump.Producer(9876, "127.0.0.1:9876"),  # type: ignore[arg-type]
    lambda: turbopump.Producer("g", [9876]),  # type: ignore[list-item]
    lambda: turbopump.Producer("g", "a:1", options=3),  # type: ignore[arg-type]
    lambda: turbopump.Producer("g", "a:1", client_options=3),  # type: ignore[arg-type]
    lambda: turbopump.Producer(endpoints=8081),  # type: ignore[arg-type]
    lambda: turbopump.Producer(endpoints="a:1", client_options=3),  # type: ignore[arg-type]
    lambda: turbopump.Producer("g", client="a:1"),  # type: ignore[arg-type]
    lambda: turbopump.Consumer("g", 9876),  # type: ignore[arg-type]
    lambda: turbopump.Consumer("g", "a:1").subscribe(5),  # type: ignore[arg-type]
    lambda: turbopump.Consumer("g", "a:1").subscribe("T", 5),  # type: ignore[arg-type]
    lambda: turbopump.Consumer("g", "a:1").on_message("f"),  # type: ignore[arg-type]
    lambda: turbopump.SimpleConsumer("g", 9876),  # type: ignore[arg-type]
    lambda: turbopump.SimpleConsumer("g", "a:1").subscribe("no topic"),
    lambda: turbopump.PopConsumer("g", "a:1").on_message(3),  # type: ignore[arg-type]
    lambda: turbopump.PopConsumer("g", "a:1", options=3),  # type: ignore[arg-type]
    lambda: turbopump.PullConsumer("g", 9876),  # type: ignore[arg-type]
    lambda: turbopump.Admin(9876),  # type: ignore[arg-type]
    lambda: turbopump.Message(5, b"x"),  # type: ignore[arg-type]
    lambda: turbopump.Message("T", b"x", tags=["a"]),  # type: ignore[arg-type]
    lambda: turbopump.Message("T", b"x", properties={"a": 1}),  # type: ignore[dict-item]
    lambda: turbopump.Message("T", b"x", delay_ms="1s"),  # type: ignore[arg-type]
    lambda: turbopump.TransactionProducer("g", "a:1", check=3),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_arguments_of_another_type_are_named(number: int) -> None:
    with pytest.raises(turbopump.InvalidArgument, match=r" is | are "):
        WRONG[number]()


def test_settled_messages_are_received_messages() -> None:
    async def settle() -> None:
        consumer = turbopump.Consumer("g", "127.0.0.1:1")
        for settling in (consumer.ack, consumer.retry):
            with pytest.raises(turbopump.InvalidArgument, match="not str"):
                await settling("text")  # type: ignore[operator]

    asyncio.run(settle())


SHARED = turbopump.SharedClient("a:1")
OPTIONS = turbopump.ClientOptions()
NOT_TOGETHER: list[tuple[Any, str]] = [
    (lambda: turbopump.Producer(endpoints="a:1", client=SHARED), "no client together"),
    (lambda: turbopump.SimpleConsumer("g", endpoints="a:1", client=SHARED), "no client together"),
    (lambda: turbopump.Producer("g", "a:1", endpoints="a:1"), "no namesrv together"),
    (lambda: turbopump.SimpleConsumer("g", ["a:1"], endpoints="a:1"), "no namesrv together"),
    *(
        (partial(made, "g", client=SHARED, **arguments), words)
        for made in (
            turbopump.Producer,
            partial(turbopump.TransactionProducer, check=lambda _message: None),
            turbopump.Consumer,
            turbopump.PullConsumer,
            turbopump.PopConsumer,
            turbopump.SimpleConsumer,
        )
        for arguments, words in (
            ({"client_options": OPTIONS}, "no client_options with it"),
            ({"namesrv": "b:1"}, r"has other name servers: \['a:1'\]"),
        )
    ),
]


@pytest.mark.parametrize("number", range(len(NOT_TOGETHER)))
def test_arguments_that_do_not_go_together_are_refused(number: int) -> None:
    """Otherwise an argument would be ignored silently."""
    make, words = NOT_TOGETHER[number]
    with pytest.raises(turbopump.InvalidArgument, match=words):
        make()


def test_a_shared_client_may_come_with_its_own_name_servers() -> None:
    shared = turbopump.SharedClient("a:1;b:1")
    for namesrv in ("b:1; a:1", ["a:1", "b:1"], "", ()):
        turbopump.Producer("g", namesrv, client=shared)


def test_sent_values_are_messages() -> None:
    async def send() -> None:
        producer = turbopump.Producer("g", "127.0.0.1:1")
        for sending in (producer.send, producer.send_oneway, producer.send_batch):
            with pytest.raises(turbopump.InvalidArgument, match="not str"):
                await sending("text")  # type: ignore[operator]
        with pytest.raises(turbopump.InvalidArgument, match="not int"):
            await producer.recall(5)  # type: ignore[arg-type]

    asyncio.run(send())


@pytest.mark.parametrize("made", [turbopump.Producer, turbopump.Consumer, turbopump.SimpleConsumer])
def test_a_missing_tls_file_is_an_error_of_the_constructor(made: Any, tmp_path: Path) -> None:
    options = turbopump.ClientOptions(tls=tmp_path / "gone.pem")
    with pytest.raises(turbopump.TlsError, match=r"gone\.pem"):
        made("g", "127.0.0.1:1", client_options=options)
    if made is not turbopump.Consumer:
        with pytest.raises(turbopump.TlsError, match=r"gone\.pem"):
            made("g", endpoints="127.0.0.1:1", client_options=options)
    with pytest.raises(turbopump.TlsError, match=r"gone\.pem"):
        turbopump.Admin("127.0.0.1:1", client_options=options)
