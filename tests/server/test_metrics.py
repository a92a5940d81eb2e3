# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a ctrund: Debian's package prometheus, or one in PATH."""
import json
import shutil
import urllib.error
import urllib.parse
import urllib.request

import pytest

import ctrun

CONFIG = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: ctrund
    static_configs:
      - targets: ["127.0.0.1:%d"]
"""


@pytest.fixture
def prometheus(box, daemon):
    """query(expression): the value that a Prometheus has for it, or None."""
    if not shutil.which("prometheus"):
        pytest.skip("no prometheus here: apt-get install prometheus")
    port = ctrun.free_port()
    config = box.write("prometheus.yml", CONFIG % daemon.port)
    run = box.start("prometheus", f"--config.file={config}",
                    f"--storage.tsdb.path={box.path('data')}",
                    f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn")

    def query(expression):
        assert run.code is None, run
        words = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}",
                                        timeout=60) as reply:
                found = json.load(reply)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return None  # it is still starting
        return float(found[0]["value"][1]) if found else None
    yield query
    run.signal(15)
    run.wait()


def test_a_prometheus_sees_runs_members_and_failures(daemon, prometheus):
    agents, _ = daemon.world(2, restarts=1)
    ctrun.wait_until(lambda: prometheus('ctrund_members{state="running"}') == 2,
                     "two agents are seen", 60)
    assert prometheus('up{job="ctrund"}') == 1
    assert prometheus('ctrund_runs{state="running"}') == 1
    agents[0].fail(1, code=3)
    ctrun.wait_until(lambda: prometheus('ctrund_failures_total{cause="exit"}') == 1,
                     "the failure is seen", 60)
    assert prometheus("ctrund_restarts_total") == 0  # the other one has not answered yet
