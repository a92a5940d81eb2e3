/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/failure_evidence.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/postmortem/core_file.h"
#include "agent/postmortem/crash.h"
#include "agent/postmortem/failure_hints.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/interpreter.h"
#include "agent/postmortem/kmsg.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    SHM_FULL_BYTES = 16 << 20, /* less than one segment of NCCL or of a data loader */
    LINE_MAX_BYTES = 320,
    /* A process that holds a terabyte needs this time to end after it was killed. */
    OOM_FRESH_MS = 60000,
    /* The kernel kills first and writes to its log then; we may see the end before. */
    OOM_LOG_LAG_MS = 1000
};

/* Adds how the worker's memory grew before. */
static void add_memory(struct ct_failure *failure,
                       const struct failure_evidence *evidence)
{
    const uint64_t limit = oom_counter_get_limit(evidence->cgroup, NULL);
    char curve[MEMORY_TEXT_MAX];
    char limit_text[FACTS_SIZE_MAX];

    memory_format(curve, evidence->memory, evidence->peak_bytes / 1024, ct_now_ms());
    facts_format_size(limit_text, limit);
    if (*curve && limit != UINT64_MAX)
        facts_add(failure, CT_FACT_MEMORY, "rank %d %s (limit %s)", failure->rank,
                  curve, limit_text);
    else if (*curve)
        facts_add(failure, CT_FACT_MEMORY, "rank %d %s", failure->rank, curve);
    if (*evidence->larger)
        facts_add(failure, CT_FACT_LARGER,
                  "%s: the kernel does not always kill the largest", evidence->larger);
}

static void emit_memory(const struct ct_failure *failure,
                        const struct failure_evidence *evidence)
{
    const int count = memory_count(evidence->memory);
    const uint64_t limit = oom_counter_get_limit(evidence->cgroup, NULL);
    char list[MEMORY_SAMPLES * 12 + 3] = "[";

    for (int i = 0; i < count; i++)
        (void)ct_append(list, sizeof list, "%s%u", i ? "," : "",
                        memory_get(evidence->memory, i));
    (void)ct_append(list, sizeof list, "]");
    ct_event_emit(
        "worker_memory", CT_INT("generation", failure->generation),
        CT_INT("rank", failure->rank), CT_INT("worker_pid", failure->pid),
        CT_INT("every_ms", MEMORY_EVERY_MS), CT_RAW("kib", list),
        CT_INT("peak_kib", evidence->peak_bytes / 1024),
        CT_INT("limit_kib", limit == UINT64_MAX ? -1 : (int64_t)(limit / 1024)));
}

bool failure_evidence_is_oom(const struct failure_evidence *evidence, pid_t pid)
{
    char line[LINE_MAX_BYTES];
    bool has_other;

    if (!*evidence->oom_proof)
        return false;
    if (evidence->seen_ms <= evidence->oom_seen_ms + OOM_LOG_LAG_MS ||
        kmsg_find_kill(line, sizeof line, pid, evidence->started_ms, &has_other))
        return true;
    return !has_other && evidence->seen_ms <= evidence->oom_seen_ms + OOM_FRESH_MS;
}

/* The counter of the cgroup is the proof; the kernel's log, which may be closed to this user,
 * only adds to it. */
static void add_oom(struct ct_failure *failure, const struct failure_evidence *evidence)
{
    char kernel[LINE_MAX_BYTES] = "";
    char limit[LINE_MAX_BYTES] =
        "no cgroup limit is visible here: the memory of the machine, or a limit "
        "outside of this container, is used up";
    char peak[FACTS_SIZE_MAX];
    bool has_other;

    facts_format_size(peak, evidence->peak_bytes);
    (void)oom_counter_describe_limit(evidence->cgroup, limit, sizeof limit);
    facts_add(failure, CT_FACT_LIMIT, "%s; rank %d held %s", limit, failure->rank,
              peak);
    add_memory(failure, evidence);
    emit_memory(failure, evidence);
    (void)kmsg_find_kill(kernel, sizeof kernel, failure->pid, evidence->started_ms,
                         &has_other);
    facts_add(failure, CT_FACT_PROOF, "%s%s%s%s", evidence->oom_proof,
              *kernel ? "; kernel: \"" : "", kernel, *kernel ? "\"" : "");
}

