/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/run_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <mntent.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "agent/process/raw.h"
#include "agent/process/slurm_step.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    RUN_CGROUP_LINE_MAX = 4096,
    RUN_CGROUP_EMPTY_TRIES =
        55, /* half a second: killed processes take a moment to end */
    RUN_CGROUP_PAUSE_FIRST_NS = 200 * 1000,
    RUN_CGROUP_PAUSE_MAX_NS = 10 * 1000 * 1000,
    RUN_CGROUP_NEST_MAX =
        16, /* levels of a ctrun in a worker of a ctrun; two in practice */
};

static struct {
    char path[PATH_MAX]; /* empty: there is none */
    int directory;
    volatile bool has_killed;
    int procs; /* cgroup.procs */
    int kill;  /* cgroup.kill */
} run_cgroup = {.directory = -1, .procs = -1, .kill = -1};

/* ---- Finding the cgroup ------------------------------------------------------------------ */

/* Called only where needed: the list of mounts is long. */
static bool find_mount(char *dst, size_t size)
{
    static const char *const usual[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    bool is_found = false;
    struct statfs info;
    struct mntent *entry;
    FILE *file;

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (statfs(usual[i], &info) == 0 && info.f_type == CGROUP2_SUPER_MAGIC)
            return ct_copy(dst, size, usual[i]) >= 0;
    file = setmntent("/proc/self/mounts", "re");
    while (file && !is_found && (entry = getmntent(file)))
        is_found = strcmp(entry->mnt_type, "cgroup2") == 0 &&
                   ct_copy(dst, size, entry->mnt_dir) >= 0;
    if (file)
        (void)endmntent(file);
    return is_found;
}

/* The line "0::/path". */
static bool find_membership(char *dst, size_t size)
{
    char text[4 * RUN_CGROUP_LINE_MAX]; /* with version 1, a line for each controller */
    const char *path;

    (void)ct_small_file_read(text, sizeof text, "/proc/self/cgroup");
    path = ct_small_file_find(text, "0::");
    return path && *path == '/' &&
           ct_format(dst, size, "%.*s", (int)strcspn(path, "\n"), path) >= 0;
}

/* ---- Cgroups of killed runs -------------------------------------------------------------- */

static int open_in(const char *directory, const char *name)
{
    char path[PATH_MAX];

    return ct_format(path, sizeof path, "%s/%s", directory, name) < 0
               ? -1
               : open(path, O_WRONLY | O_CLOEXEC);
}

/* Removes the cgroups of ctruns that workers had started and that were killed with them. */
static void remove_below(const char *path, int nest)
{
    DIR *directory = nest < RUN_CGROUP_NEST_MAX ? opendir(path) : NULL;
    const struct dirent *entry;
    char below[PATH_MAX];

    while (directory && (entry = readdir(directory)))
        if (ct_starts_with(entry->d_name, "ctrun-") &&
            ct_format(below, sizeof below, "%s/%s", path, entry->d_name) >= 0) {
            remove_below(below, nest + 1);
            (void)rmdir(below); /* busy: removed by a later run */
        }
    if (directory)
        (void)closedir(directory);
}

/* A cgroup whose last process was killed is busy for a moment, mostly a short one. */
static bool remove_empty(const char *path)
{
    struct timespec pause = {.tv_nsec = RUN_CGROUP_PAUSE_FIRST_NS};

    for (int i = 0; i < RUN_CGROUP_EMPTY_TRIES; i++) {
        if (rmdir(path) == 0 || errno != EBUSY)
            return true;
        remove_below(path, 0);
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < RUN_CGROUP_PAUSE_MAX_NS)
            pause.tv_nsec *= 2;
    }
    return false;
}

/* Where pids and start times mean the same: a process in another time namespace counts from another zero. */
static unsigned long long read_namespace(void)
{
    struct stat status;
    const unsigned long long time = stat("/proc/self/ns/time", &status) == 0
                                        ? status.st_ino
                                        : 0;

    return time << 32 ^ ct_small_file_pid_namespace();
}

