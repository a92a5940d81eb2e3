# SPDX-License-Identifier: Apache-2.0
import pytest
from torch_job import interpreter


@pytest.fixture(params=["debian", "newer"])
def python(request):
    return interpreter(request.param)
