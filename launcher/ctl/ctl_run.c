/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ctl/ctl_run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    RUNS_MAX = 256
};

/* ---- All runs ---------------------------------------------------------------------------- */

/* An agent that was asked. */
struct asked {
    struct ctl_run run;
    int fd; /* -1: it has answered, or failed */
    struct ct_buf in, text;
    int rc;
    struct ctrun_error err;
};

/* All agents are asked at once and have one limit together: any process of the folder's owner may be silent. */
struct search {
    struct ctl_runs *runs;
    struct asked *asked; /* RUNS_MAX at most */
    size_t asked_count;
    uint64_t deadline_ms;
    const char *wanted;         /* NULL: all */
    const char *path;           /* the folder that is being read; borrowed */
    uid_t uid;                  /* owner of the folder */
    int silent;                 /* agents that did not answer */
    struct ctrun_error silence; /* of the last of them */
    int rc;
};

/* True when `wanted` is the run's id, its pid, or the name of its socket; for runs in containers
 * only the socket's name is unique. */
static bool is_wanted(const struct ctl_run *run, const char *wanted)
{
    const struct json_status *status = &run->status;
    char id[CT_RUN_ID_MAX] = "";
    int64_t pid;

    if (wanted && ct_copy(id, sizeof id, wanted) < 0)
        id[0] = '\0';
    ct_make_plain(id, false); /* as the run has done with its --rdzv-id */
    if (!wanted || strcmp(status->run_id, id) == 0 ||
        (ct_starts_with(run->name, wanted) &&
         strcmp(run->name + strlen(wanted), CTL_SOCKET_SUFFIX) == 0))
        return true;
    return ct_parse_i64(wanted, 1, INT32_MAX, &pid) == 0 &&
           (status->pid == pid || status->guard_pid == pid);
}

static void run_deinit(struct ctl_run *run)
{
    free(run->json);
    json_status_deinit(&run->status);
}

/* Notes what an agent has answered, or why it has not. */
static void end_ask(struct asked *asked, int rc)
{
    close(asked->fd);
    asked->fd = -1;
    if (rc == 0 && (rc = ctl_ask_make_plain(&asked->text, &asked->err)) == 0)
        rc = ctl_ask_take_status(&asked->run, &asked->text, &asked->err);
    if (rc < 0)
        ctl_ask_name(&asked->err, &asked->run);
    asked->rc = rc;
}

static void read_piece(struct asked *asked, union ct_message_room *room)
{
    const int rc = ctl_ask_read(asked->fd, &asked->in, room, &asked->text, &asked->err);

    if (rc != 0)
        end_ask(asked, rc < 0 ? rc : 0);
}

/* Reads until all have answered or the limit is over. */
static void await_answers(struct search *search, union ct_message_room *room)
{
    struct pollfd items[RUNS_MAX];
    size_t open;

    do {
        open = 0;
        for (size_t i = 0; i < search->asked_count; i++) {
            items[i] = (struct pollfd){.fd = search->asked[i].fd, .events = POLLIN};
            open += items[i].fd >= 0;
        }
        if (open == 0 ||
            poll(items, search->asked_count, ct_left_ms(search->deadline_ms)) == 0)
            break;
        for (size_t i = 0; i < search->asked_count; i++)
            if (items[i].fd >= 0 && items[i].revents)
                read_piece(&search->asked[i], room);
    } while (ct_left_ms(search->deadline_ms) > 0);
    for (size_t i = 0; i < search->asked_count; i++)
        if (search->asked[i].fd >= 0)
            end_ask(&search->asked[i], ct_fail(&search->asked[i].err, -ETIMEDOUT,
                                               "no answer: %s", strerror(ETIMEDOUT)));
}

