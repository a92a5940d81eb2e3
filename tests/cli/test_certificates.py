# SPDX-License-Identifier: Apache-2.0
"""For which hosts a certificate is valid, in the programs that contain libcurl and Mbed TLS: RFC
9525, section 6, and RFC 5280, 4.2.1.6. OpenSSL gives the same answer for each address."""
import ipaddress
import subprocess

import ctrun
import pytest

PROGRAM = ctrun.BUILD / "tests" / "lib" / "cert_host"
# description: (subject, subjectAltName or None, {host: whether the certificate is valid for it})
CASES = {
    "an IPv4 address": ("/CN=x", "IP:10.0.0.1", {
        "10.0.0.1": 1, "10.0.0.2": 0, "010.0.0.1": 0, "10.0.0.1.": 0, "::ffff:10.0.0.1": 0, "x": 0}),
    "the second of several names": ("/CN=x", "DNS:a.example,IP:10.0.0.9,IP:10.0.0.1", {
        "10.0.0.1": 1, "10.0.0.9": 1, "a.example": 1, "10.0.0.10": 0, "b.example": 0}),
    "an IPv6 address, however it is spelt": ("/CN=x", "IP:fd00::5", {
        "fd00::5": 1, "FD00:0:0:0:0:0:0:5": 1, "fd00::6": 0, "fd00::5%eth0": 0, "[fd00::5]": 0}),
    "a mapped IPv4 address is the IPv6 one": ("/CN=x", "IP:::ffff:10.0.0.1", {
        "::ffff:10.0.0.1": 1, "10.0.0.1": 0}),
    "the text of an address as a name": ("/CN=x", "DNS:10.0.0.1,DNS:*.0.0.1,DNS:::1", {
        "10.0.0.1": 0, "11.0.0.1": 0, "::1": 0}),
    "a subject, and no other name": ("/CN=10.0.0.1", None, {"10.0.0.1": 0}),
    "a subject with a name, and no other": ("/CN=localhost", None, {"localhost": 0}),
    "other kinds of names alone": ("/CN=localhost", "email:a@localhost,URI:https://10.0.0.1/", {
        "localhost": 0, "10.0.0.1": 0}),
    "no names at all": ("/CN=localhost", "DER:3000", {"localhost": 0, "10.0.0.1": 0}),
    "an address and its mask": ("/CN=x", "DER:300a87080a000001ffffffff", {"10.0.0.1": 0}),
    "an address that is too short": ("/CN=x", "DER:300587030a0000", {"10.0.0.0": 0, "10.0.0.1": 0}),
    "an address without octets": ("/CN=x", "DER:30028700", {"0.0.0.0": 0, "::": 0}),
    "names": ("/CN=x", "DNS:localhost,DNS:*.b.example", {
        "localhost": 1, "LocalHost": 1, "a.b.example": 1, "b.example": 0, "c.a.b.example": 0, "x": 0}),
}


@pytest.mark.parametrize("what", CASES)
def test_a_certificate_is_for(box, what):
    if not PROGRAM.exists():
        pytest.skip("libmbedtls-dev was not there when this was built")
    subject, names, hosts = CASES[what]
    extension = ["-addext", f"subjectAltName={names}"] if names else []
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                           "-days", "2", "-subj", subject, "-keyout", box.path("key"), "-out", box.path("cert"),
                           *extension], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    said = box.run(PROGRAM, box.path("cert"), *hosts).out.split()
    if said != ["unreadable"]:  # then it is valid for no host
        assert dict(zip(hosts, said)) == {host: "yes" if is_for else "no" for host, is_for in hosts.items()}
    else:
        assert not any(hosts.values())
    for host in filter(is_address, hosts):
        run = subprocess.run(["openssl", "verify", "-CAfile", box.path("cert"), "-verify_ip", host, box.path("cert")],
                             capture_output=True, text=True)
        assert (run.returncode == 0) == bool(hosts[host]), (host, run)


def is_address(host):
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False
