/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/replicas.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ddp/params.h"

/* FNV-1a over words with a mix behind each: every bit counts, at some gigabytes a second. */
static uint64_t digest(const struct ctrun_param *param)
{
    const uint8_t *data = param->data;
    size_t bytes = param->is_buffer ? 0 : ct_ddp_param_bytes(param);
    uint64_t hash = CT_HASH_START;

    for (; bytes >= sizeof hash; bytes -= sizeof hash, data += sizeof hash) {
        uint64_t word;

        memcpy(&word, data, sizeof word);
        hash = (hash ^ word) * CT_HASH_PRIME;
        hash ^= hash >> 32;
    }
    return ct_hash_add(hash, data, bytes);
}

/* The rank whose item most ranks have; of equals the lowest. */
static size_t find_model(const uint64_t *all, size_t ranks)
{
    size_t best = 0, most = 0;

    for (size_t r = 0; r < ranks; r++) {
        size_t like = 0;

        for (size_t other = 0; other < ranks; other++)
            like += all[other] == all[r];
        if (like > most) {
            most = like;
            best = r;
        }
    }
    return best;
}

void ct_ddp_list_unlike(char *text, size_t size, const uint64_t *all, size_t step,
                        size_t ranks, size_t model)
{
    size_t others = 0, at;

    for (size_t r = 0; r < ranks; r++)
        others += all[r * step] != all[model * step];
    (void)ct_copy(text, size, others == 1 ? "rank " : "ranks ");
    at = strlen(text);
    for (size_t r = 0; r < ranks; r++)
        if (all[r * step] != all[model * step])
            (void)ct_append_item(text + at, size - at, ", ", "%zu", r);
}

/* The first parameter in which that rank is not as `model`. */
static int find_param(struct ctrun_group *group, const uint64_t *mine, size_t count,
                      size_t model, size_t other, size_t *out, struct ctrun_error *err)
{
    uint64_t *all = ct_zalloc_array((size_t)ctrun_group_size(group) * count,
                                    sizeof *all);
    size_t p = 0;
    int rc;

    if (!all)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    rc = ctrun_all_gather(group, mine, all, count, CTRUN_I64, NULL, err);
    while (rc == 0 && p < count - 1 && all[other * count + p] == all[model * count + p])
        p++;
    free(all);
    *out = p;
    return rc;
}

static int explain(struct ctrun_group *group, const struct ctrun_param *params,
                   const uint64_t *mine, size_t count, const uint64_t *all,
                   struct ctrun_error *err)
{
    const size_t ranks = (size_t)ctrun_group_size(group),
                 model = find_model(all, ranks);
    char text[128] = "";
    size_t other = 0, p = 0;
    int rc;

    while (other < ranks && all[other] == all[model])
        other++;
    if (other == ranks)
        return 0;
    if ((rc = find_param(group, mine, count, model, other, &p, err)) < 0)
        return rc;
    ct_ddp_list_unlike(text, sizeof text, all, 1, ranks, model);
    return ct_fail(
        err, CTRUN_E_MISMATCH,
        "ddp: the parameters of %s differ from those of rank %zu; the first one that "
        "differs on rank %zu is params[%zu] '%.64s'",
        text, model, other, p, params[p].name);
}

int ct_ddp_compare_replicas(struct ctrun_group *group, const struct ctrun_param *params,
                            size_t count, struct ct_device_checks *checks, void *stream,
                            struct ctrun_error *err)
{
    uint64_t *mine = ct_zalloc_array(count, sizeof *mine);
    uint64_t *all = ct_zalloc_array((size_t)ctrun_group_size(group), sizeof *all);
    uint64_t whole = CT_HASH_START;
    int rc = mine && all ? 0 : ct_fail(err, -ENOMEM, "ddp: out of memory");

    if (rc == 0 && checks)
        rc = ct_checks_digest(checks, params, stream, mine, err);
    for (size_t p = 0; rc == 0 && p < count; p++) {
        if (!checks)
            mine[p] = digest(&params[p]);
        whole = ct_hash_add(whole, &mine[p], sizeof mine[p]);
    }
    if (rc == 0)
        rc = ctrun_all_gather(group, &whole, all, 1, CTRUN_I64, NULL, err);
    if (rc == 0)
        rc = explain(group, params, mine, count, all, err);
    free(mine);
    free(all);
    return rc;
}
