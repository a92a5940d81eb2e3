#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two paths through the code that every developer reads once are right, and not too long.

usage: paths.py [SOURCE_DIRECTORY]

A line is a file and the function by which the path enters it; a line above in the same part calls
that function, or the member that it is assigned to. So no file between two lines is left out. "="
begins another part: it gets a message of the part before, or is called with its result. "<" is a
return: to the caller that the next part calls, or to a file of the part before, which calls this
function next. The lowest layer (worker_sdk: bytes, frames, the codec) is not counted, nor is what
only adds text for users. A limit may become smaller, not larger."""
import pathlib
import re
import sys

PATHS = {
    "the status of a worker that failed, from waitid() to the line on the console": (25, 3, """
  agent/worker/worker_group_reap.c     worker_group_reap
  agent/worker/worker_end.c            worker_end
  agent/postmortem/exit_cause.c        exit_cause_classify
  agent/worker/worker_group_restart.c  worker_group_find_final
  agent/agent_round.c                  on_failure
  agent/node/agent_failure.c           agent_report_failure
  agent/link/link_break.c              link_send
= rendezvous/net/conn.c                on_read
  rendezvous/session/dispatch.c        on_bytes
  rendezvous/session/run.c             run_step
  rendezvous/round/round.c             round_step
  rendezvous/round/round_message.c     round_on_message
  rendezvous/round/round_stopping.c    round_fail
  rendezvous/round/failures.c          failures_exit_code
  rendezvous/session/output_commit.c   output_commit_send
= agent/link/link_socket.c             link_on_socket
  agent/link/link_message.c            link_on_message
  agent/agent_link.c                   on_message
  agent/agent_round.c                  agent_on_verdict
  agent/node/agent_node.c              agent_end
< agent/agent.c                        agent_run
= launcher/run/launch.c                run_agent
  launcher/run/launch_end.c            launch_end
  launcher/report/exit_status.c        exit_status
  launcher/report/summary.c            summary_format
  launcher/report/messages.c           messages_print
"""),
    "from JOIN to a worker that runs": (30, 3, """
  agent/agent_join.c                   agent_join
  agent/link/link_break.c              link_send
= rendezvous/net/conn.c                on_read
  rendezvous/session/dispatch.c        on_bytes
  rendezvous/session/run.c             run_step
  rendezvous/round/round.c             round_step
  rendezvous/round/round_message.c     round_on_message
  rendezvous/round/round_forming.c     round_start_if_complete
  rendezvous/round/round_base.c        round_world_size
  rendezvous/round/member.c            member_assign_ranks
  rendezvous/round/networks.c          networks_choose
  rendezvous/round/master.c            master_choose
  rendezvous/round/world_layout.c      world_layout_describe
  rendezvous/session/roster.c          roster_next
  rendezvous/session/output_commit.c   output_commit_send
= agent/link/link_socket.c             link_on_socket
  agent/link/link_message.c            link_on_message
  agent/agent_link.c                   on_message
  agent/agent_round.c                  agent_on_start
  agent/agent_reachability.c           agent_find_reachability
  agent/link/reachability.c            reachability_find
  agent/agent_start.c                  agent_start_workers
  agent/worker/worker_group.c          worker_group_start
  agent/worker/worker.c                worker_plan
= launcher/run/launch.c                plan
  launcher/run/plan.c                  plan_worker
< agent/process/spawn.c                spawn_start
  agent/process/child.c                child_start
"""),
}

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parents[2]
complaints = []


def calls(text, function, texts):
    """Whether text calls the function, by its name or by a member that it is assigned to."""
    members = {name for other in texts for name in re.findall(rf"(?:\.|->)(\w+)\s*=\s*&?{function}\b", other)}
    return re.search(rf"(?<![\w.>])&?{function}\s*\(", text) or any(
        re.search(rf"(?:->|\.){member}\s*\(", text) for member in members)


for what, (files_max, borders_max, lines) in PATHS.items():
    hops = re.findall(r"^([=<]?) +(\S+) +(\S+)$", lines, re.M)
    texts = {name: re.sub(r"/\*.*?\*/", "", (ROOT / name).read_text(), flags=re.S) if (ROOT / name).is_file() else ""
             for _, name, _ in hops}
    part = []  # the files of this part so far
    for border, name, function in hops:
        if not re.search(rf"^[a-z].*\b{function}\(", texts[name], re.M):
            complaints.append(f"{what}: {name} does not define {function}")
        callers = texts if border == "<" else part
        if border != "=" and part and not any(
                calls(texts[other], function, texts.values()) for other in callers if other != name):
            complaints.append(f"{what}: nothing above it calls {function} of {name}")
        part = [name] if border == "=" else part + [name]
    files, borders = len(texts), sum(border == "=" for border, _, _ in hops)
    if files > files_max or borders > borders_max:
        complaints.append(f"{what}: {files} files, {borders} borders; {files_max} and {borders_max} are the most")
    print(f"{what}: {files} files, {borders} borders")

print("\n".join(complaints))
sys.exit(bool(complaints))
