/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    ID_SLICE_MS = 200,    /* between two checks for a lost rank */
    RANKS_PER_ROOT = 128, /* CTRUN_NCCL_RANKS_PER_ROOT; the same default as torch */
};

int ct_nccl_get_value(const struct ct_backend_setup *setup, const char *key,
                      void **value, size_t *length, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    int rc;

    for (;;) {
        uint64_t slice_ms = ct_deadline_ms(ID_SLICE_MS);

        if (slice_ms > setup->deadline_ms || !setup->losses.check)
            slice_ms = setup->deadline_ms;
        rc = store->get(store->context, key, value, length, slice_ms, err);
        if (rc != CTRUN_E_TIMEOUT || slice_ms == setup->deadline_ms)
            return rc;
        if ((rc = ct_loss_check(&setup->losses, err)) < 0)
            return rc;
    }
}

/* One of RANKS_PER_ROOT members makes an id, so that not all members connect to the same root. All
 * ranks must have the same NCCL and, as the manual says, the same environment. */
static int count_roots(int size)
{
    const char *given = getenv("CTRUN_NCCL_RANKS_PER_ROOT");
    const long ranks = given ? strtol(given, NULL, 10) : RANKS_PER_ROOT;

    if (!ct_nccl_api.ncclCommInitRankScalable || ranks < 1 || ranks >= size)
        return 1;
    return (int)((size + ranks - 1) / ranks);
}

/* Roots are `size / count` members apart, beginning with member 0. They make the ids and store them
 * for the others. */
static int share_id(ncclUniqueId *id, int i, int count,
                    const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    const int root = (int)((long)i * setup->size / count);
    char key[CT_BOOTSTRAP_KEY_MAX];
    ncclResult_t made;
    size_t length;
    void *value;
    int rc;

    (void)ct_format(key, sizeof key, "%s/nccl/%d", setup->key, i);
    if (setup->me == root) {
        if ((made = ct_nccl_api.ncclGetUniqueId(id)) != ncclSuccess)
            return ct_nccl_fail(err, "unique id", made);
        return setup->size == 1 ? 0
                                : store->set(store->context, key, id, sizeof *id,
                                             setup->deadline_ms, err);
    }
    rc = ct_nccl_get_value(setup, key, &value, &length, err);
    if (rc < 0)
        return ct_wrap(err, "nccl: the id of rank %d", setup->ranks[root]), rc;
    if (length == sizeof *id)
        memcpy(id, value, sizeof *id);
    else /* from a member 0 with another back end: an error text */
        rc = ct_fail(err, CTRUN_E_MISMATCH, "%.*s", (int)length, (const char *)value);
    free(value);
    return rc;
}

/* Tells the members of both back ends what member 0 has found. If this fails, nobody can be
 * told. */
static void publish_difference(const struct ct_backend_setup *setup,
                               const struct ctrun_error *why)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    unsigned char table[CTRUN_ERROR_TEXT_MAX + 16];
    char key[CT_BOOTSTRAP_KEY_MAX];
    struct ct_writer out;

    ct_writer_init(&out, table, sizeof table);
    ct_write_i64(&out, why->code);
    ct_write_str(&out, why->text);
    (void)ct_format(key, sizeof key, "%s/table", setup->key);
    (void)store->set(store->context, key, table, out.length, setup->deadline_ms, NULL);
    (void)ct_format(key, sizeof key, "%s/nccl/0", setup->key);
    (void)store->set(store->context, key, why->text, strlen(why->text),
                     setup->deadline_ms, NULL);
}

/* Member 0: checks that member i has our back end. */
static int check_hello(const struct ct_backend_setup *setup, int i,
                       struct ctrun_error *err)
{
    char key[CT_BOOTSTRAP_KEY_MAX];
    struct ctrun_error why;
    size_t length;
    void *value;
    bool is_ours;
    int rc;

    (void)ct_format(key, sizeof key, "%s/hello/%d", setup->key, setup->ranks[i]);
    if ((rc = ct_nccl_get_value(setup, key, &value, &length, err)) < 0)
        return ct_wrap(err, "nccl: wait for rank %d", setup->ranks[i]), rc;
    is_ours = length == strlen(CT_NCCL_HELLO) &&
              memcmp(value, CT_NCCL_HELLO, length) == 0;
    free(value);
    if (is_ours)
        return 0;
    (void)ct_fail(&why, CTRUN_E_MISMATCH,
                  "open group: rank %d has the back end host, rank %d has nccl",
                  setup->ranks[i], setup->ranks[0]);
    publish_difference(setup, &why);
    return ct_fail(err, why.code, "%s", why.text);
}

/* Finds members with another back end, because NCCL itself would wait for them. */
static int exchange_hellos(const struct ct_backend_setup *setup,
                           struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    char key[CT_BOOTSTRAP_KEY_MAX];
    int rc = 0;

    if (setup->me > 0) {
        (void)ct_format(key, sizeof key, "%s/hello/%d", setup->key,
                        setup->ranks[setup->me]);
        return store->set(store->context, key, CT_NCCL_HELLO, strlen(CT_NCCL_HELLO),
                          setup->deadline_ms, err);
    }
    for (int i = 1; rc == 0 && i < setup->size; i++)
        rc = check_hello(setup, i, err);
    return rc;
}

/* Stores our own id first: others wait for it while we wait for theirs. */
static int share_ids(ncclUniqueId *ids, int count, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    int rc = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; rc == 0 && i < count; i++)
            if ((setup->me == (int)((long)i * setup->size / count)) == (pass == 0))
                rc = share_id(&ids[i], i, count, setup, err);
    return rc;
}

ncclConfig_t ct_nccl_config(const struct ctrun_group_options *options)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    if (options->min_ctas)
        config.minCTAs = options->min_ctas;
    if (options->max_ctas)
        config.maxCTAs = options->max_ctas;
    return config;
}

int ct_nccl_make_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                      struct ctrun_error *err)
{
    ncclConfig_t config = ct_nccl_config(setup->options);
    const int count = count_roots(setup->size);
    ncclUniqueId *ids = ct_zalloc_array((size_t)count, sizeof *ids);
    ncclResult_t begun = ncclSuccess;
    int rc = ids ? exchange_hellos(setup, err)
                 : ct_fail(err, -ENOMEM, "nccl: out of memory");

    if (rc == 0)
        rc = share_ids(ids, count, setup, err);
    if (rc == 0) {
        nccl->id_hash = (uint32_t)ct_hash(&ids[0], sizeof ids[0]);
        ct_nccl_open_board(nccl, setup);
    }
    if (rc == 0 && count == 1)
        begun = ct_nccl_api.ncclCommInitRankConfig(&nccl->comm, setup->size, ids[0],
                                                   setup->me, &config);
    else if (rc == 0)
        begun = ct_nccl_api.ncclCommInitRankScalable(&nccl->comm, setup->size,
                                                     setup->me, count, ids, &config);
    free(ids);
    if (rc == 0 && begun != ncclSuccess && begun != ncclInProgress)
        rc = ct_nccl_fail(err, "open", begun);
    return rc < 0 ? rc : ct_nccl_settle(nccl, "open", setup->deadline_ms, err);
}
