/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl kv: the worker store of a run. The agent sends the store's address to the users whom it
 * serves; the rest is an ordinary client of the store. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/ctl/ctl_run.h"
#include "agent/error_file/json.h"
#include "rendezvous/net/peer_uid.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/wire/contract.h"

enum {
    OPEN_MS = 5000,
    BETWEEN_MS = 1000, /* between two rounds, when waiting does not help */
    WAIT_S = 300,      /* as PyTorch's stores */
    WAIT_MAX_S = 30 * 24 * 3600,
};

static const struct ctl_option options[] = {
    {.name = "timeout", .value = "SECONDS", .help = "limit of wait (300)"}, CTL_OF_RUN};

struct kv {
    const struct ctl_call *call;
    struct ctrun_store *store;
    bool is_json;
};

/* ---- Printing ---------------------------------------------------------------------------- */

/* As a terminal may show it: any worker may have written the value. A NUL follows it. */
static void make_plain(char *value, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (value[i] == '\0')
            value[i] = '?';
    ct_make_plain(value, true);
}

/* Changes the value. A pipe gets its bytes, a terminal no control characters. */
static void print_value(const struct kv *kv, const char *key, char *value,
                        size_t length)
{
    if (!kv->is_json) {
        if (isatty(STDOUT_FILENO))
            make_plain(value, length);
        (void)fwrite(value, 1, length, stdout);
        fputc('\n', stdout);
        return;
    }
    fputs("{\"key\":", stdout);
    json_print_text(stdout, key);
    printf(",\"bytes\":%zu,\"value\":", length);
    json_print_text(stdout, value); /* up to the first NUL */
    fputs("}\n", stdout);
}

/* ---- Actions ----------------------------------------------------------------------------- */

static int list(const struct kv *kv, struct ctrun_error *err)
{
    const char *prefix = kv->call->word_count > 1 ? kv->call->words[1] : "";
    char **keys;
    size_t count;
    bool is_first = true;
    int rc = ct_store_list_keys(kv->store, &keys, &count, err);

    if (rc < 0)
        return rc;
    fputs(kv->is_json ? "{\"keys\":[" : "", stdout);
    for (size_t i = 0; i < count; i++) {
        if (!ct_starts_with(keys[i], prefix))
            continue;
        if (kv->is_json) {
            fputs(is_first ? "" : ",", stdout);
            json_print_text(stdout, keys[i]);
        } else {
            ct_make_plain(keys[i], false);
            puts(keys[i]);
        }
        is_first = false;
    }
    fputs(kv->is_json ? "]}\n" : "", stdout);
    free(keys); /* one block: pointers, then strings */
    return 0;
}

static int fail_absent(const char *key, struct ctrun_error *err)
{
    return ct_fail(err, -ENOENT, "the store has no key %.200s", key);
}

/* ctrun_store_get() would wait for a key that is absent; the check before it makes that an
 * error. A key that is deleted between the two is waited for until the limit of the store. */
static int get(const struct kv *kv, struct ctrun_error *err)
{
    const char *key = kv->call->words[1];
    void *value;
    size_t length;
    int rc = ct_store_check(kv->store, &key, 1, err);

    if (rc <= 0)
        return rc < 0 ? rc : fail_absent(key, err);
    if ((rc = ctrun_store_get(kv->store, key, &value, &length, err)) < 0)
        return rc;
    print_value(kv, key, value, length);
    free(value);
    return 0;
}

static int set(const struct kv *kv, struct ctrun_error *err)
{
    const char *key = kv->call->words[1];
    const char *value = kv->call->words[2];
    int rc = ctrun_store_set(kv->store, key, value, strlen(value), err);

    /* A set has no reply: the reply to the next request shows that the store has handled the
     * set. */
    rc = rc < 0 ? rc : ct_store_check(kv->store, &key, 1, err);
    return rc < 0 ? rc : 0;
}

static int add(const struct kv *kv, struct ctrun_error *err)
{
    char text[24];
    int64_t delta;
    int64_t result;
    int rc;

    if (ct_parse_i64(kv->call->words[2], INT64_MIN, INT64_MAX, &delta) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "kv add: %s is not a number",
                       kv->call->words[2]);
    if ((rc = ctrun_store_add(kv->store, kv->call->words[1], delta, &result, err)) < 0)
        return rc;
    (void)ct_format(text, sizeof text, "%lld", (long long)result);
    print_value(kv, kv->call->words[1], text, strlen(text));
    return 0;
}

static int delete (const struct kv *kv, struct ctrun_error *err)
{
    const char *key = kv->call->words[1];
    const int rc = ctrun_store_delete(kv->store, key, err);

    return rc < 0 ? rc : rc == 0 ? fail_absent(key, err) : 0;
}

static int wait(const struct kv *kv, struct ctrun_error *err)
{
    int seconds;
    int rc = ctl_number(kv->call, "timeout", &seconds, err);

    if (rc < 0)
        return rc;
    if (seconds > WAIT_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--timeout %d: at most %d", seconds,
                       WAIT_MAX_S);
    return ctrun_store_wait(kv->store, kv->call->words + 1,
                            (size_t)kv->call->word_count - 1,
                            (uint64_t)(seconds < 0 ? WAIT_S : seconds) * 1000, err);
}

static const struct action {
    const char *name;
    const char *words;
    int min;
    int max;
    int (*run)(const struct kv *kv, struct ctrun_error *err);
} actions[] = {
    {"list", "[PREFIX]", 0, 1, list}, {"get", "KEY", 1, 1, get},
    {"set", "KEY VALUE", 2, 2, set},  {"add", "KEY NUMBER", 2, 2, add},
    {"wait", "KEY ...", 1, 3, wait},  {"delete", "KEY", 1, 1, delete},
};

