/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts that a batch system has allocated to a job, for every way to start its tasks. */
#include <errno.h>

#include "launcher/batch/batch.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

static const char blanks[] = " \t\r\n";

/* Lists name a host once for each of its slots, mostly in a row. */
static int add_once(struct hostlist *list, const char *name)
{
    for (size_t i = list->count; i-- > 0;)
        if (strcmp(list->names[i], name) == 0)
            return 0;
    return hostlist_add(list, name);
}

/* Words of `text`; with `counts`, every second one is a number of slots. */
static int add_words(struct hostlist *list, const char *text, bool counts)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && *(text += strspn(text, blanks)); i++) {
        size_t length = strcspn(text, blanks);
        char *name = ct_strndup(text, length);

        if (!name)
            return -ENOMEM;
        if (!counts || i % 2 == 0)
            rc = add_once(list, name);
        free(name);
        text += length;
    }
    return rc;
}

static int list_pbs(struct hostlist *out, const struct batch_source *from,
                    const char *path, struct ctrun_error *err)
{
    char *text = from->read(from->context, path);
    int rc;

    if (!text)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "PBS: PBS_NODEFILE=%s cannot be read on this node; copy it to a "
                       "shared folder and export PBS_NODEFILE to all tasks, or give "
                       "--rdzv-endpoint, --nnodes and --node-rank",
                       path);
    rc = add_words(out, text, false);
    free(text);
    return rc < 0 ? ct_fail(err, CTRUN_E_BAD_ENVIRONMENT, "PBS: PBS_NODEFILE=%s: %s",
                            path, strerror(-rc))
                  : 0;
}

static int list_lsf(struct hostlist *out, const struct batch_source *from,
                    struct ctrun_error *err)
{
    const char *counted = batch_text(from, "LSB_MCPU_HOSTS");
    const char *name = counted ? "LSB_MCPU_HOSTS" : "LSB_HOSTS";
    const char *text = counted ? counted : batch_text(from, name);
    int rc;

    if (!text)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "LSF: neither LSB_MCPU_HOSTS nor LSB_HOSTS is set");
    rc = add_words(out, text, counted != NULL);
    return rc < 0 ? ct_fail(err, CTRUN_E_BAD_ENVIRONMENT, "LSF: %s: %s", name,
                            strerror(-rc))
                  : 0;
}

int batch_hosts_list(struct hostlist *out, char *id, size_t size,
                     const struct batch_source *from, struct ctrun_error *err)
{
    const char *pbs = batch_text(from, "PBS_NODEFILE");
    const char *lsf = batch_text(from, "LSB_JOBID");
    const char *slurm = batch_text(from, "SLURM_JOB_NODELIST");
    const char *job;

    *out = (struct hostlist){0};
    id[0] = '\0';
    if (pbs) {
        job = batch_text(from, "PBS_JOBID");
        (void)ct_format(id, size, "pbs-%s", job ? job : "");
        return list_pbs(out, from, pbs, err);
    }
    if (lsf) {
        job = batch_text(from, "LSB_JOBINDEX");
        (void)ct_format(id, size, "lsf-%s%s%s", lsf, job ? "." : "", job ? job : "");
        return list_lsf(out, from, err);
    }
    if (slurm) {
        job = batch_text(from, "SLURM_JOB_ID");
        (void)ct_format(id, size, "slurm-%s", job ? job : "");
        if (hostlist_parse(slurm, out, err) < 0) {
            ct_wrap(err, "Slurm: SLURM_JOB_NODELIST");
            return CTRUN_E_BAD_ENVIRONMENT;
        }
    }
    return 0;
}
