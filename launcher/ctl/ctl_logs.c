/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl logs: prints the files of the current attempt, with -f also later output and
 * attempts.
 *
 * The agent sends the file names once; the bytes are read from the files. inotify reports new
 * bytes, and a new attempt by its folder in the run's folder; the agent's pidfd reports the end. */
#include <errno.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "launcher/ctl/ctl_run.h"
#include "launcher/ctl/log_follow.h"
#include "agent/error_file/json.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/kernel.h"

enum {
    LINE_MAX_BYTES = 64 * 1024, /* longer lines are printed in pieces */
    ASK_AGAIN_MS = 200,         /* a new attempt's folder is made before its files */
};

static const struct ctl_option options[] = {
    {.name = "follow",
     .letter = 'f',
     .help = "continue with new lines, until the run ends"},
    {.name = "tail",
     .letter = 'n',
     .value = "N",
     .help = "begin with the last N lines of each file"},
    CTL_RANK,
    CTL_OF_RUN};

struct log_file {
    int fd;
    int rank;
    const char *stream;
    char path[PATH_MAX];
    struct ct_buf rest; /* an incomplete line */
};

struct logs {
    struct ctl_run *run;
    struct log_file *list;
    size_t count;
    const struct log_file *last; /* printed last */
    uint64_t generation;
    int rank; /* -1: all */
    int tail; /* first print so many last lines of each file; -1: all */
    bool is_json;
    int notify;
    int attempts; /* inotify watch of the run's folder */
};

/* Closes the files of an attempt. Their inotify watches stay: an event of an old file only causes
 * one read of the current files. */
static void drop_files(struct logs *logs)
{
    for (size_t i = 0; i < logs->count; i++) {
        ct_close(&logs->list[i].fd);
        ct_buf_deinit(&logs->list[i].rest);
    }
    free(logs->list);
    logs->list = NULL;
    logs->count = 0;
    logs->last = NULL;
}

/* ---- Printing ---------------------------------------------------------------------------- */

/* With several files prints headings as tail(1) does. */
static void print_piece(struct logs *logs, const struct log_file *file,
                        const char *text, size_t length)
{
    if (logs->is_json) {
        printf("{\"rank\":%d,\"stream\":\"%s\",\"line\":", file->rank, file->stream);
        json_print_text(stdout, text);
        fputs("}\n", stdout);
        return;
    }
    if (logs->last != file && logs->count > 1)
        printf("%s==> rank %d %s: %s <==\n", logs->last ? "\n" : "", file->rank,
               file->stream, file->path);
    logs->last = file;
    (void)fwrite(text, 1, length, stdout);
}

/* A zero byte, which would end the text, becomes a question mark. */
static void print_json(struct logs *logs, const struct log_file *file, const char *data,
                       size_t length)
{
    static char line[LINE_MAX_BYTES + 1];

    memcpy(line, data, length);
    for (char *zero; (zero = memchr(line, '\0', length));)
        *zero = '?';
    line[length] = '\0';
    print_piece(logs, file, line, length);
}

/* Prints complete lines; an incomplete last line only when `is_all` or when it is too long. */
static void print_lines(struct logs *logs, struct log_file *file, bool is_all)
{
    for (;;) {
        const char *data = (const char *)ct_buf_data(&file->rest);
        const size_t length = ct_buf_length(&file->rest);
        const char *end = memchr(data, '\n', length);
        size_t part = end ? (size_t)(end - data) + 1 : 0;

        if (!part && (is_all || length >= LINE_MAX_BYTES / 2))
            part = length;
        if (!part)
            return;
        if (logs->is_json)
            print_json(logs, file, data, part - (end != NULL));
        else
            print_piece(logs, file, data, part);
        ct_buf_consume(&file->rest, part);
    }
}

/* Opens only files of the run's owner: the agent of another user could name any file, and root
 * may read all files. */
static int follow_next(const struct logs *logs, struct log_file *file)
{
    const uid_t owner = logs->run->uid;

    return log_follow_next(&file->fd, file->path,
                           owner == getuid() ? LOG_FOLLOW_ANYBODY : owner);
}

/* True when there is more to read: mostly, the file was renamed for its size and a new one
 * opened. */
