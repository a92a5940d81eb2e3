# SPDX-License-Identifier: Apache-2.0
import launch
import pytest


@pytest.fixture
def dump(box):
    return launch.Dump(box)
