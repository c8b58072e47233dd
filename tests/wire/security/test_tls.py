"""TLS: who may connect, with which versions, and certificates that are replaced while a server runs."""

import os
import re
import shutil
import ssl
import threading
from functools import partial

import pytest

import logstore
from logstore.errors import RetriableError, StorageError, UsageError
from logstore.wire.security.names import principal_of
from logstore.wire.security.tls import ClientTls, ServerTls
from tests.replica.node.cluster import eventually
from tests.wire.security.certificates import OPENSSL, Authority, openssl

pytestmark = pytest.mark.skipif(
    OPENSSL is None, reason="the program openssl, which makes certificates, is missing"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "other")


@pytest.fixture(scope="module")
def certified(authority):
    """Two for servers, and one for a client."""
    return {
        "one": authority.certify("one", "/CN=one"),
        "two": authority.certify("two", "/CN=two"),
        "alice": authority.certify("alice", "/C=US/O=Acme, Inc./CN=alice"),
    }


def is_refused_with(said, address, tls):
    """Not if the time is over before the broker has hung up."""
    with pytest.raises(RetriableError) as caught:
        logstore.connect(address, tls=tls, request_timeout_ms=100)
    return said.search(str(caught.value))


@pytest.fixture
def files(certified, tmp_path):
    """The files of a server, in a directory of its own."""
    for kind, path in zip(("pem", "key"), certified["one"], strict=True):
        shutil.copy(path, tmp_path / f"server.{kind}")
    return tmp_path / "server.pem", tmp_path / "server.key"


def client_context(authority, certified=None):
    context = ssl.create_default_context(cafile=str(authority.root))
    context.check_hostname = False
    if certified is not None:
        context.load_cert_chain(*map(str, certified))
    return context


