/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh.h"

#include <errno.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/config/rdzv_host_slot.h"
#include "launcher/config/host_slot.h"
#include "launcher/options/nnodes.h"
#include "launcher/options/nproc_list.h"
#include "launcher/options/option_file.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_names.h"
#include "launcher/ssh/ssh_root.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/str_list.h"
#include "worker_sdk/wire/text_code.h"

enum {
    FANOUT =
        16, /* connections from one host: 17, 273 or 4369 hosts need one level more */
    REACH_MAX_S = 3600,
    TOKEN_BYTES = 32,
    GRACE_S = 30,
};

bool ssh_is_wanted(const struct options *options)
{
    return !host_slot_get()->is_given && (option_has_text(options, OPTION_HOSTS) ||
                                          option_has_text(options, OPTION_HOSTS_FILE));
}

/* ---- The job ----------------------------------------------------------------------------- */

static int make_text(char **out, char *text)
{
    *out = text;
    return text ? 0 : -ENOMEM;
}

/* Random bytes as hexadecimal digits. */
static char *make_secret(void)
{
    uint8_t bytes[TOKEN_BYTES];
    char *text = ct_zalloc(2 * sizeof bytes + 1);

    if (!text || getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        free(text);
        return NULL;
    }
    ct_hex_encode(text, bytes, sizeof bytes);
    return text;
}

static int fill_token(struct ssh_job *job, const struct options *options,
                      const struct ct_auth_token *from_env, struct ctrun_error *err)
{
    const char *auth = option_text(options, OPTION_AUTH);
    const bool is_asked = strcmp(auth, "none") != 0 && strcmp(auth, "munge") != 0;
    struct ct_auth_token token = {0};
    int rc = 0;

    if (is_asked)
        token = *from_env;

    if (is_asked && option_has_text(options, OPTION_RDZV_TOKEN_FILE))
        rc = ct_auth_token_read(&token, option_text(options, OPTION_RDZV_TOKEN_FILE),
                                err);
    if (rc < 0)
        return ct_wrap(err, "--rdzv-token-file"), rc;
    /* A ctrund does not know a token that is made here. */
    if (token.length > 0)
        job->token = ct_strndup((const char *)token.bytes, token.length);
    else if (!is_asked || option_has_text(options, OPTION_RDZV_ENDPOINT))
        job->token = ct_strdup("");
    else
        job->token = make_secret();
    ct_auth_token_wipe(&token);
    return job->token ? 0 : ct_fail(err, -ENOMEM, "--hosts: no token: out of memory");
}

static int fill_numbers(struct ssh_job *job, const struct options *options,
                        struct ctrun_error *err)
{
    const struct option_value *limit = &options->values[OPTION_HOSTS_TIMEOUT];
    const char *fanout = getenv("CTRUN_HOSTS_FANOUT");
    uint64_t value = FANOUT;

    if (limit->integer < 1 || limit->integer > REACH_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--hosts-timeout=%s: must be 1 to %d seconds", limit->text,
                       REACH_MAX_S);
    job->reach_ms = (uint32_t)limit->integer * 1000;
    if (fanout && *fanout && ct_parse_u64(fanout, 1, 256, &value) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "CTRUN_HOSTS_FANOUT=%s: must be 1 to 256",
                       fanout);
    job->fanout = (uint32_t)value;
    return 0;
}

static int fill_run(struct ssh_job *job, const struct options *options, char **argv,
                    struct ctrun_error *err)
{
    char path[PATH_MAX];
    char cwd[PATH_MAX];
    char **env;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    int rc = 0;

    if (n < 0)
        return ct_fail(err, -errno, "--hosts: /proc/self/exe: %s; mount /proc",
                       strerror(errno));
    if (!getcwd(cwd, sizeof cwd))
        return ct_fail(err, -errno, "--hosts: the current folder: %s", strerror(errno));
    path[n] = '\0';
    env = ssh_names_choose(environ, option_text(options, OPTION_HOSTS_ENV));
    if (!env || make_text(&job->program, ct_strdup(path)) < 0 ||
        make_text(&job->cwd, ct_strdup(cwd)) < 0 ||
        make_text(&job->ssh, ct_strdup(option_text(options, OPTION_SSH))) < 0 ||
        make_text(&job->run_id, option_has_text(options, OPTION_RDZV_ID)
                                    ? ct_strdup(option_text(options, OPTION_RDZV_ID))
                                    : make_secret()) < 0 ||
        !(job->argv = option_file_argv(options, argv)) ||
        !(job->env = ct_str_list_copy(env)))
        rc = ct_fail(err, -ENOMEM, "--hosts: out of memory");
    free(env);
    if (rc == 0)
        ct_make_plain(job->run_id, false); /* as the server reads it */
    if (rc == 0 && !option_has_text(options, OPTION_RDZV_ID))
        job->run_id[16] = '\0'; /* a name, no secret */
    return rc;
}

static int read_names(struct hostlist *out, const struct options *options,
                      struct ctrun_error *err)
{
    return ssh_names_read(out, option_text(options, OPTION_HOSTS),
                          option_text(options, OPTION_HOSTS_FILE), err);
}

