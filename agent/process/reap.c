/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over /proc in ascending pid order: a parent is nearly always seen before its children, so
 * that one set of known pids, filled on the way, finds the whole tree. Once pids have begun again at
 * the bottom, a child may have a lower one than its parent: then there is another pass. Whatever a
 * pass misses is an orphan, hence a child of ours, when its parents are dead. Files named
 * "children" would be quicker, but many kernels are built without them. */
#include "agent/process/reap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/process/run_cgroup.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/kernel.h"
#include "worker_sdk/base/small_file.h"

enum {
    REAP_TREE_MAX = 2048,  /* pids known in one pass; the rest is found in the next */
    REAP_STAT_BYTES = 512, /* the fields we want end before */
    FIRST_AFTER_SESSION = 7,
    START_FIELD = 22, /* proc(5) */
    REAP_PAUSE_FIRST_NS = 200 * 1000,
    REAP_PAUSE_MAX_NS = 10 * 1000 * 1000,
};

struct reap_tree {
    int count;
    pid_t pids[REAP_TREE_MAX];
};

/* The kernel's struct of getdents64(2); libc has none. */
struct reap_dirent {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static bool has_pid(const pid_t *pids, int count, pid_t pid)
{
    for (int i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

/* A decimal number at *text, which moves behind it and one blank. */
static pid_t take_number(const char **text)
{
    pid_t value = 0;

    while (**text >= '0' && **text <= '9')
        value = value * 10 + (*(*text)++ - '0');
    if (**text == ' ')
        (*text)++;
    return value;
}

/* In the fields that follow the session. */
static uint64_t take_started(const char *at)
{
    uint64_t value = 0;

    for (int field = FIRST_AFTER_SESSION; at && field < START_FIELD; field++)
        at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    for (; at && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

bool reap_look(pid_t pid, struct reap_process *out)
{
    char text[REAP_STAT_BYTES];
    const char *at = ct_small_file_stat(text, sizeof text, pid, 0);

    if (!at || at[1] != ' ')
        return false;
    out->pid = pid;
    out->state = *at;
    at += 2;
    out->parent = take_number(&at);
    out->group = take_number(&at);
    out->session = take_number(&at);
    out->started = take_started(at);
    return out->state != 'Z' && out->state != 'X';
}

struct scan {
    struct reap_tree tree;
    const struct reap_keep *keep;
    reap_visit_fn *visit;
    void *context;
    int visits;
    bool is_unordered; /* a process was passed over whose parent comes later */
};

static void scan_pid(struct scan *scan, pid_t pid)
{
    struct reap_process process;

    if ((scan->keep && has_pid(scan->keep->pids, scan->keep->count, pid)) ||
        has_pid(scan->tree.pids, scan->tree.count, pid) || !reap_look(pid, &process))
        return;
    if (!has_pid(scan->tree.pids, scan->tree.count, process.parent)) {
        scan->is_unordered |= process.parent > pid;
        return;
    }
    if (scan->tree.count < REAP_TREE_MAX)
        scan->tree.pids[scan->tree.count++] = pid;
    scan->visits++;
    scan->visit(scan->context, &process);
}

static void scan_all(struct scan *scan, int fd)
{
    _Alignas(struct reap_dirent) char entries[4096];
    long length;

    while ((length = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
        for (long at = 0; at < length;) {
            const struct reap_dirent *entry = (const void *)(entries + at);
            const char *name = entry->name;

            if (*name >= '1' && *name <= '9')
                scan_pid(scan, take_number(&name));
            at += entry->length;
        }
    }
}

int reap_scan(const struct reap_keep *keep, reap_visit_fn *visit, void *context)
{
    struct scan scan;
    int known;
    int fd;

    if (ct_small_file_is_foreign())
        return -ESRCH; /* those numbers are other processes here */
    if ((fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -errno;
    scan.tree.count = 1;
    scan.tree.pids[0] = getpid();
    scan.keep = keep;
    scan.visit = visit;
    scan.context = context;
    scan.visits = 0;
    do {
        known = scan.tree.count;
        scan.is_unordered = false;
        scan_all(&scan, fd);
    } while (scan.is_unordered && scan.tree.count > known &&
             scan.tree.count < REAP_TREE_MAX && lseek(fd, 0, SEEK_SET) == 0);
    close(fd);
    return scan.visits;
}

bool reap_is_childless(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

static void note_child(void *context, const struct reap_process *process)
{
    struct reap_keep *keep = context;
    const int max = (int)(sizeof keep->pids / sizeof *keep->pids);

    if (process->parent == getpid() && keep->count < max)
        keep->pids[keep->count++] = process->pid;
}

void reap_note_children(struct reap_keep *keep)
{
    keep->count = 0;
    if (!reap_is_childless()) /* nearly always: then /proc need not be read */
        (void)reap_scan(NULL, note_child, keep);
}

/* The descriptor stands for one process: what it was is asked after it was opened. */
void reap_kill(const struct reap_process *process)
{
    const int fd = ct_pidfd_open(process->pid);
    struct reap_process now;

    if (reap_look(process->pid, &now) && now.started == process->started &&
        (fd < 0 || (ct_pidfd_send_signal(fd, SIGKILL) < 0 && errno != ESRCH)))
        (void)kill(process->pid, SIGKILL); /* without descriptors, or in a sandbox */
    if (fd >= 0)
        close(fd);
}

static void kill_process(void *context, const struct reap_process *process)
{
    struct reap_process *last = context;

    reap_kill(process);
    *last = *process;
}

int reap_kill_all(const struct reap_keep *keep, uint64_t timeout_ms,
                  struct reap_process *survivor)
{
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms);
    struct timespec pause = {.tv_nsec = REAP_PAUSE_FIRST_NS};
    int left;

    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (reap_is_childless())
            return 0;
        (void)run_cgroup_kill();
        left = reap_scan(keep, kill_process, survivor);
        /* Nothing to kill, but a child: a zombie that is reaped in a moment, or kept ones. */
        if (left == 0 && keep && keep->count > 0)
            return 0;
        if (ct_left_ms(deadline_ms) == 0)
            return left > 0 ? left : 1;
        (void)nanosleep(&pause,
                        NULL); /* the kernel needs a moment to reap_stale them */
        if (pause.tv_nsec < REAP_PAUSE_MAX_NS)
            pause.tv_nsec *= 2;
    }
}