/* Takes a run that has answered and is wanted; reports one that failed. */
static void take_asked(struct search *search, struct asked *asked)
{
    struct ctl_runs *runs = search->runs;
    const bool is_taken = asked->rc == 0 && is_wanted(&asked->run, search->wanted) &&
                          runs->count < RUNS_MAX;

    if (is_taken)
        runs->list[runs->count++] = asked->run;
    else
        run_deinit(&asked->run);
    ct_buf_deinit(&asked->in);
    ct_buf_deinit(&asked->text);
    if (asked->rc == CTRUN_E_TIMEOUT || asked->rc == -ETIMEDOUT) {
        search->silent++;
        search->silence = asked->err;
    } else if (asked->rc < 0 && asked->rc != -ECONNREFUSED && asked->rc != -ENOENT) {
        (void)ctl_fail(
            &asked->err); /* not if refused or gone: it has ended meanwhile */
    }
}

/* Takes the answers of all that were asked so far, in their order. */
static void gather(struct search *search)
{
    union ct_message_room *room = ct_zalloc(sizeof *room);

    if (room)
        await_answers(search, room);
    else
        search->rc = -ENOMEM;
    free(room);
    for (size_t i = 0; i < search->asked_count; i++) {
        if (search->asked[i].fd >= 0)
            end_ask(&search->asked[i], -ENOENT);
        take_asked(search, &search->asked[i]);
    }
    search->asked_count = 0;
}

/* Asks the agent behind one socket. */
static void visit(void *context, int dir, const char *name)
{
    struct search *search = context;
    struct asked *asked;

    (void)dir;
    if (search->rc < 0 || search->runs->count >= RUNS_MAX)
        return;
    asked = &search->asked[search->asked_count++];
    *asked = (struct asked){.run.uid = search->uid};
    ct_buf_init(&asked->in, CTL_ASK_IN_MAX_BYTES);
    ct_buf_init(&asked->text, CTL_ASK_TEXT_MAX_BYTES);
    (void)ct_copy(asked->run.dir, sizeof asked->run.dir, search->path);
    (void)ct_copy(asked->run.name, sizeof asked->run.name, name);
    asked->rc = asked->fd = ctl_ask_begin(&asked->run, &ctl_ask_status, &asked->err);
    if (search->asked_count == RUNS_MAX)
        gather(search);
}

static void report_silent(const struct search *search)
{
    struct ctrun_error err = search->silence;

    if (search->silent > 1)
        (void)ct_fail(&err, CTRUN_E_TIMEOUT, "%d agents did not answer within %d s",
                      search->silent, CTL_ASK_LIMIT_MS / 1000);
    if (search->silent > 0)
        (void)ctl_fail(&err);
}

/* A number, or a name as ls -l shows it. */
static int find_user(const struct ctl_call *call, uid_t *uid, struct ctrun_error *err)
{
    const char *text = ctl_value(call, "user");
    const struct passwd *found;
    uint64_t number;

    *uid = getuid();
    if (!text)
        return 0;
    if (ct_parse_u64(text, 0, UINT32_MAX - 1, &number) == 0)
        *uid = (uid_t)number;
    else if ((found = getpwnam(text)))
        *uid = found->pw_uid;
    else
        return ct_fail(err, CTRUN_E_USAGE,
                       "--user %s: this name is not found here; give the number that "
                       "id -u prints",
                       text);
    if (*uid != getuid() && getuid() != 0)
        return ct_fail(err, -EPERM,
                       "--user %s: only root may look at other users' runs", text);
    return 0;
}

/* Opens the folder of user `uid`. Checks its owner: root may open every folder, and another user
 * may have made a folder of that name. */
static int open_folder(const char *path, uid_t uid, struct ctrun_error *err)
{
    const int dir = ctl_dir_open(path, false, err);
    struct stat info;

    if (dir < 0 || (fstat(dir, &info) == 0 && info.st_uid == uid))
        return dir;
    close(dir);
    return ct_fail(err, -EPERM, "%.300s: does not belong to user %u", path,
                   (unsigned)uid);
}

/* True on a login or compute node of Slurm. */
static bool has_slurm(void)
{
    char path[PATH_MAX];

    return getenv("SLURM_JOB_ID") || getenv("SLURM_CONF") ||
           ct_env_find_program(path, sizeof path, environ, "srun");
}

