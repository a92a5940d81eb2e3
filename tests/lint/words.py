# SPDX-License-Identifier: Apache-2.0
"""Retired words in code, comments, manuals, tests and messages: one thing has one name, which is
the field's.

usage: words.py [SOURCE_DIRECTORY]"""
import os
import re
import subprocess
import sys

NAMES = {  # as a part of a name or as a word: say
    "cage": "run_cgroup",
    "crew": "worker_group",
    "chorus": "console_dedup, line merger",
    "candidacy": "leader_candidate",
    "succession": "takeover",
    "heritage": "failover",
    "reign": "term",
    "allegiance": "instance, term",
    "fleet": "ssh, --hosts",
    "lineup": "world_layout",
    "guest_list": "allow_list",
    "occupant": "endpoint_owner",
    "late_name": "dns_retry",
    "aside": "blocking_call",
    "standby": "spare (a node), candidate (a server)",
    "standbys": "spares",
    "seat_record": "host_slot_record",
    "ctrun_seat": "CTRUN_HOST_SLOT",
    "server_yield": "server_step_down",
    "dispatch_yield": "dispatch_step_down",
    "ct_way": "ct_reachability",
    "ct_ways": "ct_reach",
    "ct_message_way": "CT_MESSAGE_REACHABILITY",
    "round_on_way": "round_on_reachability",
    "on_way": "on_reachable",
    "send_way": "send_reachability",
    "way_found": "master_reached",
    "way_cut": "node_unreachable",
    "leftovers_killed": "orphans_killed",
    "doctor_way": "doctor_probe",
    "first_way": "first_addr",
    "etcd_host": "server_record",
    "host_key": "leader_key",
    "host_lease": "leader_lease",
    "take_loss": "on_loss",
    "take_ended": "on_ended",
    "take_lost": "on_lost",
    "take_plan": "on_plan",
    "depose": "has lost its lease",
    "deposed": "has lost its lease",
    "election_praise": "election_log_up",
    "election_complain": "election_log_down",
    "election_nap": "election_sleep",
    "remote_dir": "ctl_dir",
    "meet_pmi": "rdzv_pmi",
    "meet_etcd": "rdzv_etcd",
    "meet_batch": "rdzv_batch",
    "meet_config": "rdzv_settings",
    "messages_say": "messages_notice",
    "cause_classify": "exit_cause_classify",
    "diagnosis_add": "failure_hints_add",
    "evidence_add": "failure_evidence_add",
    "hosts_resolve": "rdzv_endpoint_resolve",
    "hosts_rendezvous": "serves_rendezvous",
    "hosts_server": "serves_rendezvous",
    "stranger": "other user, unknown client, program or process outside the run",
    "strangers": "other users, unknown clients, programs or processes outside the run",
}
PRODUCT = {  # the same, in the product alone: a test or the SDK may have the word for something of its own
    "leftover": "orphan",
    "leftovers": "orphans",
    "intake": "receive",
    "screen": "console",
    "gate": "output_commit (held until it may be sent), start barrier, limit",
}
PHRASES = {
    "the workers go on": "workers keep running",
    "no goodbye": "nothing received for N s",
    "no word of": "nothing received from",
    "is not its business": "protocol error",
    "tells nonsense": "sent a malformed message",
    "says nonsense": "sent a malformed message",
    "what is above a link": "a source that contains a link",
    "is the host of run": "no rendezvous server elected yet for run",
    "no word of the end": "did not report its end in time",
    "comes twice\"": "is given twice",
    "seldom understand each other": "may not work together",
}
# Verbs that no function or field of the product has: each sends, prints, reports, formats or receives something.
SAYS = "(?:un)?(?:tells?|told|says?|said|hears?|heard)"
VERBS = re.compile(rf"(?<![A-Za-z0-9]){SAYS}(?=_|\()|(?<=_){SAYS}(?![A-Za-z0-9])", re.I)
PLACES = ("agent/", "launcher/", "rendezvous/", "worker_sdk/", "examples/")
ENDS = (".c", ".h", ".cu", ".cuh", ".in", ".py", ".sh", ".md", ".txt", ".cmake", ".1", ".3", ".7", ".8")
OURS = ("tests/lint/words.py",)

os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../.."))
git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
names = git.stdout.splitlines() if git.returncode == 0 else [
    os.path.relpath(os.path.join(root, name), ".") for root, _, found in os.walk(".") for name in found]
SAY = {**NAMES, **PRODUCT}


def pattern_of(names):
    return re.compile("|".join(rf"(?<![A-Za-z{'_' if '_' in name else ''}]){name}(?![a-z])" for name in names), re.I)


anywhere, in_product = pattern_of(NAMES), pattern_of(SAY)
phrase = re.compile("|".join(map(re.escape, PHRASES)))
found = []
for name in sorted(names):
    if not name.endswith(ENDS) or name in OURS or not os.path.isfile(name):
        continue
    part = in_product if name.startswith(("agent/", "launcher/", "rendezvous/", "man/")) else anywhere
    if match := part.search(name):
        found.append(f"{name}: '{match[0]}' is retired: say {SAY[match[0].lower()]}")
    with open(name, encoding="utf-8") as file:
        text = file.read()
    if name.startswith(PLACES) and name.endswith((".c", ".h", ".cu", ".cuh")):
        code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
        found += [f"{name}:{code.count(chr(10), 0, m.start()) + 1}: '{m[0]}' in a name: say what it does"
                  for m in VERBS.finditer(code)]
    small = text.lower()
    if not any(word.lower() in small for word in (*SAY, *PHRASES)):  # the patterns take seconds for all files
        continue
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"{name}:{number}: '{m[0]}' is retired: say {SAY[m[0].lower()]}"
                  for m in part.finditer(line)]
        found += [f"{name}:{number}: '{m[0]}' is retired: say {PHRASES[m[0]]}"
                  for m in phrase.finditer(line)]
print("\n".join(found))
sys.exit(bool(found))
