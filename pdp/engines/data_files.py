"""Files of policies in JSON or YAML: texts, values, and the places of errors. Knows no policy."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pdp.config.regular_files import read_regular
from pdp.errors import InvalidArgument, Place, PolicyError
from pdp.model import strict
from pdp.model.strict import refuse_duplicates, sentence

_PATH: Final = re.compile(r"`\$([^`]*)`$")
_STEP: Final = re.compile(r"\[\d+\]|\.[^.\[]+")


def read_text(path: Path) -> str:
    """Return the text of a file; raise PolicyError for a file that cannot be read or is not UTF-8."""
    try:
        return read_regular(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", Place(str(path), 0)) from None
    except UnicodeDecodeError:
        raise PolicyError("does not parse: it is not UTF-8", Place(str(path), 0)) from None


def parse_data(text: str, path: Path) -> Any:
    """Return the value of a text in the language of the file's name; raise PolicyError."""
    try:
        return _json(text) if path.suffix == ".json" else strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark, cause = error.problem_mark, error.problem
        place = Place(str(path), mark.line + 1, mark.column + 1) if mark else Place(str(path), 0)
    except json.JSONDecodeError as error:
        place, cause = Place(str(path), error.lineno, error.colno), sentence(error.msg)
    except (ValueError, RecursionError, yaml.YAMLError, InvalidArgument) as error:
        place, cause = Place(str(path), 0), " ".join(str(error).split())
    raise PolicyError(f"does not parse: {cause}", place)


def place_of(file: str, text: str, where: Sequence[str | int]) -> Place:
    """Return the place of a value, or of the nearest one around the value."""
    found = strict.position_of(text, where)
    return Place(file, *found[:2]) if found else Place(file)


def path_in(message: str) -> list[str | int]:
    """Return the path at the end of a decoder's message, such as "- at `$.policies[0].id`"; empty without one."""
    path = _PATH.search(message)
    steps = _STEP.findall(path[1]) if path else []
    return [int(step[1:-1]) if step[0] == "[" else step[1:] for step in steps]


def _json(text: str) -> Any:
    data = json.loads(text)  # first, because the errors of this reader have a line
    refuse_duplicates(text.encode())
    return data