/* Asks all agents of the folders. `why` is set if this user may not open one. */
static void search_folders(struct search *search, char paths[][PATH_MAX], int count,
                           struct ctrun_error *why)
{
    search->deadline_ms = ct_deadline_ms(CTL_ASK_LIMIT_MS);
    search->asked = ct_zalloc_array(RUNS_MAX, sizeof *search->asked);
    search->runs->list = ct_zalloc_array(RUNS_MAX, sizeof *search->runs->list);
    if (!search->asked || !search->runs->list)
        search->rc = -ENOMEM;
    for (int i = 0; i < count && search->rc == 0; i++) {
        struct ctrun_error closed;
        const int dir = open_folder(paths[i], search->uid, &closed);

        /* A folder that this user may not open is reported only if no run was found elsewhere. */
        if (dir < 0 && dir != -ENOENT)
            *why = closed;
        if (dir < 0)
            continue;
        search->path = paths[i];
        ctl_dir_walk(dir, CTL_SOCKET_SUFFIX, visit, search);
        close(dir);
    }
    gather(search);
    free(search->asked);
    report_silent(search);
}

int ctl_runs_find(struct ctl_runs *out, const struct ctl_call *call,
                  struct ctrun_error *err)
{
    char paths[CTL_DIRS_MAX][PATH_MAX];
    struct search search = {.runs = out, .wanted = ctl_value(call, "run")};
    struct ctrun_error why = {0};
    uid_t uid;
    int count;
    int rc;

    /* Zeroed first: callers deinit `out` also after an error. */
    memset(out, 0, sizeof *out);
    if ((rc = find_user(call, &uid, err)) < 0)
        return rc;
    search.uid = uid;
    count = ctl_dir_list(paths, uid);
    search_folders(&search, paths, count, &why);
    if (search.rc < 0)
        return ct_fail(err, search.rc, "%s", strerror(-search.rc));
    if (out->count > 0)
        return (int)out->count;
    if (why.code < 0)
        (void)ctl_fail(&why);
    if (search.silent)
        return ct_fail(err, CTRUN_E_TIMEOUT,
                       "no run of uid %u on this machine answers: are the agents "
                       "stopped (SIGSTOP)?",
                       (unsigned)uid);
    return ct_fail(
        err, -ESRCH,
        "no run%s%s of uid %u on this machine (looked in %.300s%s%.300s)%s",
        search.wanted ? " " : "", search.wanted ? search.wanted : "", (unsigned)uid,
        paths[0], count > 1 ? ", " : "", count > 1 ? paths[1] : "",
        has_slurm() ? "; a run in a job of Slurm: srun --jobid=JOB --overlap -N1 -n1 "
                      "-w NODE ctrunctl ..."
                    : "");
}

/* If all runs have one id, keeps the run of the container (or of the host) in which ctrunctl
 * runs. False: several runs are there, or none, or their ids differ. */
static bool keep_here(struct ctl_runs *runs)
{
    struct ctl_run *here = NULL;

    for (size_t i = 0; i < runs->count; i++) {
        struct ctl_run *run = &runs->list[i];

        if (strcmp(run->status.run_id, runs->list[0].status.run_id) != 0)
            return false;
        if (!ctl_dir_is_here(run->name, CTL_SOCKET_SUFFIX))
            continue;
        if (here)
            return false;
        here = run;
    }
    for (size_t i = 0; here && i < runs->count; i++)
        if (&runs->list[i] != here)
            run_deinit(&runs->list[i]);
    if (here) {
        runs->list[0] = *here;
        runs->count = 1;
    }
    return here;
}

/* Appends "ID (pid PID)", or the name of the socket if another run has the same id and pid. May
 * be truncated. */
static void add_name(char *dst, size_t size, const struct ctl_runs *runs, size_t index)
{
    const struct ctl_run *run = &runs->list[index];
    size_t same = 0;

    for (size_t i = 0; i < runs->count; i++)
        same += runs->list[i].status.guard_pid == run->status.guard_pid &&
                strcmp(runs->list[i].status.run_id, run->status.run_id) == 0;
    if (same > 1)
        (void)ct_append_item(dst, size, ", ", "%.*s",
                             (int)(strlen(run->name) - strlen(CTL_SOCKET_SUFFIX)),
                             run->name);
    else
        (void)ct_append_item(dst, size, ", ", "%s (pid %d)", run->status.run_id,
                             run->status.guard_pid);
}