static void reap_stale(const char *parent, const char *name)
{
    unsigned long long namespace, started;
    char path[PATH_MAX];
    long pid;
    int fd;

    if (sscanf(name, "ctrun-%llu-%ld-%llu", &namespace, &pid, &started) != 3 ||
        namespace != read_namespace() ||
        !ct_small_file_has_ended((pid_t)pid, started) ||
        ct_format(path, sizeof path, "%s/%s", parent, name) < 0)
        return;
    if (rmdir(path) == 0)
        return; /* no process was in it */
    ct_info(
        "an earlier ctrun (pid %ld) was killed: killing the processes that its workers "
        "left cgroup=%s",
        pid, path);
    if ((fd = open_in(path, "cgroup.kill")) >= 0) {
        (void)!write(fd, "1", 1);
        close(fd);
    }
    if (!remove_empty(path)) /* another run has removed it: fine */
        ct_warn("the cgroup of an earlier ctrun could not be removed cgroup=%s", path);
}

static void reap_all_stale(const char *parent)
{
    DIR *directory = opendir(parent);
    const struct dirent *entry;

    while (directory && (entry = readdir(directory)))
        if (ct_starts_with(entry->d_name, "ctrun-"))
            reap_stale(parent, entry->d_name);
    if (directory)
        (void)closedir(directory);
}

/* ---- The cgroup of the run -------------------------------------------------------------- */

void run_cgroup_open(void)
{
    char root[PATH_MAX], own[RUN_CGROUP_LINE_MAX], parent[PATH_MAX];
    const uint64_t started = ct_small_file_started(getpid());

    if (started == 0 || ct_small_file_is_foreign() ||
        slurm_step_is_of_srun(getenv("SLURM_STEP_ID")) ||
        !find_mount(root, sizeof root) || !find_membership(own, sizeof own) ||
        ct_format(parent, sizeof parent, "%s%s", root, strcmp(own, "/") ? own : "") < 0)
        return;
    reap_all_stale(parent);
    if (ct_format(run_cgroup.path, sizeof run_cgroup.path, "%s/ctrun-%llu-%d-%" PRIu64,
                  parent, read_namespace(), getpid(), started) < 0 ||
        mkdir(run_cgroup.path, 0755) < 0) {
        run_cgroup.path[0] = '\0';
        return;
    }
    run_cgroup.directory = open(run_cgroup.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    run_cgroup.procs = open_in(run_cgroup.path, "cgroup.procs");
    run_cgroup.kill = open_in(run_cgroup.path, "cgroup.kill"); /* since Linux 5.14 */
    if (run_cgroup.procs < 0 || run_cgroup.kill < 0)
        run_cgroup_close();
}

/* A child that is born in the cgroup costs nothing. Moving a child there makes the kernel wait
 * for all processors: a few milliseconds per worker, one after the other. But Linux (seen on
 * 6.18) kills a child at once that is born in a cgroup which was killed at any time before: such
 * children are moved. */
int run_cgroup_directory(void)
{
    return run_cgroup.has_killed ? -1 : run_cgroup.directory;
}

void run_cgroup_enter(void)
{
    if (run_cgroup.procs >= 0) /* refused: continue as without a cgroup */
        (void)raw_call(SYS_write, run_cgroup.procs, raw_pointer("0"), 1, 0);
}

bool run_cgroup_kill(void)
{
    run_cgroup.has_killed = true;
    return run_cgroup.kill >= 0 && write(run_cgroup.kill, "1", 1) == 1;
}

void run_cgroup_close(void)
{
    ct_close(&run_cgroup.procs);
    ct_close(&run_cgroup.kill);
    ct_close(&run_cgroup.directory);
    run_cgroup.directory = run_cgroup.procs = run_cgroup.kill = -1;
    if (run_cgroup.path[0] && !remove_empty(run_cgroup.path))
        ct_debug("cgroup left behind path=%s", run_cgroup.path);
    run_cgroup.path[0] = '\0';
}