def handshake(server, client):
    """Both ends after a handshake, without a socket, and after a byte each way."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="server"),
    )
    open_ends = list(ends)
    for _ in range(20):
        for end in list(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not open_ends:
            break
    ends[1].write(b"?")
    assert ends[0].read(1) == b"?"
    return ends


def name_of(server, client):
    """Whose certificate a client sees."""
    _, end = handshake(server, client)
    return dict(pair for part in end.getpeercert()["subject"] for pair in part)["commonName"]


class TestClients:
    @pytest.mark.parametrize("required", [False, True])
    def test_one_that_shows_a_certificate(self, authority, certified, files, required):
        tls = ServerTls(*files, client_ca=authority.root, require_client_certificate=required)
        end, _ = handshake(tls.context(), client_context(authority, certified["alice"]))
        assert principal_of(end.getpeercert(binary_form=True)) == r"User:CN=alice,O=Acme\, Inc.,C=US"

    def test_one_that_shows_none(self, authority, files):
        for tls in (ServerTls(*files), ServerTls(*files, client_ca=authority.root)):
            end, _ = handshake(tls.context(), client_context(authority))
            assert principal_of(end.getpeercert(binary_form=True)) == "User:ANONYMOUS"

    def test_one_that_shows_none_where_it_is_required(self, authority, files):
        tls = ServerTls(*files, client_ca=authority.root, require_client_certificate=True)
        with pytest.raises(ssl.SSLError, match="did not return a certificate"):
            handshake(tls.context(), client_context(authority))

    @pytest.mark.parametrize("required", [False, True])
    def test_one_with_the_certificate_of_a_stranger(self, authority, stranger, files, required):
        tls = ServerTls(*files, client_ca=authority.root, require_client_certificate=required)
        strange = stranger.certify("alice", "/C=US/O=Acme, Inc./CN=alice")
        with pytest.raises(ssl.SSLError, match="certificate verify failed"):
            handshake(tls.context(), client_context(authority, strange))

    def test_a_certificate_that_is_not_asked_for_is_not_taken(self, authority, certified, files):
        end, _ = handshake(ServerTls(*files).context(), client_context(authority, certified["alice"]))
        assert principal_of(end.getpeercert(binary_form=True)) == "User:ANONYMOUS"

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_versions_that_are_spoken(self, authority, files, version):
        client = client_context(authority)
        client.minimum_version = client.maximum_version = version
        end, _ = handshake(ServerTls(*files).context(), client)
        assert end.version() == version.name.replace("_", ".")
        assert end.selected_alpn_protocol() is None

    def test_versions_that_are_not(self, files):
        assert ServerTls(*files).context().minimum_version is ssl.TLSVersion.TLSv1_2


class TestFiles:
    def test_a_key_in_the_same_file(self, authority, files):
        certificate, key = files
        certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
        assert name_of(ServerTls(certificate).context(), client_context(authority)) == "one"

    def test_a_key_with_a_password(self, authority, files, tmp_path):
        secret = tmp_path / "secret.key"
        openssl("ec", "-in", files[1], "-aes256", "-passout", "pass:hunter2", "-out", secret)
        tls = ServerTls(files[0], secret, password="hunter2")
        assert name_of(tls.context(), client_context(authority)) == "one"
        for wrong in ("wrong", None):  # it does not ask on the terminal
            with pytest.raises(UsageError, match=r"secret\.key"):
                ServerTls(files[0], secret, password=wrong)

    def test_what_is_wrong_is_named(self, authority, certified, files, tmp_path):
        with pytest.raises(StorageError, match=r"none\.pem"):
            ServerTls(tmp_path / "none.pem", files[1])
        with pytest.raises(UsageError, match=r"server\.pem.*two\.key"):
            ServerTls(files[0], certified["two"][1])
        (tmp_path / "bad.pem").write_text("not a certificate")
        with pytest.raises(UsageError, match=r"bad\.pem"):
            ServerTls(*files, client_ca=tmp_path / "bad.pem")
        with pytest.raises(UsageError, match="needs client_ca"):
            ServerTls(*files, require_client_certificate=True)
        with pytest.raises(UsageError, match="path is 7; it must be the path of a PEM file"):
            ServerTls(7, files[1])
        with pytest.raises(UsageError, match="password is a bytes"):
            ServerTls(*files, password=b"x")

    def test_what_openssl_does_not_tell_is_named(self, files, tmp_path):
        """It says "PEM lib" of each."""
        certificate, key = files
        locked = tmp_path / "locked.key"
        openssl("ec", "-in", key, "-aes256", "-passout", "pass:sesame", "-out", locked)
        for wrong, said in (
            ({"key": locked}, r"locked\.key is encrypted; it takes its password"),
            (
                {"key": locked, "password": "x"},
                r"locked\.key is encrypted, and the password may be a wrong one",
            ),
            ({"key": certificate}, r"server\.pem has no private key"),
            ({"key": None}, r"server\.pem has no private key"),
            ({"certificate": key}, r"server\.key has no certificate"),
        ):
            given = {"certificate": certificate, "key": key} | wrong
            with pytest.raises(UsageError, match=said):
                ServerTls(**given)
            with pytest.raises(UsageError, match=said):
                ClientTls(None, **given)
        with pytest.raises(UsageError, match="NO_CERTIFICATE"):
            ServerTls(certificate, locked, client_ca=key, password="sesame")


class TestReplacing:
    @pytest.fixture
    def client(self, authority):
        return client_context(authority)

    def replace(self, files, certified, *, which=(0, 1)):
        """As tools for certificates do it: a new file takes the name of the old one."""
        for each in which:
            new = files[each].with_suffix(".new")
            shutil.copy(certified[each], new)
            os.replace(new, files[each])

    def test_new_files_are_taken_for_new_connections(self, certified, files, client):
        tls = ServerTls(*files)
        first = tls.context()
        assert tls.context() is first
        self.replace(files, certified["two"])
        assert name_of(tls.context(), client) == "two"
        assert name_of(first, client) == "one"
        assert tls.context() is tls.context()

    def test_files_that_are_written_over(self, certified, files, client):
        tls = ServerTls(*files)
        for each in (0, 1):
            files[each].write_bytes(certified["two"][each].read_bytes())
        assert name_of(tls.context(), client) == "two"

    def test_one_after_the_other(self, certified, files, client, caplog):
        """Between the two the key does not belong to the certificate."""
        tls = ServerTls(*files)
        first = tls.context()
        self.replace(files, certified["two"], which=[0])
        assert tls.context() is first
        assert tls.context() is first
        assert caplog.text.count("new connections get the earlier certificate") == 1
        self.replace(files, certified["two"], which=[1])
        assert name_of(tls.context(), client) == "two"

    def test_a_broken_file_keeps_what_was(self, certified, files, client, caplog):
        tls = ServerTls(*files)
        files[0].write_text("-----BEGIN CERTIFICATE-----\n")
        assert name_of(tls.context(), client) == "one"
        files[0].unlink()
        assert name_of(tls.context(), client) == "one"
        assert "server.pem" in caplog.text
        self.replace(files, certified["two"])
        assert name_of(tls.context(), client) == "two"

    def test_links_that_lead_elsewhere(self, certified, tmp_path, client):
        """As in a mounted secret: the file is a link into a directory whose link is replaced."""
        for number, which in enumerate(("one", "two")):
            (tmp_path / f"v{number}").mkdir()
            for kind, path in zip(("pem", "key"), certified[which], strict=True):
                shutil.copy(path, tmp_path / f"v{number}" / f"server.{kind}")
        (tmp_path / "current").symlink_to("v0")
        tls = ServerTls(tmp_path / "current" / "server.pem", tmp_path / "current" / "server.key")
        (tmp_path / "next").symlink_to("v1")
        os.replace(tmp_path / "next", tmp_path / "current")
        assert name_of(tls.context(), client) == "two"

    def test_roots_of_clients(self, authority, stranger, certified, files, tmp_path):
        shutil.copy(authority.root, tmp_path / "roots.pem")
        tls = ServerTls(*files, client_ca=tmp_path / "roots.pem", require_client_certificate=True)
        handshake(tls.context(), client_context(authority, certified["alice"]))
        shutil.copy(stranger.root, tmp_path / "roots.pem")
        with pytest.raises(ssl.SSLError, match="certificate verify failed"):
            handshake(tls.context(), client_context(authority, certified["alice"]))

    def test_many_connections_while_it_is_replaced(self, certified, files, client):
        tls = ServerTls(*files)
        seen, stop = set(), threading.Event()

        def connect():
            while not stop.is_set():
                seen.add(name_of(tls.context(), client))

        threads = [threading.Thread(target=connect) for _ in range(3)]
        for thread in threads:
            thread.start()
        for which in ("two", "one", "two"):
            self.replace(files, certified[which])
            name_of(tls.context(), client)
        stop.set()
        for thread in threads:
            thread.join()
        assert seen <= {"one", "two"}
        assert name_of(tls.context(), client) == "two"

    def test_a_client_shows_what_its_files_have_now(self, authority, certified, tmp_path, caplog):
        """To new connections; what cannot be loaded changes nothing."""
        server = ServerTls(
            *authority.certify("here", "/CN=here", ["127.0.0.1"]),
            client_ca=authority.root,
            require_client_certificate=True,
        )
        own = tmp_path / "client.pem", tmp_path / "client.key"
        for source, path in zip(certified["alice"], own, strict=True):
            shutil.copy(source, path)
        tls = ClientTls(authority.root, *own)
        seen = []

        def asked():
            with logstore.connect(listener.address, tls=tls, request_timeout_ms=5_000) as remote:
                remote.topics()
            return seen[-1]

        with (
            logstore.open(tmp_path / "store") as store,
            store.listen(
                "127.0.0.1:0", tls=server, intercept=lambda call: seen.append(call.principal)
            ) as listener,
        ):
            assert asked().startswith("User:CN=alice")
            self.replace(own, certified["two"])
            assert asked() == "User:CN=two"
            own[0].write_text("no certificate")
            assert asked() == "User:CN=two"
            assert "new connections get the earlier certificate" in caplog.text

    def test_a_connection_that_a_broker_hangs_up_on_says_what_may_be_missing(self, authority, tmp_path):
        """The broker says nothing: it cannot know that the other side would understand it."""
        server = ServerTls(*authority.certify("there", "/CN=there", ["127.0.0.1"]))
        client = ClientTls(authority.root)
        with logstore.open(tmp_path / "store") as store:
            store.users.set_password("alice", "secret", iterations=4096)
            secret = store.listen("127.0.0.1:0", tls=server)
            plain = store.listen("127.0.0.1:0")
            named = store.listen("127.0.0.1:0", sasl_enabled_mechanisms="PLAIN")
            for listener, tls, missing in (
                (secret, None, "; it may want TLS"),
                (plain, client, "; it may not speak TLS"),
                (named, None, r"has closed the connection; it may want a login \(SASL\)"),
            ):
                said = re.compile(f"^{listener.address}: .*{missing}")
                eventually(partial(is_refused_with, said, listener.address, tls))

    def test_a_broker_that_ends_misses_nothing(self, tmp_path):
        with logstore.open(tmp_path / "store") as store:
            listener = store.listen("127.0.0.1:0")
            with logstore.connect(listener.address, request_timeout_ms=100) as remote:
                listener.close()
                with pytest.raises(RetriableError) as caught:
                    remote.topics()
                assert "may" not in str(caught.value)

    def test_a_unix_socket_has_none_on_either_side(self, authority, files, tmp_path):
        with logstore.open(tmp_path / "store") as store:
            listener = store.listen(str(tmp_path / "s.sock"), tls=ServerTls(*files))
            store.create_topic("t")
            with logstore.connect(listener.address, tls=ClientTls(authority.root)) as shop:
                assert shop.topics() == {"t": 1}

    def test_what_is_no_tls(self):
        for wrong in (True, "ca.pem", object()):
            with pytest.raises(UsageError, match="must be an ssl"):
                logstore.connect("127.0.0.1:9", tls=wrong)

    def test_what_a_client_cannot_be_made_of(self, authority, certified, tmp_path):
        with pytest.raises(UsageError, match="a key needs the certificate"):
            ClientTls(authority.root, key=certified["alice"][1])
        with pytest.raises(UsageError, match="OpenSSL does not take"):
            ClientTls(certified["alice"][1])
        with pytest.raises(StorageError):
            ClientTls(tmp_path / "nothing.pem")
