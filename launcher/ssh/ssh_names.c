/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_names.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "launcher/ssh/ssh_job.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"

enum {
    FILE_MAX_BYTES = HOSTLIST_BYTES_MAX
};

/* Variables with which a program is found and behaves on each host as on this machine. None of
 * them belongs to this machine, this login or a batch system. */
static const char usual[] =
    "PATH,LD_LIBRARY_PATH,LD_PRELOAD,PYTHON*,VIRTUAL_ENV,CONDA_*,PET_*,CTRUN_*,"
    "TORCH*,PYTORCH_*,NCCL_*,GLOO_*,CUDA_*,HIP_*,OMP_*,MKL_*,KMP_*,GOMP_*,OPENBLAS_*,"
    "HF_*,WANDB_*,LOGLEVEL,LANG,LC_*,TZ";
/* Never sent: they differ between hosts, are sent separately because they are secret, or
 * (host_slot.c) belong to one run. */
static const char never[] =
    "CTRUN_TOKEN,CTRUN_HOST_SLOT,CTRUN_AGENT_SOCKET,CTRUN_HOSTS*,"
    "CTRUN_CONFIG,CTRUN_STAGE,PET_NODE_RANK,PET_LOCAL_ADDR";

/* ---- Hosts ------------------------------------------------------------------------------- */

static int check_name(const char *name, struct ctrun_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._:%@-";

    if (!name[strspn(name, letters)] && *name != '-')
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "'%.200s' is not a host name; write a,b or n[1-3], and "
                   "--nproc-per-node for the number of workers",
                   name);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_twice(const struct hostlist *list, struct ctrun_error *err)
{
    char **sorted = ct_zalloc_array(list->count, sizeof *sorted);
    int rc = 0;

    if (!sorted)
        return ct_fail(err, -ENOMEM, "out of memory");
    memcpy(sorted, list->names, list->count * sizeof *sorted);
    qsort(sorted, list->count, sizeof *sorted, compare);
    for (size_t i = 1; i < list->count && rc == 0; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            rc = ct_fail(err, CTRUN_E_USAGE,
                         "%s is given twice; --nproc-per-node is the number "
                         "of its workers",
                         sorted[i]);
    free(sorted);
    return rc;
}

/* The file as one list: without comments, with commas for ends of lines. The caller frees it. */
static char *read_list(const char *path, struct ctrun_error *err)
{
    char *text = ct_zalloc(FILE_MAX_BYTES + 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool is_comment = false;
    const ssize_t length = fd < 0 ? -errno
                           : text ? ct_read_all_in(fd, text, FILE_MAX_BYTES,
                                                   CT_PIPE_WAIT_MS)
                                  : -ENOMEM;

    if (length < 0 || length == FILE_MAX_BYTES) {
        (void)ct_fail(err, CTRUN_E_USAGE, "--hosts-file %.300s: %s", path,
                      length < 0 ? ct_read_all_fault(length) : "too long");
        free(text);
        text = NULL;
    }
    for (ssize_t i = 0; text && i < length; i++) {
        if (text[i] == '\n' || text[i] == '\r' || text[i] == '\0') {
            text[i] = ',';
            is_comment = false;
        }
        is_comment |= text[i] == '#';
        if (is_comment)
            text[i] = ' ';
    }
    if (fd >= 0)
        close(fd);
    return text;
}

int ssh_names_read(struct hostlist *out, const char *text, const char *file,
                   struct ctrun_error *err)
{
    const char *option = *text ? "--hosts" : "--hosts-file";
    char *owned = *text ? NULL : read_list(file, err);
    int rc;

    *out = (struct hostlist){0};
    if (!*text && !owned)
        return CTRUN_E_USAGE;
    rc = hostlist_parse(owned ? owned : text, out, err);
    free(owned);
    if (rc < 0) {
        ct_wrap(err, "%s", option);
        return err ? (err->code = CTRUN_E_USAGE) : CTRUN_E_USAGE;
    }
    if (out->count == 0)
        rc = ct_fail(err, CTRUN_E_USAGE, "no host is named");
    else if (out->count > SSH_HOSTS_MAX)
        rc = ct_fail(err, CTRUN_E_USAGE, "more than %d hosts", SSH_HOSTS_MAX);
    for (size_t i = 0; i < out->count && rc == 0; i++)
        rc = check_name(out->names[i], err);
    if (rc == 0)
        rc = check_twice(out, err);
    if (rc < 0) {
        hostlist_deinit(out);
        ct_wrap(err, "%s", option);
    }
    return rc;
}

const char *ssh_names_host(const char *name)
{
    const char *at = strrchr(name, '@');

    return at ? at + 1 : name;
}

bool ssh_names_is_here(const char *name, const char *self)
{
    struct ct_addr addr;
    const size_t length = strcspn(name, ".");

    if (ct_addr_parse(name, 0, &addr) == 0)
        return ct_nic_is_mine(&addr);
    return ct_addr_is_localhost(name) ||
           (length == strcspn(self, ".") && strncmp(name, self, length) == 0);
}

/* ---- Environment ------------------------------------------------------------------------- */

static bool is_listed(const char *list, const char *entry)
{
    const size_t name = strcspn(entry, "=");
    size_t length;

    for (const char *item; (item = ct_next_field(&list, ',', &length));) {
        const bool is_prefix = length > 0 && item[length - 1] == '*';

        length -= is_prefix;
        if ((is_prefix ? length <= name : length == name) &&
            strncmp(item, entry, length) == 0 && length + is_prefix > 0)
            return true;
    }
    return false;
}

char **ssh_names_choose(char *const *env, const char *more)
{
    size_t count = 0;
    char **list;

    while (env[count])
        count++;
    list = ct_zalloc_array(count + 1, sizeof *list);
    count = 0;
    for (; list && *env; env++)
        if ((is_listed(usual, *env) || is_listed(more, *env)) &&
            !is_listed(never, *env))
            list[count++] = *env;
    return list;
}
