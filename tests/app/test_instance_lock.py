"""Lock of the audit folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.service.serving import settings_of

from pdp.app.run import instance_lock
from pdp.errors import ConfigError


def test_services_of_one_process_share_a_folder(tmp_path: Path) -> None:
    settings = settings_of({}, tmp_path)
    with instance_lock(settings, alone=False), instance_lock(settings, alone=False):
        pass


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_a_service_with_workers_shares_its_folder_with_no_other(tmp_path: Path, first: bool, second: bool) -> None:
    settings = settings_of({}, tmp_path)
    with (
        instance_lock(settings, alone=first),
        pytest.raises(ConfigError, match="another service uses the audit folder"),
        instance_lock(settings, alone=second),
    ):
        pass
    with instance_lock(settings, alone=second):
        pass


def test_without_an_audit_there_is_nothing_to_lock(tmp_path: Path) -> None:
    settings = settings_of({"audit": {"sinks": []}}, tmp_path)
    with instance_lock(settings, alone=True), instance_lock(settings, alone=True):
        assert list(tmp_path.iterdir()) == []