/* ulimit -t sets the hard limit as well, at which the kernel sends SIGKILL. For the limit the
 * kernel counts each tick as a whole one; /proc has the real time, which may be a quarter less
 * beside processes that often sleep and wake up, and 0.1 s less with few ticks. So such times
 * count as over the limit. */
static bool is_over_cpu_limit(const struct failure_evidence *evidence, rlim_t *limit_s)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_CPU, &limit) < 0 || limit.rlim_max == RLIM_INFINITY)
        return false;
    *limit_s = limit.rlim_max;
    return (evidence->cpu_ms + 100) / 750 >= limit.rlim_max;
}

/* What a SIGKILL that we did not send was, or was not. */
static void add_kill(struct ct_failure *failure,
                     const struct failure_evidence *evidence)
{
    rlim_t limit_s;

    if (is_over_cpu_limit(evidence, &limit_s)) {
        facts_add(failure, CT_FACT_LIKELY,
                  "the limit of processor time is used up (ulimit -t %llu): %.1f s",
                  (unsigned long long)limit_s, (double)evidence->cpu_ms / 1000);
        facts_add(failure, CT_FACT_DO,
                  "raise it; login nodes have such limits: run in a job");
        return;
    }
    if (*evidence->oom_proof)
        facts_add(
            failure, CT_FACT_BECAUSE,
            "probably not the OOM killer, which ended another process of this cgroup "
            "before (%s); it is unknown which process sent the signal",
            evidence->oom_proof);
    else if (evidence->cgroup->has_count && !evidence->cgroup->cgroup.is_own)
        facts_add(
            failure, CT_FACT_BECAUSE,
            "it is unknown whether it was the OOM killer (the worker's own cgroup "
            "is not visible here, only %.100s above it) and which process sent "
            "the signal",
            cgroup_path_name(&evidence->cgroup->cgroup));
    else if (evidence->cgroup->has_count)
        facts_add(failure, CT_FACT_BECAUSE,
                  "not the OOM killer (oom_kill of cgroup %.100s has not grown); it is "
                  "unknown which process sent the signal",
                  cgroup_path_name(&evidence->cgroup->cgroup));
    else
        facts_add(failure, CT_FACT_BECAUSE,
                  "it is unknown whether it was the OOM killer (no memory cgroup is "
                  "visible) and which process sent the signal");
    facts_add(failure, CT_FACT_DO,
              "journalctl -k; ask the administrator whether jobs are killed on %.100s",
              failure->host);
}

/* When /dev/shm is full, SIGBUS ends a process that writes to a file there. True when that was
 * the reason. Checked after the death: if space has been freed since, the reason is not found. */
static bool add_bus(struct ct_failure *failure)
{
    struct statvfs info;
    char free_text[FACTS_SIZE_MAX];
    uint64_t bytes;

    if (statvfs("/dev/shm", &info) < 0)
        return false;
    bytes = (uint64_t)info.f_bavail * info.f_frsize;
    facts_format_size(free_text, bytes);
    if (bytes >= SHM_FULL_BYTES)
        return false;
    facts_add(failure, CT_FACT_LIKELY, "/dev/shm is full: %s free", free_text);
    facts_add(failure, CT_FACT_DO,
              "docker run --shm-size=1g; Kubernetes: an emptyDir of medium Memory "
              "there; remove files of other jobs");
    return true;
}

/* True when the facts explain the signal. */
static bool add_signal(struct ct_failure *failure,
                       const struct failure_evidence *evidence)
{
    char core[LINE_MAX_BYTES];
    const bool is_passed = failure->code == evidence->passed_signal;
    bool is_explained = is_passed;

    if (is_passed)
        facts_add(
            failure, CT_FACT_BECAUSE,
            "ctrun passed the signal on to the worker (ctrunctl signal, or a signal "
            "sent to ctrun)");
    else if (failure->code == SIGKILL)
        add_kill(failure, evidence);
    if (failure->code == SIGKILL)
        return true;
    is_explained |= failure->code == SIGBUS && add_bus(failure);
    core_file_find(core, sizeof core, failure->pid, failure->code,
                   WCOREDUMP(evidence->status) != 0, evidence->has_core_raised,
                   evidence->program);
    facts_add(failure, CT_FACT_CORE, "%s", core);
    return is_explained;
}

