"""Options and errors of the commands of `pdp pipeline`: the lake, the properties of Spark, its failures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pdp.cli.options import config_options
from pdp.cli.terminal import one_line_errors, visible
from pdp.cli.wiring import EXAMPLE, Wiring, chosen_file
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    from pdp.cli.progress import Progress
    from pdp.lake.lake import Lake
    from pdp.lake.session import StageNotices

F = TypeVar("F", bound=Callable[..., Any])


_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Packages whose exceptions are failures of Spark. Help and other errors need none of them."""


def one_line_spark_errors(command: F) -> F:
    """Do the same as `one_line_errors`, also for failures of Spark."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _SPARK:
                raise
            from pdp.lake.session import spark_failure  # noqa: PLC0415  help needs none

            raise spark_failure(error) from None

    return one_line_errors(wrapped)  # type: ignore[return-value]


def lake_options(command: F) -> F:
    """Add `--lake`, `--spark`, `-c`, `--example` and `--set`, which `open_chosen_lake` takes."""
    lake = click.option(
        "--lake",
        required=True,
        metavar="DIR|NAME",
        help="Folder of the embedded catalog (also hdfs:// or s3a://), or a catalog of `lakes` in the configuration.",
    )
    spark = click.option(
        "--spark",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Property of Spark, such as spark.driver.memory=8g. Can be repeated.",
    )
    return lake(spark(config_options(command)))


def open_chosen_lake(
    composition: Wiring, lake: str, config: Path | None, overrides: Sequence[str], properties: Sequence[str]
) -> Lake:
    """Return the lake that the options choose, in a session that this call starts."""
    from pdp.lake.lake import open_lake  # noqa: PLC0415
    from pdp.lake.session import choose_catalog  # noqa: PLC0415  help needs neither

    has_configuration = config is EXAMPLE or chosen_file(config) is not None or overrides
    lakes = composition.settings(config, overrides).lakes if has_configuration else {}
    return open_lake(choose_catalog(lake, lakes), spark_properties(properties))


def stage_notices(progress: Progress, lake: Lake) -> StageNotices:
    """Return notices about the stages of a job: its state on a terminal, and each ended stage as a line of stderr."""
    from pdp.lake.session import StageNotices  # noqa: PLC0415  help needs none

    return StageNotices(progress.say, lambda text: click.echo(f"pdp: {visible(text)}", err=True), lake.spark)


def spark_properties(texts: Sequence[str]) -> dict[str, str]:
    """Return the properties of Spark that `--spark` gives; raise InvalidArgument for a text of another form."""
    return dict(map(_property, texts))


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise InvalidArgument(f"`--spark {text}` is not `spark.<name>=<value>`")
    return name, value
