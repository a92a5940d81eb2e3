/* SPDX-License-Identifier: Apache-2.0 */
/* Files are written by a call with a time limit: a hang often comes from a file system, perhaps the
 * one that is written to. Debuggers are started like workers, each with the file as its output, and
 * watched by their pidfds; the code that reaps children ignores them. */
#include "agent/watch/stacks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/process/spawn.h"
#include "agent/watch/live_stack.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/kernel.h"

enum {
    LINE_MAX_BYTES = 160,
    WORDS_MAX = 12
};

/* Belongs to the writing thread until the thread returns; then its descriptors are given to
 * debuggers, and it is freed. */
struct stacks_job {
    struct live_room room;
    int count, target_count;
    int fds[STACKS_MAX]; /* appended to by debuggers; -1: not opened */
    struct stacks_target *targets;
};

struct debugger {
    struct stacks *stacks;
    struct loop_watch *watch; /* NULL: ended */
    pid_t pid;
};

struct stacks {
    struct loop *loop;
    struct loop_timer *timer;
    struct debugger debuggers[STACKS_DEBUGGERS_MAX];
    int running;
    bool is_saved;
    void (*done)(void *context, bool is_saved); /* NULL: no save is running */
    void *context;
};

/* ---- What /proc says ----------------------------------------------------------------- */

static void copy_file(int to, const char *label, const char *path)
{
    char text[8192];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);

    if (fd >= 0)
        close(fd);
    if (n > 0)
        dprintf(to, "%s: %.*s%s", label, (int)n, text, text[n - 1] == '\n' ? "" : "\n");
    else
        dprintf(to, "%s: %s\n", label, n < 0 ? strerror(errno) : "nothing");
}

static void write_thread(int to, pid_t pid, const char *thread)
{
    static const struct {
        const char *label, *file;
    } facts[] = {{"name", "comm"},
                 {"in kernel", "wchan"},
                 {"system call", "syscall"},
                 {"kernel stack", "stack"}};
    char path[128];
    char stat[512];
    const char *at = ct_small_file_stat(stat, sizeof stat, pid,
                                        (pid_t)strtol(thread, NULL, 10));

    dprintf(to, "\nthread %s state %c\n", thread, at ? *at : '?');
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        (void)ct_format(path, sizeof path, "/proc/%d/task/%.20s/%s", (int)pid, thread,
                        facts[i].file);
        copy_file(to, facts[i].label, path);
    }
}

/* Writes nothing if no frame could be read: the rest of the file says what is known. */
static void write_frames(int to, const struct stacks_target *target,
                         struct live_room *room)
{
    struct ct_buf text;

    ct_buf_init(&text, STACKS_TEXT_MAX_BYTES);
    if (live_stack_write(&text, target->rank, target->pid, room) == 0)
        dprintf(to, "\n%.*s", (int)ct_buf_length(&text),
                (const char *)ct_buf_data(&text));
    ct_buf_deinit(&text);
}

static void write_process(int to, const struct stacks_target *target)
{
    char path[64];
    DIR *threads;
    int left = STACKS_THREADS_MAX;

    dprintf(to, "rank %d pid %d\n", target->rank, (int)target->pid);
    (void)ct_format(path, sizeof path, "/proc/%d/task", (int)target->pid);
    if (!(threads = opendir(path)))
        return;
    for (struct dirent *entry; left > 0 && (entry = readdir(threads));)
        if (entry->d_name[0] != '.') {
            write_thread(to, target->pid, entry->d_name);
            left--;
        }
    closedir(threads);
    dprintf(to, "\n");
}

