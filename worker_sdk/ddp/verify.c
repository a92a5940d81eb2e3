/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/verify.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ddp/replicas.h"

enum {
    TEXT_BYTES = 192,
    REFUSAL_BYTES = 512,
    OPTIONS =
        11, /* of these the first NUMBERS can be told; the others only whether they are equal */
    NUMBERS = 8
};

static const char *const ddp_names[OPTIONS] = {"the option bucket_cap_bytes",
                                               "the option first_bucket_bytes",
                                               "the option find_unused",
                                               "the option static_graph",
                                               "the option divide_by_caller",
                                               "the option reduce_dtype",
                                               "the option small_last",
                                               "the option shard_gradients",
                                               "the option hook",
                                               "the option powersgd",
                                               "grad of the parameters"};
static const char *const zero_names[OPTIONS] = {
    "the option whole_params", [NUMBERS] = "the option ddp",
    [OPTIONS - 1] = "grad of the parameters"};

/* What each rank says about itself; compared word by word. */
struct claim {
    int64_t refused; /* the code with which it refused its own arguments, 0: none */
    uint64_t no_init_sync;
    uint64_t count;
    uint64_t params; /* digest of all */
    uint64_t options[OPTIONS];
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

static void claim_options(uint64_t values[OPTIONS], const struct ct_ddp_model *model)
{
    const struct ctrun_ddp_options *ddp = model->ddp;

    values[OPTIONS - 1] = has_own_memory(model->params, model->count);
    if (!ddp) {
        values[0] = model->zero->whole_params;
        values[NUMBERS] = model->zero->ddp != NULL;
        return;
    }
    values[0] = ddp->bucket_cap_bytes;
    values[1] = ddp->first_bucket_bytes;
    values[2] = ddp->find_unused;
    values[3] = ddp->static_graph;
    values[4] = ddp->divide_by_caller;
    values[5] = ddp->reduce_dtype;
    values[6] = ddp->small_last;
    values[7] = ddp->shard_gradients;
    values[8] = ddp->hook != NULL;
    values[9] = digest_powersgd(CT_HASH_START, ddp->powersgd);
}

static struct claim claim_make(const struct ct_ddp_model *model, int local)
{
    struct claim claim = {.refused = local,
                          .no_init_sync = model->ddp && model->ddp->no_init_sync,
                          .count = model->count};

    if (local < 0)
        return claim; /* nothing of ours can be trusted to be readable */
    claim_options(claim.options, model);
    claim.params = CT_HASH_START;
    for (size_t p = 0; p < model->count; p++)
        claim.params = digest_u64(claim.params, digest_param(&model->params[p]));
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

/* All ranks know that rank r has refused its arguments; it tells them why. `own` is its sentence. */
static int explain_refusal(struct ctrun_group *group, const struct claim *claims, int r,
                           const char *own, struct ctrun_error *err)
{
    char text[REFUSAL_BYTES] = "";
    int rc;

    (void)ct_copy(text, sizeof text, own);
    rc = ctrun_broadcast(group, text, text, sizeof text, CTRUN_U8, r, NULL, err);
    text[sizeof text - 1] = '\0';
    return rc < 0 ? rc
                  : ct_fail(err, CTRUN_E_MISMATCH, "rank %d failed (%s): %s", r,
                            ct_error_name((int)claims[r].refused), text);
}

static int explain_options(const struct claim *claims, int r, bool is_ddp,
                           struct ctrun_error *err)
{
    const char *const *names = is_ddp ? ddp_names : zero_names;
    int i = 0;

    while (claims[r].options[i] == claims[0].options[i])
        i++;
    if (i >= NUMBERS)
        return ct_fail(err, CTRUN_E_MISMATCH, "%s differs between rank 0 and rank %d",
                       names[i], r);
    return ct_fail(err, CTRUN_E_MISMATCH, "%s is %llu on rank 0 and %llu on rank %d",
                   names[i], (unsigned long long)claims[0].options[i],
                   (unsigned long long)claims[r].options[i], r);
}

static int compare_claims(struct ctrun_group *group, const struct claim *claims,
                          const struct ct_ddp_model *model, struct ctrun_error *err)
{
    int ranks = ctrun_group_size(group);
    bool counts = true;

    for (int r = 0; r < ranks; r++) {
        if (claims[r].no_init_sync != claims[0].no_init_sync)
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "ddp: rank %d has the option no_init_sync, rank %d has not",
                           claims[0].no_init_sync ? 0 : r,
                           claims[0].no_init_sync ? r : 0);
        counts = counts && claims[r].count == claims[0].count;
    }
    if (claims[0].no_init_sync)
        return 0;
    if (!counts)
        return explain_counts(claims, ctrun_group_rank(group), ranks, err);
    for (int r = 0; r < ranks; r++)
        if (claims[r].params != claims[0].params)
            return explain_params(group, model->params, (size_t)claims[0].count, err);
    for (int r = 0; r < ranks; r++)
        if (memcmp(claims[r].options, claims[0].options, sizeof claims->options) != 0) {
            const int rc = explain_options(claims, r, model->ddp != NULL, err);

            return model->ddp ? (ct_wrap(err, "ddp"), rc) : rc;
        }
    return 0;
}

static int find_refusal(const struct claim *claims, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (claims[r].refused < 0)
            return r;
    return -1;
}

/* A rank that has refused its own arguments takes part all the same, with its code in the claim:
 * the others would wait for it until their deadline. Its sentence stays in err, so that of the others goes
 * to `own`. */
int ct_ddp_verify(struct ctrun_group *group, const struct ct_ddp_model *model,
                  int local, struct ctrun_error *err)
{
    struct claim mine = claim_make(model, local);
    struct claim *claims;
    struct ctrun_error own;
    struct ctrun_error *const to = local < 0 ? &own : err;
    int rc, refused;

    claims = ct_zalloc_array((size_t)ctrun_group_size(group), sizeof *claims);
    if (!claims)
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    rc = ctrun_all_gather(group, &mine, claims, sizeof mine, CTRUN_U8, NULL, to);
    refused = rc == 0 ? find_refusal(claims, ctrun_group_size(group)) : -1;
    if (refused >= 0)
        rc = explain_refusal(group, claims, refused,
                             local < 0 && err ? err->text : ctrun_strerror(local), to);
    else if (rc == 0)
        rc = compare_claims(group, claims, model, err);
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