static int fill_job(struct ssh_job *job, const struct options *options, char **argv,
                    const struct ct_auth_token *token, struct ctrun_error *err)
{
    struct hostlist list;
    int rc = read_names(&list, options, err);

    if (rc < 0)
        return rc;
    job->total = (uint32_t)list.count;
    job->names = ct_zalloc_array(list.count + 1, sizeof *job->names);
    for (size_t i = 0; job->names && i < list.count; i++) {
        job->names[i] = list.names[i]; /* moved */
        list.names[i] = NULL;
    }
    rc = job->names ? 0 : ct_fail(err, -ENOMEM, "--hosts: out of memory");
    hostlist_deinit(&list);
    if (rc < 0 || (rc = fill_numbers(job, options, err)) < 0 ||
        (rc = fill_run(job, options, argv, err)) < 0)
        return rc;
    return fill_token(job, options, token, err);
}

/* ---- The run ----------------------------------------------------------------------------- */

static int64_t grace_seconds(const struct options *options)
{
    const struct option_value *option = &options->values[OPTION_SHUTDOWN_TIMEOUT];
    const char *text = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    int64_t seconds = GRACE_S;

    if (option->text)
        return option->integer;
    if (text)
        (void)ct_parse_python_int(text, &seconds);
    return seconds;
}

static uint32_t find_here(const struct ssh_job *job)
{
    char self[CT_HOST_MAX] = "";

    (void)gethostname(self, sizeof self - 1);
    for (uint32_t i = 0; i < job->total; i++)
        if (ssh_names_is_here(job->names[i], self))
            return i;
    return SSH_NOWHERE;
}

/* Refuses, before any host is called, a list that every host would refuse. */
static int check_list(const struct options *options, int total, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_NPROC_PER_NODE);
    int workers;
    int listed;

    if (options->role_count > 0 || !nproc_list_is(text))
        return 0;
    listed = nproc_list_read(text, 0, &workers, err);
    /* Spares are nodes, too: a spare that is not in the list could not replace a node. */
    return listed < 0 ? listed : nproc_list_check(text, listed, total, total, err);
}

static int resolve_nodes(struct nnodes *nodes, const struct options *options,
                         uint32_t total, struct ctrun_error *err)
{
    int rc = nnodes_parse(option_text(options, OPTION_NNODES), nodes, err);

    if (rc == 0 && !option_has_text(options, OPTION_NNODES))
        nodes->min = nodes->max = (int)total;
    if (rc == 0)
        rc = rdzv_host_slot_check(options, nodes, (int)total, err);
    return rc < 0 ? rc : check_list(options, (int)total, err);
}

/* --stdin cannot work: each host's node has an empty standard input of its own. */
static int check_input(const struct options *options, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_STDIN);

    if (!option_is_given(options, OPTION_STDIN) || strcmp(text, "none") == 0)
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "--stdin=%s: with --hosts all ranks read /dev/null; start ctrun on "
                   "the rank's own host, or let rank 0 read a file",
                   text);
}

/* --ha cannot work: a process of --hosts serves the rendezvous, and no node does. */
static int check_ha(const struct options *options, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_HA);

    if (!option_has_text(options, OPTION_HA) || strcmp(text, "0") == 0)
        return 0;
    return ct_fail(
        err, CTRUN_E_USAGE,
        "--ha: does not work with --hosts; start ctrun on each node (srun, a "
        "scheduler), or leave --ha out");
}

int ssh_run(const struct options *options, char **argv,
            const struct ct_auth_token *token, struct ctrun_error *err)
{
    struct ssh_job job = {0};
    struct ssh_stage_plan stage = {0};
    struct ssh_root_options root = {.job = &job, .stage = &stage};
    struct nnodes nodes;
    int rc = check_input(options, err);

    if (rc == 0)
        rc = check_ha(options, err);
    (void)prctl(PR_SET_DUMPABLE, 0); /* the messages to hosts hold the token */
    if (rc == 0)
        rc = fill_job(&job, options, argv, token, err);
    if (rc == 0)
        rc = resolve_nodes(&nodes, options, job.total, err);
    if (rc == 0)
        rc = ssh_stage_plan(&stage, options, job.argv, job.cwd, err);
    if (rc == 0) {
        root.here = find_here(&job);
        root.min_nodes = (uint32_t)nodes.min;
        root.serves = !option_has_text(options, OPTION_RDZV_ENDPOINT) && nodes.max > 1;
        root.grace_ms = (uint64_t)grace_seconds(options) * 1000;
        root.exit_style = option_exit_style(options);
        root.signals = option_text(options, OPTION_SIGNALS_TO_HANDLE);
        rc = ssh_root_run(&root, err);
    }
    ssh_stage_plan_deinit(&stage);
    ssh_job_deinit(&job);
    return rc;
}

int ssh_preview(const struct options *options, struct ctrun_error *err)
{
    struct host_slot slot = {.is_given = true};
    const char *first;
    struct hostlist list;
    int rc = read_names(&list, options, err);

    if (rc < 0)
        return rc;
    slot.total = (int)list.count;
    (void)ct_copy(slot.run_id, sizeof slot.run_id, "?");
    (void)hostlist_format(&list, slot.hosts, sizeof slot.hosts);
    first = ssh_names_host(list.names[0]);
    if (!option_has_text(options, OPTION_RDZV_ENDPOINT) && list.count > 1)
        (void)ct_format(slot.endpoint, sizeof slot.endpoint,
                        strchr(first, ':') ? "[%.200s]:0" : "%.200s:0", first);
    hostlist_deinit(&list);
    host_slot_set(&slot);
    return 0;
}
