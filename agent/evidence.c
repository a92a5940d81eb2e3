/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/evidence.h"

#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "agent/core_file.h"
#include "agent/facts.h"
#include "agent/kmsg.h"
#include "agent/words.h"

enum {
    SHM_FULL_BYTES = 16 << 20, /* less than one segment of NCCL or of a data loader */
    LINE_MAX_BYTES = 320
};

static void add_oom(struct ct_failure *failure, const struct evidence *evidence)
{
    char kernel[LINE_MAX_BYTES] = "";
    char limit[LINE_MAX_BYTES] =
        "no limit of a cgroup: the machine's memory is used up";
    char peak[FACTS_SIZE_MAX];

    facts_format_size(peak, evidence->peak_bytes);
    (void)cgroup_describe_limit(evidence->cgroup, limit, sizeof limit);
    facts_add(failure, "limit", "%s; rank %d held %s", limit, failure->rank, peak);
    (void)kmsg_find_kill(kernel, sizeof kernel, failure->pid, evidence->started_ms);
    facts_add(failure, "proof", "%s%s%s%s", evidence->oom_proof,
              *kernel ? "; kernel: \"" : "", kernel, *kernel ? "\"" : "");
}

/* What a SIGKILL that is not ours was not. */
static void add_kill(struct ct_failure *failure, const struct evidence *evidence)
{
    if (evidence->cgroup->counter_file[0])
        facts_add(
            failure, "because",
            "not the OOM killer (oom_kill of cgroup %.100s has not grown); who sent "
            "the signal is unknown",
            evidence->cgroup->name);
    else
        facts_add(
            failure, "because",
            "whether it was the OOM killer is unknown: no memory cgroup is visible; "
            "so is who sent the signal");
    facts_add(failure, "do", "journalctl -k; ask who ends jobs on %.100s",
              failure->host);
}

/* A file in /dev/shm that finds no room ends its writer with SIGBUS. */
static void add_bus(struct ct_failure *failure)
{
    struct statvfs info;
    char free_text[FACTS_SIZE_MAX];
    uint64_t bytes;

    if (statvfs("/dev/shm", &info) < 0)
        return;
    bytes = (uint64_t)info.f_bavail * info.f_frsize;
    facts_format_size(free_text, bytes);
    if (bytes < SHM_FULL_BYTES)
        facts_add(failure, "likely", "/dev/shm is full: %s free", free_text);
}

static void add_signal(struct ct_failure *failure, const struct evidence *evidence)
{
    char core[LINE_MAX_BYTES];

    if (failure->code == SIGKILL) {
        add_kill(failure, evidence);
        return;
    }
    if (failure->code == SIGBUS)
        add_bus(failure);
    core_file_find(core, sizeof core, failure->pid, failure->code,
                   WCOREDUMP(evidence->status) != 0, evidence->has_core_raised,
                   evidence->program);
    facts_add(failure, "core", "%s", core);
}

void evidence_add(struct ct_failure *failure, const struct evidence *evidence)
{
    switch ((enum ct_cause)failure->cause) {
    case CT_CAUSE_OOM: add_oom(failure, evidence); break;
    case CT_CAUSE_SIGNAL: add_signal(failure, evidence); break;
    case CT_CAUSE_EXIT:
        if (*evidence->oom_proof)
            facts_add(failure, "proof",
                      "a process of this job was killed for memory: %s",
                      evidence->oom_proof);
        break;
    case CT_CAUSE_NONE:
    case CT_CAUSE_EXEC:
    case CT_CAUSE_STOPPED:
    case CT_CAUSE_NODE_LOST:
    case CT_CAUSE_UNKILLABLE:
    case CT_CAUSE_JOIN_TIMEOUT:
    case CT_CAUSE_AGENT:
    case CT_CAUSE_HANG:
    case CT_CAUSE_EARLY:
    case CT_CAUSE_UNREACHABLE: return;
    }
    words_explain(failure);
}
