"""Tables of texts for rules that are a single condition on the path: equal texts, prefixes, and a rule for every text.

Owns the values of `path`. Rules are known by rank, their position in the order of ids. The smallest rank of a true rule
determines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from typing import Final, NamedTuple

from pdp.model.answer import Reason
from pdp.model.arrays import Path, PathArray
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Resource
from pdp.model.vocabulary import NessieCheck

NEVER: Final = 1 << 60
"""The rank that stands for "no rule"."""
_FEW_PREFIXES: Final = 16


class RankReasons(dict[int, Reason | None]):
    """Reasons by the smallest rank of a true rule, made when they are first needed. NEVER has none."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__({NEVER: None})
        self._ids = ids

    def __missing__(self, rank: int) -> Reason:
        reason = self[rank] = f"cel:{self._ids[rank]}"
        return reason


class PathTables:
    """Ranks by text. `exact` and `starts` map texts to ranks; `always` is the rank of a rule that is true for all."""

    __slots__ = ("_exact", "_few", "_inside", "_lengths", "_prefixes", "_starts", "always")

    def __init__(self, always: int, exact: Mapping[str, int], starts: Mapping[str, int]) -> None:
        self.always = always
        self._exact = {text: rank for text, rank in exact.items() if rank < always}
        self._starts = {text: rank for text, rank in starts.items() if rank < always}
        by_rank = sorted(self._starts.items(), key=lambda start: start[1])
        self._few = by_rank if len(by_rank) <= _FEW_PREFIXES else []
        self._prefixes = tuple(text for text, _ in self._few)
        lengths: dict[int, dict[str, int]] = {}
        for text, rank in by_rank:
            lengths.setdefault(len(text), {})[text] = rank
        self._lengths = [(length, table.get) for length, table in lengths.items()]
        self._inside: dict[str, PathTables] | None = None

    @property
    def is_constant(self) -> bool:
        """Tell whether the answer is the same for every text."""
        return not (self._exact or self._starts)

    def ranks(self, texts: Sequence[str]) -> list[int]:
        """Return for each text the smallest rank of a true rule, or NEVER."""
        ranks = list(map(self._exact.get, texts, repeat(self.always))) if self._exact else [self.always] * len(texts)
        self._lower_by_starts(texts, ranks)
        return ranks

    def ranks_below(self, folders: Sequence[str], folder_at: Sequence[int], names: Sequence[str]) -> list[int]:
        """Return the same for the texts `folders[folder_at[i]] + names[i]`. A folder is empty or ends with a dot.

        No name holds a dot. So a prefix of the folder holds for all names in the folder, a longer text concerns the
        names of one folder only, and most folders are decided by one look-up for all their names.
        """
        ranks = [self.always] * len(folders)
        self._lower_by_starts(folders, ranks)
        if len(folders) == 1:
            tables = self._tables_by_folder().get(folders[0])
            column = ranks * len(names)
            return list(map(min, column, tables.ranks(names))) if tables else column
        column = list(map(ranks.__getitem__, folder_at))
        by_folder = self._tables_by_folder()
        if not by_folder.keys().isdisjoint(folders):
            inside = {place: by_folder[folder] for place, folder in enumerate(folders) if folder in by_folder}
            for row, place in enumerate(folder_at):
                if place in inside and (rank := inside[place].rank(names[row])) < column[row]:
                    column[row] = rank
        return column

    def rank(self, text: str) -> int:
        """Return for one text the smallest rank of a true rule, or NEVER."""
        rank = self._exact.get(text, self.always)
        for length, get in self._lengths:
            found = get(text[:length])
            if found is not None and found < rank:
                rank = found
        return rank

    def _tables_by_folder(self) -> Mapping[str, PathTables]:
        """Return the tables for names in a folder, of the texts that continue the folder, by folder."""
        if self._inside is None:
            self._inside = self._by_folder()
        return self._inside

    def _by_folder(self) -> dict[str, PathTables]:
        entries: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        for kind, texts in enumerate((self._exact, self._starts)):
            for text, rank in texts.items():
                cut = text.rfind(".") + 1
                # A prefix that ends with the folder is a prefix of the folder, and counts there.
                if kind == 0 or cut < len(text):
                    entries.setdefault(text[:cut], ({}, {}))[kind][text[cut:]] = rank
        return {folder: PathTables(NEVER, exact, starts) for folder, (exact, starts) in entries.items()}

    def _lower_by_starts(self, texts: Sequence[str], ranks: list[int]) -> None:
        if self._few:
            self._lower_by_few(texts, ranks)
        elif self._lengths:
            self._lower_by_many(texts, ranks)

    def _lower_by_few(self, texts: Sequence[str], ranks: list[int]) -> None:
        # INVARIANT: prefixes come by rank, so the first match is the smallest.
        # `startswith` of all prefixes at once filters in C.
        few = self._few
        for at in compress(range(len(texts)), map(str.startswith, texts, repeat(self._prefixes))):
            text = texts[at]
            for prefix, rank in few:
                if text.startswith(prefix):
                    if rank < ranks[at]:  # noqa: PLR1730  a call of min() would cost more than all the rest
                        ranks[at] = rank
                    break

    def _lower_by_many(self, texts: Sequence[str], ranks: list[int]) -> None:
        # One dict lookup per distinct length of prefixes. The slice of a shorter text is shorter than every key of the
        # table, so it finds nothing.
        for at, text in enumerate(texts):
            for length, get in self._lengths:
                rank = get(text[:length])
                if rank is not None and rank < ranks[at]:
                    ranks[at] = rank