enum {
    ACTIONS = sizeof actions / sizeof *actions
};

/* ---- The call ---------------------------------------------------------------------------- */

static const struct action *find_action(const struct ctl_call *call,
                                        struct ctrun_error *err)
{
    const char *names[ACTIONS + 1] = {0};
    const int words = call->word_count - 1;
    const char *near;

    for (int i = 0; i < ACTIONS; i++) {
        names[i] = actions[i].name;
        if (strcmp(call->words[0], actions[i].name) != 0)
            continue;
        if (words >= actions[i].min && words <= actions[i].max)
            return &actions[i];
        (void)ct_fail(err, CTRUN_E_USAGE, "usage: ctrunctl kv %s %s", actions[i].name,
                      actions[i].words);
        return NULL;
    }
    near = ctl_nearest(call->words[0], names);
    (void)ct_fail(err, CTRUN_E_USAGE,
                  "kv has no action %s; use list, get, set, add, wait or delete%s%s%s",
                  call->words[0], near ? "; did you mean " : "", near ? near : "",
                  near ? "?" : "");
    return NULL;
}

#define NO_STORE "no store now: this node is %s, and the next round opens another one"

/* The store of the last round may be closed, and that of the next one is not open yet. */
static bool is_between_rounds(const struct json_status *status)
{
    return strcmp(status->state, "stopping") == 0 ||
           strcmp(status->state, "joining") == 0 || strcmp(status->state, "spare") == 0;
}

static bool has_worker(const struct json_status *status)
{
    for (size_t i = 0; i < status->worker_count; i++)
        if (strcmp(status->workers[i].state, "running") == 0 ||
            strcmp(status->workers[i].state, "stopping") == 0)
            return true;
    return false;
}

/* root's request may go to a store of that user only: the status with the address is the user's, who could send root to the
 * store of another one. The kernel knows who serves a port of this machine. */
static int check_owner(const struct ctrun_store *store, uid_t uid,
                       struct ctrun_error *err)
{
    struct ct_addr near = {.length = sizeof near.v6}, far = near;
    uid_t owner;
    int rc;

    if (uid == getuid())
        return 0;
    rc = getsockname(ct_store_fd(store), &near.any, &near.length) < 0 ||
                 getpeername(ct_store_fd(store), &far.any, &far.length) < 0
             ? -errno
             : peer_uid_find(&owner, &far, &near);
    if (rc == 0 && owner == uid)
        return 0;
    if (rc == 0)
        return ct_fail(err, -EPERM, "user %u serves the store, not user %u",
                       (unsigned)owner, (unsigned)uid);
    if (rc == -ENOENT)
        return ct_fail(
            err, -EPERM,
            "the store is on another machine, so its user cannot be checked; "
            "ask there, or as user %u",
            (unsigned)uid);
    return ct_fail(err, rc, "the user of the store is not known: %s", strerror(-rc));
}

static int open_store(struct ctrun_store **out, const struct ctl_run *run,
                      struct ctrun_error *err)
{
    const struct json_status *status = &run->status;
    const bool is_between = is_between_rounds(status);
    int rc;

    if (is_between && !has_worker(status)) /* another program may have its port now */
        return ct_fail(err, -EAGAIN, NO_STORE, status->state);
    rc = ct_store_connect(out, status->master_addr, status->master_port,
                          is_between ? BETWEEN_MS : OPEN_MS, err);
    if (rc == 0)
        ct_store_set_timeout(*out, OPEN_MS);
    else if (is_between)
        ct_wrap(err, NO_STORE, status->state);
    return rc < 0 ? rc : check_owner(*out, run->uid, err);
}

static int run_action(const struct action *action, const struct ctl_call *call,
                      const struct ctl_run *of, struct ctrun_error *err)
{
    const struct json_status *status = &of->status;
    struct kv kv = {.call = call, .is_json = ctl_value(call, "json") != NULL};
    int rc;

    /* Each round has a store of its own: a request during a restart ends with a connection
     * error. */
    if (status->generation == 0)
        return ct_fail(err, -EAGAIN,
                       "run %s has no store yet: its first round has not begun",
                       status->run_id);
    rc = open_store(&kv.store, of, err);
    if (rc == 0)
        rc = action->run(&kv, err);
    ctrun_store_close(kv.store);
    return rc < 0 ? (ct_wrap(err, "run %s", status->run_id), rc) : 0;
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs = {0};
    const struct action *action = find_action(call, &err);
    int code = CT_EXIT_OK;

    if (!action || ctl_runs_find_one(&runs, call, &err) < 0 ||
        run_action(action, call, &runs.list[0], &err) < 0)
        code = ctl_fail(&err);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_kv = {
    .name = "kv",
    .words = "ACTION ...",
    .word_min = 1,
    .word_max = 4,
    .takes_negative = true, /* kv add KEY -1 */
    .help = "read and change the worker store of a run\n"
            "  kv list [PREFIX]     the keys\n"
            "  kv get KEY           its value; exit code 1 when there is none\n"
            "  kv set KEY VALUE\n"
            "  kv add KEY NUMBER    to a counter; prints its new value\n"
            "  kv wait KEY ...      until all of them exist\n"
            "  kv delete KEY\n"
            "It is the store that torch.distributed uses: every round has a new one.",
    .options = options,
    .choices = "list get set add wait delete",
    .run = run,
};
