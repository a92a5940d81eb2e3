/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/verify.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ddp/replicas.h"

/* What each rank says about itself; compared word by word. */
struct claim {
    int64_t refused; /* the code with which it refused its own arguments, 0: none */
    uint64_t no_init_sync;
    uint64_t count;
    uint64_t options; /* digest */
    uint64_t params;  /* digest of all */
};

enum {
    TEXT_BYTES = 192
};

static uint64_t digest_u64(uint64_t digest, uint64_t value)
{
    return ct_hash_add(digest, &value, sizeof value);
}

static uint64_t digest_param(const struct ctrun_param *param)
{
    uint64_t digest = ct_hash(param->name, strlen(param->name) + 1);

    digest = digest_u64(digest, param->dtype);
    digest = digest_u64(digest, (uint64_t)param->dims);
    digest = digest_u64(digest, param->no_grad);
    digest = digest_u64(digest, param->is_buffer);
    return ct_hash_add(digest, param->sizes,
                       (size_t)param->dims * sizeof *param->sizes);
}

static uint64_t digest_powersgd(uint64_t digest,
                                const struct ctrun_powersgd_options *options)
{
    if (!options)
        return digest;
    digest = digest_u64(digest, (uint64_t)options->rank);
    digest = digest_u64(digest, options->start_step);
    digest = ct_hash_add(digest, &options->min_compression,
                         sizeof options->min_compression);
    digest = digest_u64(digest, options->no_error_feedback);
    digest = digest_u64(digest, options->no_warm_start);
    digest = ct_hash_add(digest, &options->epsilon, sizeof options->epsilon);
    return digest_u64(digest, options->seed);
}

/* All gradients are in the caller's memory, or none is (params.h). */
static bool has_own_memory(const struct ctrun_param *params, size_t count)
{
    for (size_t p = 0; p < count; p++)
        if (!params[p].no_grad && params[p].grad)
            return true;
    return false;
}

static struct claim claim_make(const struct ctrun_param *params, size_t count,
                               const struct ctrun_ddp_options *options, int local)
{
    struct claim claim = {
        .refused = local, .no_init_sync = options->no_init_sync, .count = count};

    if (local < 0)
        return claim; /* nothing of ours can be trusted to be readable */
    claim.options = digest_u64(CT_HASH_START, options->bucket_cap_bytes);
    claim.options = digest_u64(claim.options, options->first_bucket_bytes);
    claim.options = digest_u64(claim.options, options->find_unused);
    claim.options = digest_u64(claim.options, options->static_graph);
    claim.options = digest_u64(claim.options, options->divide_by_caller);
    claim.options = digest_u64(claim.options, options->reduce_dtype);
    claim.options = digest_u64(claim.options, options->hook != NULL);
    claim.options = digest_u64(claim.options, options->small_last);
    claim.options = digest_u64(claim.options, options->shard_gradients);
    claim.options = digest_powersgd(claim.options, options->powersgd);
    claim.options = digest_u64(claim.options, has_own_memory(params, count));
    claim.params = CT_HASH_START;
    for (size_t p = 0; p < count; p++)
        claim.params = digest_u64(claim.params, digest_param(&params[p]));
    return claim;
}

/* "'fc1.weight' f32 [128, 9216]" */
static void describe(char text[TEXT_BYTES], const struct ctrun_param *param)
{
    (void)ct_format(text, TEXT_BYTES, "'%.64s' %s [", param->name,
                    ct_dtype_name((int)param->dtype));
    for (int i = 0; i < param->dims; i++)
        (void)ct_append(text, TEXT_BYTES, i ? ", %lld" : "%lld",
                        (long long)param->sizes[i]);
    (void)ct_append(text, TEXT_BYTES, "]%s%s", param->is_buffer ? " buffer" : "",
                    param->no_grad ? " without gradient" : "");
}

/* Finds the first parameter that differs, by one digest per parameter, then exchanges its
 * descriptions. */
static int explain_params(struct ctrun_group *group, const struct ctrun_param *params,
                          size_t count, struct ctrun_error *err)
{
    size_t ranks = (size_t)ctrun_group_size(group);
    uint64_t *mine = ct_zalloc_array(count, sizeof *mine);
    uint64_t *all = ct_zalloc_array(count, ranks * sizeof *all);
    char(*texts)[TEXT_BYTES] = ct_zalloc_array(ranks, sizeof *texts);
    char text[TEXT_BYTES] = "";
    char differing[128] = "";
    size_t p = 0;
    size_t r = 1;
    int rc = -ENOMEM;

    if (!mine || !all || !texts) {
        ct_fail(err, rc, "ddp: out of memory");
        goto done;
    }
    for (size_t i = 0; i < count; i++)
        mine[i] = digest_param(&params[i]);
    rc = ctrun_all_gather(group, mine, all, count * sizeof *mine, CTRUN_U8, NULL, err);
    if (rc < 0)
        goto done;
    for (bool differs = false; p < count; p++) {
        for (r = 1; r < ranks && !differs; r++)
            differs = all[r * count + p] != all[p];
        if (differs)
            break;
    }
    r--;
    if (p < count) {
        describe(text, &params[p]);
        ct_ddp_list_unlike(differing, sizeof differing, all + p, count, ranks, 0);
    }
    if ((rc = ctrun_all_gather(group, text, texts, sizeof text, CTRUN_U8, NULL, err)) <
        0)
        goto done;
    rc = ct_fail(
        err, CTRUN_E_MISMATCH,
        "DDP expects same model across all ranks, but params[%zu] is %s on rank 0 "
        "and %s on rank %zu (differing from rank 0: %s)",
        p, texts[0], texts[r], r, differing);
done:
    free(texts);
    free(all);
    free(mine);
    return rc;
}