_FOLDERS: Final = 4096
_LONGEST_FOLDER: Final = 256
"""Containers whose text is remembered, and characters of such a text."""
_folders: Final[BoundedCache[Path, str]] = BoundedCache(_FOLDERS, _LONGEST_FOLDER)


def path_of(check: NessieCheck, resource: Resource) -> str:
    """Return the value of `path` for a check of a resource."""
    return path_string(_elements(check, resource))


def path_string(path: Sequence[str]) -> str:
    """Join a path as Nessie's ContentKey.toPathString does: by dots, with U+001D for a dot or NUL in an element."""
    joined = ".".join(path)
    if joined.count(".") < len(path) and "\0" not in joined:
        return joined
    return ".".join([part.replace(".", "\x1d").replace("\0", "\x1d") for part in path])


def paths_of(check: NessieCheck, resources: Sequence[Resource]) -> list[str]:
    """Return the values of `path` for a check of many resources."""
    if check.path != "self":
        return [path_of(check, resource) for resource in resources]
    joined = [".".join(resource.path) for resource in resources]
    # One count over the whole column proves that no element holds a dot. Dotted elements are rare.
    text = "\n".join(joined)
    dots = sum([len(resource.path) for resource in resources]) - len(resources)
    if text.count(".") == dots and "\0" not in text:
        return joined
    return [path_string(resource.path) for resource in resources]


class PathStrings(NamedTuple):
    """Values of `path` for a column: row i is `folders[folder_at[i]] + names[i]`. No name holds a dot."""

    folders: Sequence[str]
    folder_at: Sequence[int]
    names: Sequence[str]

    def joined(self) -> list[str]:
        """Return the value of each row."""
        folders = self.folders
        if len(folders) == 1:
            folder = folders[0]
            return [folder + name for name in self.names]
        return [folders[at] + name for at, name in zip(self.folder_at, self.names, strict=True)]


def path_strings(column: PathArray) -> PathStrings:
    """Return the values of `path` for a column of paths."""
    joined = "".join(column.names)
    names = column.names
    if "." in joined or "\0" in joined:
        names = [path_string((name,)) for name in names]
    return PathStrings(_folders_of(column.parents), column.parent_at, names)


def _folders_of(parents: Sequence[Path]) -> Sequence[str]:
    """Return the value of `path` up to the name, for each container."""
    folders = list(map(_folders.get, parents))
    if None not in folders:
        return folders  # type: ignore[return-value]
    known = zip(parents, folders, strict=True)
    return [_folder_of(path) if folder is None else folder for path, folder in known]


def _folder_of(parent: Path) -> str:
    folder = path_string(parent) + "." if parent else ""
    return _folders.keep(parent, folder, len(folder))


def _elements(check: NessieCheck, resource: Resource) -> tuple[str, ...]:
    arguments = resource.arguments
    if check.path == "none":
        return ()
    if check.path == "new":
        return (*resource.path, arguments.name) if arguments.name else resource.path
    if check.path == "destination":
        return arguments.destination.path if arguments.destination else resource.path[:-1]
    return resource.path