static bool take_next(const struct logs *logs, struct log_file *file)
{
    if (logs->notify < 0 || follow_next(logs, file) != 1)
        return false;
    (void)inotify_add_watch(logs->notify, file->path, IN_MODIFY | IN_MOVE_SELF);
    return true;
}

/* Reads every file to its end, then the file that replaced it, and so on. A rename can happen
 * between read() and take_next(), which looks at the size once more for that reason. */
static void drain(struct logs *logs, bool is_all)
{
    for (size_t i = 0; i < logs->count; i++) {
        struct log_file *file = &logs->list[i];
        uint8_t *at;
        ssize_t n;

        do {
            while (file->fd >= 0 &&
                   ct_buf_reserve(&file->rest, LINE_MAX_BYTES / 4, &at) == 0 &&
                   (n = read(file->fd, at, LINE_MAX_BYTES / 4)) > 0) {
                ct_buf_commit(&file->rest, (size_t)n);
                print_lines(logs, file, false);
            }
        } while (take_next(logs, file));
        print_lines(logs, file, is_all);
    }
    (void)fflush(stdout);
}

/* ---- Files ------------------------------------------------------------------------------- */

/* Sets two watches before the file is opened, so that no byte and no rename is missed. The folder's
 * watch reports that a file which did not exist, or the next file after a rename, was made. */
static void watch_file(const struct logs *logs, const char *path)
{
    char folder[PATH_MAX];
    char *slash;

    if (logs->notify < 0)
        return;
    (void)ct_copy(folder, sizeof folder, path);
    if ((slash = strrchr(folder, '/')))
        *slash = '\0';
    (void)inotify_add_watch(logs->notify, folder, IN_CREATE | IN_ONLYDIR);
    (void)inotify_add_watch(logs->notify, path, IN_MODIFY | IN_MOVE_SELF);
}

static int add_file(struct logs *logs, int rank, const char *stream, const char *path,
                    struct ctrun_error *err)
{
    struct log_file *file = ct_realloc_array(logs->list, logs->count + 1, sizeof *file);
    int rc;

    if (!file)
        return ct_fail(err, -ENOMEM, "out of memory");
    logs->list = file;
    file = &logs->list[logs->count];
    *file = (struct log_file){.rank = rank, .stream = stream};
    (void)ct_copy(file->path, sizeof file->path, path);
    file->fd = -1; /* nothing is written yet */
    ct_buf_init(&file->rest, LINE_MAX_BYTES);
    logs->count++;
    watch_file(logs, path);
    rc = follow_next(logs, file);
    if (rc == 1 && logs->tail >= 0)
        rc = log_follow_tail(file->fd, logs->tail);
    return rc < 0 ? ct_fail(err, rc, "%s: %s", path, strerror(-rc)) : 0;
}

/* Watches the folder of all attempts: BASE/RUN of BASE/RUN/attempt_N/LOCAL_RANK/stdout.log. */
static void watch_attempts(struct logs *logs)
{
    char path[PATH_MAX];

    if (logs->notify < 0 || logs->count == 0)
        return;
    (void)ct_copy(path, sizeof path, logs->list[0].path);
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(path, '/');

        if (slash)
            *slash = '\0';
    }
    logs->attempts = inotify_add_watch(logs->notify, path, IN_CREATE | IN_ONLYDIR);
}

/* Closes the open files and opens those that the last status names. With tail -1 reads them from
 * the beginning. */
static int open_files(struct logs *logs, struct ctrun_error *err)
{
    const struct json_status *status = &logs->run->status;
    bool is_rank_here = false;
    int rc = 0;

    drop_files(logs);
    logs->generation = status->generation;
    for (size_t i = 0; i < status->worker_count && rc == 0; i++) {
        const struct json_worker *worker = &status->workers[i];

        if (logs->rank >= 0 && worker->rank != logs->rank)
            continue;
        is_rank_here = true;
        if (worker->out_file)
            rc = add_file(logs, worker->rank, "stdout", worker->out_file, err);
        if (rc == 0 && worker->err_file)
            rc = add_file(logs, worker->rank, "stderr", worker->err_file, err);
    }
    if (rc < 0 || logs->count > 0) {
        watch_attempts(logs);
        return rc;
    }
    if (status->worker_count == 0)
        return ct_fail(err, -ESRCH,
                       "run %s has no worker on this node now; ctrunctl status shows "
                       "what it waits for",
                       status->run_id);
    if (logs->rank >= 0 && !is_rank_here)
        return ct_fail(err, -ESRCH, "rank %d does not run on this node", logs->rank);
    return ct_fail(err, -ENOENT,
                   "run %s writes no files: start it with -r 3 (files only) or -t 3 "
                   "(files and console), and --log-dir",
                   status->run_id);
}

