"""Addresses of Redis: TLS, ACL users, unix sockets, a cluster, sentinels and their failover."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import time
from pathlib import Path

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError
from support.servers.redis_server import RedisServer, free_port, redis_server
from support.service.caches import redis_cache

from pdp.config.cache import CacheSettings
from pdp.decision.cache.cache import CachedVerdict, Lookup, NewVerdicts
from pdp.decision.cache.redis import RedisCache
from pdp.engines.engine import PERMIT

PERMITTED = CachedVerdict(PERMIT, "cel:r")
LOOKUPS = [Lookup(bytes([number]) * 32, [b"a" * 24, b"b" * 24]) for number in range(40)]
process = pytest.mark.process


async def works(cache: RedisCache, seconds: float = 20) -> bool:
    """Tell whether several hashes are written and found in one look-up each."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await cache.keep([NewVerdicts(lookup.key, {lookup.fields[0]: PERMITTED}) for lookup in LOOKUPS])
        found = [list(column) for column in await cache.find(LOOKUPS)]
        if found == [[PERMITTED, None]] * len(LOOKUPS):
            return True
        await asyncio.sleep(0.1)
    return False


@process
async def test_a_unix_socket(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--unixsocket", str(tmp_path / "s.sock")):
        cache = redis_cache(f"unix://{tmp_path}/s.sock")
        assert await works(cache)
        await cache.close()


@process
async def test_an_acl_user_with_three_commands(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        client = server.client()
        client.execute_command(
            "ACL", "SETUSER", "pdp", "on", ">pass/w@rd:%", "~pdp:*", "-@all", "+hmget", "+hset", "+pexpire"
        )
        client.execute_command("ACL", "SETUSER", "default", "off")
        address = f"127.0.0.1:{server.port}"
        right = redis_cache(f"redis://pdp:pass%2Fw%40rd%3A%25@{address}")
        apart = redis_cache(f"redis://pdp@{address}", password="pass/w@rd:%")
        wrong = redis_cache(f"redis://pdp:other@{address}")
        assert await works(right)
        assert await works(apart)
        assert not await works(wrong, 1)
        for cache in (right, apart, wrong):
            await cache.close()


def certificates(folder: Path) -> None:
    """Write an authority, and a certificate for 127.0.0.1 that it signed."""
    now, keys = dt.datetime.now(dt.UTC), {}
    names = {who: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)]) for who in ("ca", "server")}
    for who in ("ca", "server"):
        keys[who] = ec.generate_private_key(ec.SECP256R1())
        built = (
            x509.CertificateBuilder()
            .subject_name(names[who])
            .issuer_name(names["ca"])
            .public_key(keys[who].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=who == "ca", path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(keys["ca"], hashes.SHA256())
        )
        (folder / f"{who}.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
        key = keys[who].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{who}.key").write_bytes(key)


@process
async def test_tls_with_a_verified_certificate(tmp_path: Path) -> None:
    certificates(tmp_path)
    (tmp_path / "other").mkdir()
    certificates(tmp_path / "other")
    files = {"cert-file": "server.pem", "key-file": "server.key", "ca-cert-file": "ca.pem"}
    options = [part for name, file in files.items() for part in (f"--tls-{name}", str(tmp_path / file))]
    with redis_server(tmp_path, *options, "--tls-auth-clients", "no", scheme="rediss") as server:
        right = redis_cache(server.url, tls_ca=str(tmp_path / "ca.pem"))
        wrong = redis_cache(server.url, tls_ca=str(tmp_path / "other" / "ca.pem"))
        plain = redis_cache(server.url.replace("rediss", "redis", 1), timeout=0.2)
        assert await works(right)
        assert not await works(wrong, 1)
        assert not await works(plain, 1)
        for cache in (right, wrong, plain):
            await cache.close()


@pytest.mark.waits
@process
async def test_a_cluster(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server:
        server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        cache = redis_cache(server.url.replace("redis:", "redis+cluster:"))
        assert await works(cache)
        server.freeze()
        assert not await works(cache, 1)
        server.thaw()
        assert await works(cache)
        await cache.close()


def sentinel(folder: Path, master: RedisServer) -> RedisServer:
    """A sentinel that watches a master, and fails over by itself."""
    folder.mkdir()
    (folder / "sentinel.conf").write_text(
        f"sentinel monitor lake 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds lake 500\nsentinel failover-timeout lake 3000\n"
    )
    return RedisServer(folder, (), free_port())


@pytest.mark.waits
@process
async def test_sentinels_name_the_master_also_after_a_failover(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("first", "second")}
    for folder in folders.values():
        folder.mkdir()
    with redis_server(folders["first"]) as first, redis_server(folders["second"]) as second:
        second.client().execute_command("REPLICAOF", "127.0.0.1", str(first.port))
        watching = sentinel(tmp_path / "sentinel", first)
        with redis_server(
            watching.folder, str(watching.folder / "sentinel.conf"), "--sentinel", port=watching.port, as_sentinel=True
        ):
            cache = redis_cache(f"redis+sentinel://127.0.0.1:{watching.port}/lake/0")
            assert await works(cache)
            assert first.client().info("commandstats")["cmdstat_hset"]["calls"]
            first.kill()
            assert await works(cache, 60), "the second server has become the master"
            assert second.client().info("commandstats")["cmdstat_hset"]["calls"]
            await cache.close()


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("redis://127.0.0.1", True),
        ("redis://localhost:6379/0", True),
        ("redis://[::1]:6379", True),
        ("unix:///run/redis.sock", True),
        ("redis://user:p@127.0.0.1:1", True),
        ("redis+sentinel://127.0.0.1:1,127.0.0.2:2/m", True),
        ("redis+sentinel://127.0.0.1:1,10.0.0.2:2/m", False),
        ("redis://10.0.0.1", False),
        ("rediss://redis.example:6380", False),
        ("redis://127.0.0.1@redis.example", False),
        ("redis+cluster://redis", False),
        ("redis://127.0.0.1.example", False),
    ],
)
def test_addresses_on_this_machine(address: str, local: bool) -> None:
    assert CacheSettings(redis=address).is_on_this_machine() is local


@pytest.mark.parametrize(
    "address", ["redis://", "http://h", "redis:h", "redis+sentinel://h:1", "rediss+cluster://", "h:6379", "redis+x://h"]
)
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(ValidationError):
        CacheSettings(redis=address)


MALFORMED = {
    "redis://h/abc": "number of the database", "redis://h/-1": "number of the database", "redis://h/1/2": "number of the database",
    "redis://h/1?db=2": "stands twice", "unix:///s?db=x": "number of the database", "unix://": "match pattern", "unix:///": "no socket",
    "redis://h:0": "1 to 65535", "redis://h:65536": "1 to 65535", "redis://h:x": "1 to 65535", "redis://[::1]6379": "1 to 65535", "redis://h:": "1 to 65535",
    "redis+cluster://h:1,h2:x/0": "1 to 65535", "redis+cluster://h:1,h2:2": "several hosts", "redis://a,b": "several hosts",
    "redis+sentinel://a:1,:2/m": "no host", "redis+sentinel://a:1,b:0/m": "1 to 65535", "redis+sentinel://a:1/m/x": "number of the database",
    "redis://h?ssl_cert_reqs=none": "`ssl_cert_reqs`", "rediss://h?ssl_cert_reqs=none": "`ssl_cert_reqs`", "rediss://h/0?ssl_check_hostname=": "`ssl_check_hostname`",
    "redis://h /0": "blank", "redis://h#x": "`#`", "redis://h\u200b": "nobody sees", "redis://u:geheim@h/x": "number of the database", "redis://[::1": "no address",
}  # fmt: skip


@pytest.mark.parametrize(("address", "said"), MALFORMED.items())
def test_a_malformed_address_is_refused_with_the_part(address: str, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        CacheSettings(redis=address)
    (error,) = refused.value.errors()
    assert said in error["msg"]
    assert "geheim" not in error["msg"]


@pytest.mark.parametrize(
    "address",
    [
        "redis://h", "redis://h:1/15", "rediss://u:p%40@h:65535/0", "redis://:p@h?db=3", "unix:///run/r.sock?db=1", "unix:///s", "redis://[::1]:6379/0", "redis://[::1]",
        "redis+cluster://h:1", "redis+sentinel://a,b:1,[::1]:2/m", "rediss+sentinel://u:p@a:1/m/3",
    ],
)  # fmt: skip
def test_addresses_of_every_form_are_taken(address: str) -> None:
    assert CacheSettings(redis=address).redis == address


def test_the_client_of_the_tests_is_the_client_of_the_service() -> None:
    """The pinned version is what the tests run with."""
    pinned = (Path(__file__).parents[3] / "constraints.txt").read_text()
    assert f"redis=={redis.__version__}\n" in pinned