int ctl_runs_find_one(struct ctl_runs *out, const struct ctl_call *call,
                      struct ctrun_error *err)
{
    char list[512] = "";
    int rc = ctl_runs_find(out, call, err);

    if (rc < 0 || out->count == 1 || keep_here(out))
        return rc;
    for (size_t i = 0; i < out->count; i++)
        add_name(list, sizeof list, out, i);
    return ct_fail(err, CTRUN_E_USAGE, "several runs: give --run ID or PID: %s", list);
}

void ctl_runs_deinit(struct ctl_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        run_deinit(&runs->list[i]);
    free(runs->list);
    memset(runs, 0, sizeof *runs);
}

/* ---- One request ------------------------------------------------------------------------- */

int ctl_run_take_reason(struct ct_ctl_request *request, const struct ctl_call *call,
                        struct ctrun_error *err)
{
    const char *reason = ctl_value(call, "reason");
    const int rc = reason ? ct_copy(request->reason, sizeof request->reason, reason)
                          : ct_format(request->reason, sizeof request->reason,
                                      "ctrunctl %s", call->verb->name);

    return rc < 0 ? ct_fail(err, CTRUN_E_USAGE, "--reason: at most %zu bytes",
                            sizeof request->reason - 1)
                  : 0;
}

/* Replaces control characters by blanks: all nodes print the reason on one line. */
static void make_one_line(char *reason)
{
    for (char *p = reason; *p; p++)
        if ((unsigned char)*p < ' ' || *p == '\x7f')
            *p = ' ';
}

int ctl_run_do(const struct ctl_call *call, const struct ct_ctl_request *request,
               const char *whose, const char *done)
{
    /* A copy, because the caller's request is const and the text of its reason is cleaned here. */
    struct ct_ctl_request asked = *request;
    struct ctrun_error err;
    struct ctl_runs runs;
    struct ct_buf text;
    int code = CT_EXIT_OK;

    make_one_line(asked.reason);
    ct_buf_init(&text, 4096);
    if (ctl_runs_find_one(&runs, call, &err) < 0 ||
        ctl_run_ask(&runs.list[0], &asked, &text, &err) < 0)
        code = ctl_fail(&err);
    else if (ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (done)
        printf("%srun %s %s\n", whose, runs.list[0].status.run_id, done);
    ct_buf_deinit(&text);
    ctl_runs_deinit(&runs);
    return code;
}

static int show(const struct ctl_call *call, const struct ctl_run *run,
                const struct ct_ctl_request *request, const char *key,
                const char *nothing, struct ctrun_error *err)
{
    struct ct_buf text;
    char *shown = NULL;
    int rc;

    ct_buf_init(&text, CTL_ASK_TEXT_MAX_BYTES);
    rc = ctl_run_ask(run, request, &text, err);
    if (rc == 0 && (rc = json_text_read((const char *)ct_buf_data(&text),
                                        ct_buf_length(&text), key, &shown)) < 0)
        (void)ct_fail(err, rc, "run %s: " CTL_ASK_MALFORMED, run->status.run_id);
    if (rc == 0 && ctl_value(call, "json"))
        printf("%.*s\n", (int)ct_buf_length(&text), (const char *)ct_buf_data(&text));
    else if (rc == 0 && *shown)
        fputs(shown, stdout);
    else if (rc == 0)
        printf("run %s: %s\n", run->status.run_id, nothing);
    free(shown);
    ct_buf_deinit(&text);
    return rc;
}

int ctl_run_show(const struct ctl_call *call, const struct ct_ctl_request *request,
                 const char *key, const char *nothing, const char *absent)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (ctl_runs_find_one(&runs, call, &err) < 0) {
        if (err.code == -ESRCH)
            (void)ct_append(err.text, sizeof err.text, "%s", absent); /* cut is fine */
        code = ctl_fail(&err);
    } else if (show(call, &runs.list[0], request, key, nothing, &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}
