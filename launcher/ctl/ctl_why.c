/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl why: of a live run, what stopped its workers the last time; of a run that is over, given
 * the folder of its log files, what ended the run. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "launcher/ctl/ctl_run.h"
#include "launcher/report/json_summary.h"
#include "launcher/report/summary.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

static const struct ctl_option options[] = {
    {.name = "hang", .help = "print what each rank of a live run waits for"},
    CTL_OF_RUN};

/* ---- A run that is over ------------------------------------------------------------------ */

static bool is_file(const char *path, struct timespec *changed)
{
    struct stat info;

    if (stat(path, &info) < 0 || !S_ISREG(info.st_mode))
        return false;
    *changed = info.st_mtim;
    return true;
}

/* Finds summary.json: `path` itself, the file in a run's folder, or the newest file of the runs
 * below a --log-dir. */
static int find_summary(const char *path, char *found, size_t size)
{
    struct timespec newest = {0};
    struct timespec changed;
    char one[PATH_MAX];
    const struct dirent *entry;
    DIR *dir;

    if (is_file(path, &newest))
        return ct_copy(found, size, path);
    if (ct_format(found, size, "%s/summary.json", path) >= 0 && is_file(found, &newest))
        return 0;
    *found = '\0';
    if (!(dir = opendir(path)))
        return -errno;
    while ((entry = readdir(dir)))
        if (ct_format(one, sizeof one, "%s/%s/summary.json", path, entry->d_name) >=
                0 &&
            is_file(one, &changed) &&
            (changed.tv_sec > newest.tv_sec ||
             (changed.tv_sec == newest.tv_sec && changed.tv_nsec >= newest.tv_nsec))) {
            newest = changed;
            (void)ct_copy(found, size, one);
        }
    closedir(dir);
    return *found ? 0 : -ENOENT;
}

/* Passes the content of summary.json to the function that printed the failure report when the
 * run ended, so that both texts are the same. The file has no table of nodes that did not join:
 * `nobody` is an empty one. */
static void print_end(const struct json_summary *end)
{
    static const struct ct_waiting nobody;
    const struct json_error_file files[CT_FAILURES_MAX] = {0};
    const struct summary summary = {
        .verdict = &end->verdict,
        .name = end->program,
        .run_id = end->run_id,
        .log_dir = *end->log_dir ? end->log_dir : NULL,
        .max_restarts = end->max_restarts,
        .waiting = &nobody,
        .files = files,
        .past = &end->past,
    };
    struct messages_block block;
    char name[CT_SIGNAL_NAME_MAX];

    if (end->signal && end->allocation_ends)
        printf("run %s: ended before the end of its allocation%s%s\n", end->run_id,
               *end->message ? ": " : "", end->message);
    else if (end->signal)
        printf("run %s: ended by %s (%d)%s%s\n", end->run_id,
               ct_signal_format(name, end->signal), end->signal,
               *end->message ? ": " : "", end->message);
    else if (end->verdict.outcome == CT_OUTCOME_SUCCEEDED)
        printf("run %s: succeeded\n", end->run_id);
    else if (*end->message || end->verdict.outcome == 0)
        printf("ctrun: error[%s]: %s\n", end->error, end->message);
    else {
        summary_format(&block, &summary);
        fputs(block.text, stdout);
    }
}

static int print_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char bytes[4096];
    size_t n;

    while (file && (n = fread(bytes, 1, sizeof bytes, file)) > 0)
        (void)fwrite(bytes, 1, n, stdout);
    if (file)
        fclose(file);
    return file ? 0 : -errno;
}

static int run_over(const struct ctl_call *call)
{
    const char *where = call->words[0];
    struct json_summary *end = ct_zalloc(sizeof *end);
    struct ctrun_error err;
    char path[PATH_MAX];
    int rc = end ? find_summary(where, path, sizeof path) : -ENOMEM;

    if (rc == 0 && ctl_value(call, "json"))
        rc = print_file(path);
    else if (rc == 0 && (rc = json_summary_read(path, end)) == 0)
        print_end(end);
    if (end)
        past_failures_deinit(&end->past);
    free(end);
    if (rc == 0)
        return CT_EXIT_OK;
    (void)ct_fail(&err, rc, "%.300s: %s", where,
                  rc == -ENOENT    ? "no summary.json there: the run has not ended, or "
                                     "this is not a --log-dir of ctrun"
                  : rc == -EBADMSG ? "its summary.json is not ctrun's"
                                   : strerror(-rc));
    return ctl_fail(&err);
}

static int run(const struct ctl_call *call)
{
    const struct ct_ctl_request request = {.verb = CT_CTL_WHY, .rank = -1};
    const struct ct_ctl_request stacks = {.verb = CT_CTL_STACKS, .rank = -1};

    struct ctrun_error err;

    if (call->word_count > 0 && ctl_value(call, "hang")) {
        (void)ct_fail(&err, CTRUN_E_USAGE, "why --hang is of a live run: no FOLDER");
        return ctl_fail(&err);
    }
    return call->word_count > 0 ? run_over(call)
           : ctl_value(call, "hang")
               ? ctl_run_show(call, &stacks, "stacks", "no worker runs",
                              "; of a run that is over: ctrunctl why FOLDER, without "
                              "--hang")
               : ctl_run_show(call, &request, "why", "nothing has failed",
                              "; for a run that is over: ctrunctl why FOLDER, with "
                              "its --log-dir");
}

const struct ctl_verb ctl_why = {
    .name = "why",
    .words = "[FOLDER]",
    .word_max = 1,
    .help =
        "print the root cause of the last failure of a run\n"
        "The block that ctrun prints when such a failure ends the run: the same on "
        "all nodes.\n"
        "With FOLDER, its --log-dir or the one of the run in it, of a run that is "
        "over.\n"
        "With --hang, of a live run: for each rank with a flight recorder of PyTorch "
        "(ctrun\n"
        "--hang-timeout) the collective that it has not completed, and the stacks of "
        "all ranks.",
    .options = options,
    .run = run,
};