/* torch's sentence, from this rank's point of view. */
static int explain_counts(const struct claim *claims, int rank, int ranks,
                          struct ctrun_error *err)
{
    int other = 0;

    while (other < ranks && claims[other].count == claims[rank].count)
        other++;
    return ct_fail(
        err, CTRUN_E_MISMATCH,
        "DDP expects same model across all ranks, but Rank %d has %llu params, "
        "while rank %d has inconsistent %llu params.",
        rank, (unsigned long long)claims[rank].count, other,
        (unsigned long long)claims[other].count);
}

static int compare_claims(struct ctrun_group *group, const struct claim *claims,
                          const struct ctrun_param *params, struct ctrun_error *err)
{
    int ranks = ctrun_group_size(group);
    int rank = ctrun_group_rank(group);
    bool counts = true;
    bool equal = true;

    if (claims[rank].refused < 0)
        return (int)claims[rank].refused; /* our own sentence is in err */
    for (int r = 0; r < ranks; r++) {
        if (claims[r].refused < 0)
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "ddp: rank %d failed (%s); its own message says why", r,
                           ct_error_name((int)claims[r].refused));
        if (claims[r].no_init_sync != claims[0].no_init_sync)
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "ddp: rank %d has the option no_init_sync, rank %d has not",
                           claims[0].no_init_sync ? 0 : r,
                           claims[0].no_init_sync ? r : 0);
        counts = counts && claims[r].count == claims[0].count;
        equal = equal && memcmp(&claims[r], &claims[0], sizeof *claims) == 0;
    }
    if (claims[0].no_init_sync)
        return 0;
    if (!counts)
        return explain_counts(claims, rank, ranks, err);
    for (int r = 0; r < ranks; r++)
        if (claims[r].params != claims[0].params)
            return explain_params(group, params, (size_t)claims[0].count, err);
    for (int r = 0; !equal && r < ranks; r++)
        if (claims[r].options != claims[0].options)
            return ct_fail(
                err, CTRUN_E_MISMATCH,
                "DDP expects same model across all ranks, but rank %d was given "
                "other bucket sizes or options than rank 0, or only one of the two was "
                "given memory for gradients",
                r);
    return 0;
}

/* A rank that has refused its own arguments takes part all the same, with its code in the claim:
 * the others would wait for it until their deadline. Its sentence stays in err, so the gather's
 * own goes to `own`. */
int ct_ddp_verify(struct ctrun_group *group, const struct ctrun_param *params,
                  size_t count, const struct ctrun_ddp_options *options, int local,
                  struct ctrun_error *err)
{
    struct claim mine = claim_make(params, count, options, local);
    struct claim *claims;
    struct ctrun_error own;
    int rc;

    claims = ct_zalloc_array((size_t)ctrun_group_size(group), sizeof *claims);
    if (!claims)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    rc = ctrun_all_gather(group, &mine, claims, sizeof mine, CTRUN_U8, NULL,
                          local < 0 ? &own : err);
    if (rc == 0)
        rc = compare_claims(group, claims, params, err);
    free(claims);
    return local < 0 ? local : rc;
}

static int fail_report(const struct ct_ddp_report *report, size_t rank,
                       struct ctrun_error *err)
{
    if (report->code == CTRUN_E_DIVERGED)
        return ct_fail(err, CTRUN_E_DIVERGED,
                       "ddp: on rank %zu the gradient of parameter %s is not finite",
                       rank, report->text);
    return ct_fail(err, CTRUN_E_USAGE,
                   "Expected to have finished reduction in the prior iteration before "
                   "starting a new one. Parameters got no gradient in this step: set "
                   "find_unused, or let every parameter take part in the loss; with "
                   "static_graph, each parameter that got a gradient in the first step "
                   "must get one in every step. "
                   "Parameter indices which did not receive grad for rank %zu: %s",
                   rank, report->text);
}

int ct_ddp_exchange_reports(struct ctrun_group *group, const struct ct_ddp_report *mine,
                            struct ctrun_error *err)
{
    size_t ranks = (size_t)ctrun_group_size(group);
    struct ct_ddp_report *all = ct_zalloc_array(ranks, sizeof *all);
    int rc;

    if (!all)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    rc = ctrun_all_gather(group, mine, all, sizeof *mine, CTRUN_U8, NULL, err);
    for (size_t r = 0; rc == 0 && r < ranks; r++)
        if (all[r].code < 0)
            rc = fail_report(&all[r], r, err);
    free(all);
    return rc;
}