/* ---- Following --------------------------------------------------------------------------- */

/* Reads all queued inotify events. True when a folder was made in the run's folder. */
static bool take_news(const struct logs *logs)
{
    _Alignas(struct inotify_event) char bytes[8192];
    bool is_new = false;
    ssize_t n;

    while ((n = read(logs->notify, bytes, sizeof bytes)) > 0)
        for (char *at = bytes; at < bytes + n;) {
            const struct inotify_event *event = (const void *)at;

            is_new |= (event->mask & IN_CREATE) != 0 && event->wd == logs->attempts;
            at += sizeof *event + event->len;
        }
    return is_new;
}

/* Changes to the next attempt's files, once the agent reports them. */
static void change_attempt(struct logs *logs, bool *is_waiting)
{
    struct ctrun_error err;

    if (ctl_run_refresh(logs->run, &err) < 0 ||
        logs->run->status.generation == logs->generation ||
        logs->run->status.worker_count == 0)
        return;
    drain(logs, true);
    logs->tail = -1; /* all of the new files */
    *is_waiting = open_files(logs, &err) < 0;
}

/* Watches the agent by a pidfd and not by its socket: a pidfd never means another process, and
 * needs no request. If the agent has ended already (ESRCH), prints the rest of its files once. */
static int follow(struct logs *logs, struct ctrun_error *err)
{
    const int agent = ct_pidfd_open(logs->run->status.pid);
    struct pollfd wait[2] = {{.fd = logs->notify, .events = POLLIN},
                             {.fd = agent, .events = POLLIN}};
    bool is_waiting = false; /* a new attempt's files are not known yet */
    int rc;

    if (agent < 0 && errno != ESRCH)
        return ct_fail(err, -errno, "pid %d: %s", logs->run->status.pid,
                       strerror(errno));
    while (agent >= 0) {
        drain(logs, false);
        if (ferror(stdout))
            break; /* the reader has quit */
        rc = poll(wait, 2, is_waiting ? ASK_AGAIN_MS : -1);
        if (rc < 0 && errno != EINTR)
            break;
        if (rc > 0 && wait[1].revents)
            break; /* the run is over */
        is_waiting |= take_news(logs);
        if (is_waiting)
            change_attempt(logs, &is_waiting);
    }
    drain(logs, true);
    if (agent >= 0)
        close(agent);
    return 0;
}

static int show(const struct ctl_call *call, struct ctl_run *run,
                struct ctrun_error *err)
{
    struct logs logs = {.run = run,
                        .notify = -1,
                        .attempts = -1,
                        .is_json = ctl_value(call, "json") != NULL};
    const bool is_followed = ctl_value(call, "follow") != NULL;
    int rc = ctl_number(call, "rank", &logs.rank, err);

    if (rc == 0)
        rc = ctl_number(call, "tail", &logs.tail, err);
    if (rc == 0 && is_followed &&
        (logs.notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) < 0)
        rc = ct_fail(err, -errno, "inotify: %s", strerror(errno));
    if (rc == 0)
        rc = open_files(&logs, err);
    if (rc == 0 && is_followed)
        rc = follow(&logs, err);
    else if (rc == 0)
        drain(&logs, true);
    drop_files(&logs);
    ct_close(&logs.notify);
    return rc;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (ctl_runs_find_one(&runs, call, &err) < 0 || show(call, &runs.list[0], &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_logs = {
    .name = "logs",
    .words = "",
    .help = "print the log files of this node's workers in the current attempt\n"
            "There are files when ctrun was started with --redirects or --tee. With "
            "--json one\n"
            "object a line.",
    .options = options,
    .run = run,
};
