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
    OPTIONS = 11
};

/* Indexed by the kind in a claim: what is being created. */
static const struct {
    const char *prefix; /* of the sentences of all that is said here */
    const char *title;
    const char *call;
} kinds[] = {{"ddp", "DDP", "ctrun_ddp_create()"},
             {"zero", "ZeRO", "ctrun_zero_create()"}};

struct option {
    const char *name;
    uint64_t value;
    enum {
        EQUALITY,
        NUMBER,
        DTYPE
    } how; /* EQUALITY: only that it differs can be said */
};

/* What each rank says about itself; compared word by word. */
struct claim {
    uint64_t kind;
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

/* Names are the same on all ranks that create the same kind. */
static void claim_options(struct option options[OPTIONS],
                          const struct ct_ddp_model *model)
{
    const struct ctrun_ddp_options *ddp = model->ddp;
    size_t n = 0;

    memset(options, 0, OPTIONS * sizeof *options);
    options[n++] = (struct option){"grad of the parameters",
                                   has_own_memory(model->params, model->count),
                                   EQUALITY};
    if (!ddp) {
        options[n++] = (struct option){"the option whole_params",
                                       model->zero->whole_params, NUMBER};
        options[n++] = (struct option){"the option ddp", model->zero->ddp != NULL,
                                       EQUALITY};
        return;
    }
    const struct option own[] = {
        {"the option bucket_cap_bytes", ddp->bucket_cap_bytes, NUMBER},
        {"the option first_bucket_bytes", ddp->first_bucket_bytes, NUMBER},
        {"the option find_unused", ddp->find_unused, NUMBER},
        {"the option static_graph", ddp->static_graph, NUMBER},
        {"the option divide_by_caller", ddp->divide_by_caller, NUMBER},
        {"the option reduce_dtype", ddp->reduce_dtype, DTYPE},
        {"the option small_last", ddp->small_last, NUMBER},
        {"the option shard_gradients", ddp->shard_gradients, NUMBER},
        {"the option hook", ddp->hook != NULL, EQUALITY},
        {"the option powersgd", digest_powersgd(CT_HASH_START, ddp->powersgd),
         EQUALITY}};
    _Static_assert(sizeof own == (OPTIONS - 1) * sizeof *own, "one more: grad");
    memcpy(options + n, own, sizeof own);
}

static struct claim claim_make(const struct ct_ddp_model *model, int local)
{
    struct option options[OPTIONS];
    struct claim claim = {.kind = !model->ddp,
                          .refused = local,
                          .no_init_sync = model->ddp && model->ddp->no_init_sync,
                          .count = model->count};

    if (local < 0)
        return claim; /* nothing of ours can be trusted to be readable */
    claim_options(options, model);
    for (size_t i = 0; i < OPTIONS; i++)
        claim.options[i] = options[i].value;
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
static int explain_params(struct ctrun_group *group, const struct ct_ddp_model *model,
                          struct ctrun_error *err)
{
    const struct ctrun_param *params = model->params;
    const size_t count = model->count;
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
        ct_fail(err, rc, "out of memory");
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
        "%s expects same model across all ranks, but params[%zu] is %s on rank 0 "
        "and %s on rank %zu (differing from rank 0: %s)",
        kinds[!model->ddp].title, p, texts[0], texts[r], r, differing);
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
        "%s expects same model across all ranks, but Rank %d has %llu params, "
        "while rank %d has inconsistent %llu params.",
        kinds[claims[rank].kind].title, rank, (unsigned long long)claims[rank].count,
        other, (unsigned long long)claims[other].count);
}

/* All ranks know that rank r has refused its arguments; it sends them why. `own` is its sentence, which need not
 * begin as theirs will. */
static int explain_refusal(struct ctrun_group *group, const struct claim *claims, int r,
                           const char *own, struct ctrun_error *err)
{
    const char *prefix = kinds[claims[r].kind].prefix;
    const size_t length = strlen(prefix);
    char text[CTRUN_ERROR_TEXT_MAX] = "";
    int rc;

    if (strncmp(own, prefix, length) == 0 && strncmp(own + length, ": ", 2) == 0)
        own += length + 2;
    (void)ct_copy(text, sizeof text, own);
    rc = ctrun_broadcast(group, text, text, sizeof text, CTRUN_U8, r, NULL, err);
    text[sizeof text - 1] = '\0';
    return rc < 0 ? rc
                  : ct_fail(err, CTRUN_E_MISMATCH, "rank %d failed (%s): %s", r,
                            ct_error_name((int)claims[r].refused), text);
}

static int explain_options(const struct claim *claims, int r,
                           const struct ct_ddp_model *model, struct ctrun_error *err)
{
    struct option options[OPTIONS];
    uint64_t first, other;
    int i = 0;

    claim_options(options, model);
    while (claims[r].options[i] == claims[0].options[i])
        i++;
    first = claims[0].options[i];
    other = claims[r].options[i];
    if (options[i].how == EQUALITY)
        return ct_fail(err, CTRUN_E_MISMATCH, "%s differs between rank 0 and rank %d",
                       options[i].name, r);
    if (options[i].how == DTYPE)
        return ct_fail(err, CTRUN_E_MISMATCH, "%s is %s on rank 0 and %s on rank %d",
                       options[i].name, ct_dtype_name((int)first),
                       ct_dtype_name((int)other), r);
    return ct_fail(err, CTRUN_E_MISMATCH, "%s is %llu on rank 0 and %llu on rank %d",
                   options[i].name, (unsigned long long)first,
                   (unsigned long long)other, r);
}

static int compare_claims(struct ctrun_group *group, const struct claim *claims,
                          const struct ct_ddp_model *model, struct ctrun_error *err)
{
    int ranks = ctrun_group_size(group);
    bool counts = true;

    for (int r = 0; r < ranks; r++) {
        if (claims[r].no_init_sync != claims[0].no_init_sync)
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "rank %d has the option no_init_sync, rank %d has not",
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
            return explain_params(group, model, err);
    for (int r = 0; r < ranks; r++)
        if (memcmp(claims[r].options, claims[0].options, sizeof claims->options) != 0)
            return explain_options(claims, r, model, err);
    return 0;
}

/* 0: all ranks create the same. */
static int check_kinds(const struct claim *claims, int ranks, struct ctrun_error *err)
{
    for (int r = 1; r < ranks; r++)
        if (claims[r].kind != claims[0].kind)
            return ct_fail(err, CTRUN_E_MISMATCH, "rank 0 calls %s, rank %d %s",
                           kinds[claims[0].kind].call, r, kinds[claims[r].kind].call);
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
    const int ranks = ctrun_group_size(group);
    int rc, refused;

    claims = ct_zalloc_array((size_t)ranks, sizeof *claims);
    if (!claims)
        return ct_fail(err, -ENOMEM, "%s: out of memory", kinds[mine.kind].prefix);
    rc = ctrun_all_gather(group, &mine, claims, sizeof mine, CTRUN_U8, NULL, to);
    if (rc == 0)
        rc = check_kinds(claims, ranks, to);
    refused = rc == 0 ? find_refusal(claims, ranks) : -1;
    if (refused >= 0)
        rc = explain_refusal(group, claims, refused,
                             local < 0 && err ? err->text : ctrun_strerror(local), to);
    else if (rc == 0)
        rc = compare_claims(group, claims, model, err);
    free(claims);
    if (local == 0 && rc < 0)
        ct_wrap(err, "%s", kinds[mine.kind].prefix);
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
