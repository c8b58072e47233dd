"""A certificate authority for tests, made by the program openssl."""

import shutil
import subprocess

OPENSSL = shutil.which("openssl")


def openssl(*arguments):
    subprocess.run([OPENSSL, *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.root = path / "root.pem"
        self.root_key = path / "root.key"
        self._new_key(self.root_key)
        openssl(
            *("req", "-x509", "-new", "-key", self.root_key, "-subj", "/CN=root", "-out", self.root),
            *("-days", 2, "-addext", "keyUsage=critical,keyCertSign,cRLSign"),  # Python 3.13 asks for it
        )

    def _new_key(self, path):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)

    def certify(self, name, subject, addresses=()):
        """A certificate and its key, for a server if it has addresses."""
        certificate, key, request = (self.path / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        self._new_key(key)
        openssl("req", "-new", "-key", key, "-subj", subject, "-out", request, "-utf8")
        extensions = self.path / f"{name}.extensions"
        names = "subjectAltName=" + ",".join(f"IP:{each}" for each in addresses) if addresses else ""
        extensions.write_text(f"authorityKeyIdentifier=keyid\n{names}\n")
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.root, "-CAkey", self.root_key),
            *("-CAcreateserial", "-out", certificate, "-days", 2, "-extfile", extensions),
        )
        return certificate, key
