"""Restrictions behind views: those of a view's owner and of the user of the query, chosen or joined by the setting.

Trino evaluates a filter behind a view as the owner. So filters and masks of the user name the user as `identity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from pdp.config.policies import ThroughViews
from pdp.config.warehouses import TrinoSettings
from pdp.engines.row_access.engine import NO_ROWS, Restriction, RowAccessEngine, hide_everything
from pdp.engines.row_access.policies import KINDS
from pdp.engines.row_access.policy_set import Mask
from pdp.model.answer import Predicate, Reason

UNKNOWN_USER: Final = "unknown_query_user"
"""Reason of a restriction because nobody knows the user of the query."""
_AUTHORED: Final = "expression"


def through(mode: ThroughViews, owner: Restriction, user: Restriction | None, name: str) -> Restriction:
    """Return the restriction behind a view that may run as another than the user of the query.

    `user` is the restriction of the user of the query, None if nobody knows the user: then nothing is visible, unless
    the owner alone counts. `name` is the engine's name of the user.
    """
    if mode == "owner":
        return owner
    if user is None:
        return hide_everything(UNKNOWN_USER)
    as_user = _evaluated_by(user, name)
    return as_user if mode == "caller" else _join(owner, as_user)


def _evaluated_by(restriction: Restriction, name: str) -> Restriction:
    """Return a restriction whose expressions a user evaluates, but for those that name another user."""
    rows = restriction.rows
    if rows is not None and rows != NO_ROWS:
        rows = Predicate(rows.expression, rows.identity or name)
    masks = {column: replace(mask, identity=mask.identity or name) for column, mask in restriction.masks.items()}
    return replace(restriction, rows=rows, masks=masks)


def _join(owner: Restriction, user: Restriction) -> Restriction:
    """Return the restriction that shows the rows of both, under the masks of both."""
    blank = owner if owner.blank else user if user.blank else None
    if blank is not None:
        return blank
    masks = _join_masks(owner.masks, user.masks)
    hiding = next((each for each in (owner, user) if not each.shows_rows), None)
    if hiding is not None:
        return Restriction(NO_ROWS, hiding.by, masks)
    if owner.rows is None or user.rows is None:
        shown = user if owner.rows is None else owner
        return replace(shown, masks=masks)
    return Restriction(owner.rows, _both(owner.by, user.by), masks, more_rows=user.rows)


def _join_masks(owner: Mapping[str, Mask], user: Mapping[str, Mask]) -> dict[str, Mask]:
    """Return the mask of each column: the one that hides more. Two expressions of authors become NULL."""
    joined = {**user, **owner}
    for column in owner.keys() & user.keys():
        first, second = sorted((owner[column], user[column]), key=lambda mask: KINDS.index(mask.kind))
        joined[column] = replace(first, kind="null") if first.kind == second.kind == _AUTHORED else first
    return joined


def _both(owner: Reason, user: Reason) -> Reason:
    return owner if owner == user else f"{owner},{user.removeprefix('row_access:')}"


def unprotected_catalogs(trino: TrinoSettings, access: RowAccessEngine) -> Iterator[str]:
    """Yield a notice for each catalog whose materialized views can store rows that are restricted elsewhere.

    Policies of the store come and go, so those of files count alone.
    """
    restricted = sorted({each.warehouse for each in trino.catalogs.values() if access.restricts_in(each.warehouse)})
    for name, catalog in trino.catalogs.items() if restricted else ():
        if catalog.warehouse not in restricted and catalog.materialized_views == "unrestricted":
            yield (
                f"a materialized view in `{name}` can store rows of `{'`, `'.join(restricted)}`, which no row policy "
                f"hides there: write `trino.catalogs.{name}.materialized_views: denied`, or `allowed` where policies "
                "on the names of the views protect them"
            )