struct kernel_walk {
    const struct failure_evidence *evidence;
    char unknown
        [LINE_MAX_BYTES]; /* the first line about a GPU that may be another job's */
};

/* "NVRM: Xid (PCI:0000:3b:00): 79, ..." names a GPU of the machine, which may be another job's. */
static bool is_own_hardware(void *context, const char *line)
{
    struct kernel_walk *walk = context;
    const struct failure_evidence *evidence = walk->evidence;
    const char *at = strstr(line, "NVRM: Xid (");
    char pci[16] = "";
    int answer = -1;

    if (!failure_hints_is_hardware(line))
        return false;
    if (!at)
        return true;
    at += strlen("NVRM: Xid (");
    (void)sscanf(at + (ct_starts_with(at, "PCI:") ? strlen("PCI:") : 0),
                 "%15[0-9a-fA-F:]", pci);
    if (evidence->may_use_gpu && *pci)
        answer = evidence->may_use_gpu(evidence->env, pci);
    if (answer < 0 && !*walk->unknown)
        (void)ct_format(walk->unknown, sizeof walk->unknown, "%.150s", line);
    return answer > 0;
}

void failure_evidence_add_kernel(struct ct_failure *failure,
                                 const struct failure_evidence *evidence, int fd)
{
    struct kernel_walk walk = {.evidence = evidence};
    char line[LINE_MAX_BYTES];

    if (kmsg_find_line(fd, line, sizeof line, evidence->started_ms, is_own_hardware,
                       &walk))
        facts_add(failure, CT_FACT_HARDWARE, "%s", line);
    else if (*walk.unknown) /* no evidence against this node */
        facts_add(failure, CT_FACT_BECAUSE,
                  "perhaps \"%s\" in the kernel's log; it is not known whether rank %d "
                  "could use that GPU",
                  walk.unknown, failure->rank);
}

/* GPU and InfiniBand drivers write errors to the kernel's log, not to the program. Only on a
 * machine with such devices, and where the log may be read. */
static void add_kernel_words(struct ct_failure *failure,
                             const struct failure_evidence *evidence)
{
    int fd;

    if (ct_facts_find(&failure->facts, CT_FACT_HARDWARE) ||
        (access("/dev/nvidiactl", F_OK) < 0 &&
         access("/sys/class/infiniband", F_OK) < 0) ||
        (fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        return;
    failure_evidence_add_kernel(failure, evidence, fd);
    close(fd);
}

/* Runs on the node of the worker, right after its end was seen: its /proc is gone; its cgroup,
 * files and streams are still there. Causes other than the end of a program need no evidence. */
void failure_evidence_add(struct ct_failure *failure,
                          const struct failure_evidence *evidence)
{
    bool is_named = false;

    switch ((enum ct_cause)failure->cause) {
    case CT_CAUSE_OOM: add_oom(failure, evidence); break;
    case CT_CAUSE_SIGNAL: is_named = add_signal(failure, evidence); break;
    case CT_CAUSE_EXIT:
        if (*evidence->oom_proof)
            facts_add(failure, CT_FACT_PROOF,
                      "the kernel's OOM killer ended a process of this cgroup: %s",
                      evidence->oom_proof);
        if (failure->code == CT_EXIT_NOT_FOUND &&
            interpreter_explain_crlf(failure, evidence->program))
            return;
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
    case CT_CAUSE_ENDED:
    case CT_CAUSE_UNREACHABLE:
    case CT_CAUSE_RAISED: return;
    }
    if (evidence->crash_record >= 0)
        is_named |= crash_explain(failure, evidence->crash_record);
    failure_hints_add(failure, is_named, evidence->last_lines);
    add_kernel_words(failure, evidence);
}
