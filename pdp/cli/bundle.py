"""`pdp bundle`: build, sign and verify bundles of policies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from pdp.cli.options import format_option
from pdp.cli.terminal import one_line_errors, plural, visible
from pdp.config.bundles.archive import UnpackedBundle, add_signature, build, read_files, unpack, write_files
from pdp.config.bundles.manifest import read_private_key, read_public_key
from pdp.errors import ConfigError

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_max_mib = click.option("--max-mib", default=64, show_default=True, help="Most MiB of the unpacked bundle.")


@click.group()
def bundle() -> None:
    """Build, sign and verify bundles of policies.

    `policies.source` takes bundles from a server.
    """


@bundle.command("build")
@click.argument("folder", type=_FOLDER)
@click.option("-o", "--output", type=_FILE, required=True, help="File of the new bundle, such as bundle.tar.gz.")
@click.option("--key", type=_FILE, help="Private key (PEM, Ed25519 or ECDSA P-256) to sign with.")
@click.option("--revision", default="", help="Name of the bundle for readers, such as a commit.")
@click.option("--sequence", type=click.IntRange(0), help="Number of the bundle. Default: the time in seconds.")
@one_line_errors
def build_bundle(folder: Path, output: Path, key: Path | None, revision: str, sequence: int | None) -> None:
    """Write all files below FOLDER as a bundle, but for hidden ones.

    A service takes no bundle with a smaller number than the bundle in use.
    """
    number = int(time.time()) if sequence is None else sequence
    files = read_files(folder)
    content = build(files, number, revision, read_private_key(key) if key else None)
    _write(output, content)
    signed = "signed" if key else "not signed"
    click.echo(visible(f"{output}: {plural(len(files), 'file')}, number {number}, {signed}"))


@bundle.command("sign")
@click.argument("file", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="Private key (PEM, Ed25519 or ECDSA P-256).")
@_max_mib
@one_line_errors
def sign_bundle(file: Path, key: Path, max_mib: int) -> None:
    """Add a signature to a bundle, beside those of other keys."""
    _write(file, add_signature(_read(file), read_private_key(key), max_mib << 20))
    click.echo(visible(f"{file}: signed"))


@bundle.command("verify")
@click.argument("file", type=_FILE)
@click.option("--key", "keys", type=_FILE, multiple=True, help="Public key (PEM). Can be repeated: one must fit.")
@click.option("--unsigned", is_flag=True, help="Demand no signature.")
@click.option("--unpack", "target", type=_FOLDER, help="New folder for the files of the bundle.")
@_max_mib
@format_option("text", "json")
@one_line_errors
def verify_bundle(
    file: Path, keys: Sequence[Path], unsigned: bool, target: Path | None, max_mib: int, form: str
) -> None:
    """Check a bundle as a service does, and print what the bundle has. Exits with 2 for a bad bundle."""
    if bool(keys) == unsigned:
        raise click.UsageError("give --key, or --unsigned")
    found = unpack(_read(file), [read_public_key(key) for key in keys], max_mib << 20)
    if target:
        _unpack_to(target, found)
    _print(found, form)


def _unpack_to(target: Path, found: UnpackedBundle) -> None:
    try:
        target.mkdir(parents=True)
        write_files(found.files, target)
    except FileExistsError:
        raise ConfigError(f"`{target}` exists already: name a new folder") from None


def _print(found: UnpackedBundle, form: str) -> None:
    manifest = found.manifest
    if form == "json":
        shown = {"sequence": manifest.sequence, "revision": manifest.revision, "signer": found.signer}
        sys.stdout.buffer.write(msgspec.json.encode({**shown, "digest": found.digest, "files": sorted(found.files)}))
        sys.stdout.buffer.write(b"\n")
        return
    signed = f"signed by {found.signer}" if found.signer else "signature not checked"
    click.echo(visible(f"number {manifest.sequence}, revision {manifest.revision or '(none)'}, {signed}"))
    for path in sorted(found.files):
        click.echo(visible(f"  {path}"))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror or error}") from None


def _write(file: Path, content: bytes) -> None:
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.rename(file)
    except OSError as error:
        raise ConfigError(f"cannot write `{file}`: {error.strerror or error}") from None