/* Not through a link, which others may have left in the log directory. A descriptor or -1. */
static int create_file(const char *path, int flags)
{
    const int fd = open(
        path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

    if (fd < 0)
        ct_warn("%s: %s", path,
                errno == ELOOP ? "it is a symbolic link; nothing is written to it"
                               : strerror(errno));
    return fd;
}

static void write_dump(const struct stacks_target *target)
{
    const char *slash = strrchr(target->path, '/');
    char path[PATH_MAX];
    int fd;

    if (!target->dump || !slash ||
        ct_format(path, sizeof path, "%.*s/flight_recorder.json",
                  (int)(slash - target->path), target->path) < 0)
        return;
    if ((fd = create_file(path, 0)) < 0)
        return;
    dprintf(fd, "%s\n", target->dump);
    close(fd);
}

static void write_facts(void *context)
{
    struct stacks_job *job = context;

    for (int i = 0; i < job->count; i++) {
        job->fds[i] = create_file(job->targets[i].path, O_APPEND);
        if (job->fds[i] >= 0) {
            write_process(job->fds[i], &job->targets[i]);
            write_dump(&job->targets[i]);
        }
    }
}

static void write_all_frames(void *context)
{
    struct stacks_job *job = context;

    for (int i = 0; i < job->count; i++)
        if (job->fds[i] >= 0)
            write_frames(job->fds[i], &job->targets[i], &job->room);
}

static void free_targets(struct stacks_target *targets, int count)
{
    for (int i = 0; i < count; i++)
        free(targets[i].dump);
    free(targets);
}

static void free_job(void *context)
{
    struct stacks_job *job = context;

    for (int i = 0; i < job->count; i++)
        if (job->fds[i] >= 0)
            close(job->fds[i]);
    free_targets(job->targets, job->target_count);
    free(job);
}

/* ---- Debuggers ----------------------------------------------------------------------- */

/* Kills the debugger's process group: gdb may have started helpers. Its process is reaped with the
 * agent's orphans. */
static void end_save(struct stacks *stacks)
{
    /* Cleared before the call: done() may begin the next save. */
    void (*done)(void *, bool) = stacks->done;

    loop_timer_stop(stacks->timer);
    for (int i = 0; i < STACKS_DEBUGGERS_MAX; i++)
        if (stacks->debuggers[i].watch) {
            (void)kill(-stacks->debuggers[i].pid, SIGKILL);
            loop_watch_close(stacks->debuggers[i].watch);
            stacks->debuggers[i].watch = NULL;
        }
    stacks->running = 0;
    stacks->done = NULL;
    if (done)
        done(stacks->context, stacks->is_saved);
}

static void on_time(void *context)
{
    end_save(context);
}

static void on_debugger_ended(void *context, unsigned events)
{
    struct debugger *debugger = context;
    struct stacks *stacks = debugger->stacks;

    (void)events;
    loop_watch_close(debugger->watch);
    debugger->watch = NULL;
    if (--stacks->running == 0)
        end_save(stacks);
}

/* Looks at the program, not at argv, which the worker can set. */
static bool is_python(pid_t pid)
{
    char path[64];
    char program[PATH_MAX];
    ssize_t n;

    (void)ct_format(path, sizeof path, "/proc/%d/exe", (int)pid);
    n = readlink(path, program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    return strstr(program, "python") != NULL;
}

/* `spawn` reports whether execve() of the debugger worked; the debugger's output goes to the
 * file. */
static bool start_program(struct debugger *debugger, char *const *argv, int fd)
{
    const struct spawn_request request = {
        .argv = argv, .env = environ, .out = fd, .err = fd};
    struct spawn_batch batch = {.max = 1};
    struct spawn spawn;
    int pidfd;
    int rc = spawn_start(&spawn, &batch, &request, NULL);

    spawn_wait(&batch);
    if (rc == 0)
        rc = spawn_check(&spawn, &batch, NULL);
    spawn_end(&batch);
    if (rc < 0)
        return false;
    debugger->pid = spawn.pid;
    /* not reaped yet, so the pid is still the debugger's */
    pidfd = ct_pidfd_open(spawn.pid);
    if (pidfd >= 0)
        debugger->watch = loop_watch_open(debugger->stacks->loop, pidfd,
                                          on_debugger_ended, debugger);
    if (!debugger->watch) {
        (void)kill(-spawn.pid, SIGKILL);
        return false;
    }
    loop_watch_for(debugger->watch, LOOP_READ);
    return true;
}

/* Splits "gdb|-p|%d" into words; `line` has room for the pid. */
static bool start_line(struct debugger *debugger, const char *fmt, pid_t pid, int fd)
{
    char line[LINE_MAX_BYTES];
    char *argv[WORDS_MAX + 1] = {line};
    const char *at = strstr(fmt, "PID");
    int words = 1;

    (void)ct_format(line, sizeof line, "%.*s%d%s", (int)(at - fmt), fmt, (int)pid,
                    at + 3);
    for (char *p = line; *p && words < WORDS_MAX; p++)
        if (*p == '|') {
            *p = '\0';
            argv[words++] = p + 1;
        }
    return start_program(debugger, argv, fd);
}

static void start_debugger(struct stacks *stacks, pid_t pid, int fd)
{
    /* All debuggers are started in one turn of the loop: none of them can have ended and freed its
     * slot between two starts. */
    struct debugger *debugger = &stacks->debuggers[stacks->running];

    *debugger = (struct debugger){.stacks = stacks};
    if ((is_python(pid) &&
         start_line(debugger, "py-spy|dump|--nonblocking|--pid|PID", pid, fd)) ||
        start_line(debugger,
                   "gdb|-nx|-batch|-iex|set debuginfod enabled off|-p|PID|-ex|"
                   "thread apply all backtrace",
                   pid, fd))
        stacks->running++;
}

/* First what /proc has of all processes, which is saved then whatever follows: frames need files of the
 * workers, whose file system may hang. False: a thread hangs; it owns the job, with the targets, and
 * frees it when it returns. */
static bool write_files(struct stacks *stacks, struct stacks_job *job)
{
    /* No call for log files alone waits for these; and no later save of facts for frames that hang. */
    static struct blocking_lane facts, frames;
    const uint64_t deadline_ms = ct_deadline_ms(STACKS_WRITE_MS);

    if (blocking_call_in(&facts, write_facts, free_job, job, STACKS_WRITE_MS) < 0)
        return false;
    stacks->is_saved = job->count > 0 && job->fds[0] >= 0;
    return blocking_call_in(&frames, write_all_frames, free_job, job,
                            (uint64_t)ct_left_ms(deadline_ms)) == 0;
}

void stacks_save(struct stacks *stacks, struct stacks_target *targets, int count,
                 void (*done)(void *context, bool is_saved), void *context)
{
    struct stacks_job *job = ct_zalloc(sizeof *job);

    stacks->done = done;
    stacks->context = context;
    stacks->is_saved = false;
    if (!job) {
        free_targets(targets, count);
        end_save(stacks);
        return;
    }
    job->targets = targets;
    job->target_count = count;
    job->count = count < STACKS_MAX ? count : STACKS_MAX;
    for (int i = 0; i < STACKS_MAX; i++)
        job->fds[i] = -1;
    if (!write_files(stacks, job)) {
        end_save(stacks);
        return;
    }
    for (int i = 0; i < job->count && stacks->running < STACKS_DEBUGGERS_MAX; i++)
        if (job->fds[i] >= 0)
            start_debugger(stacks, job->targets[i].pid, job->fds[i]);
    free_job(job);
    if (stacks->running > 0)
        loop_timer_set(stacks->timer, STACKS_DEBUG_MS);
    else
        end_save(stacks);
}

/* ---- Life ---------------------------------------------------------------------------- */

int stacks_create(struct stacks **out, struct loop *loop)
{
    struct stacks *stacks = ct_zalloc(sizeof *stacks);

    if (!stacks)
        return -ENOMEM;
    stacks->loop = loop;
    if (!(stacks->timer = loop_timer_open(loop, on_time, stacks))) {
        free(stacks);
        return -ENOMEM;
    }
    *out = stacks;
    return 0;
}

void stacks_cancel(struct stacks *stacks)
{
    stacks->done = NULL;
    end_save(stacks);
}

void stacks_destroy(struct stacks *stacks)
{
    if (!stacks)
        return;
    stacks_cancel(stacks);
    loop_timer_close(stacks->timer);
    free(stacks);
}
