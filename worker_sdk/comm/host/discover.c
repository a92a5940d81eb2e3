/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/discover.h"

#include <errno.h>
#include <sys/random.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    TABLE_GRACE_MS =
        3000, /* member 0 has our deadline and then must still report missing ranks */
    PROBE_MS = 20, /* longer than a store needs to answer a question about one key */
    PROBE_ALL_MS = 1000,
    NAMES_MAX = 8, /* missing ranks named in an error; the rest are only counted */
};

static int key_format(char *key, const struct ct_backend_setup *setup, const char *what,
                      int rank)
{
    return rank < 0 ? ct_format(key, CT_BOOTSTRAP_KEY_MAX, "%s/%s", setup->key, what)
                    : ct_format(key, CT_BOOTSTRAP_KEY_MAX, "%s/%s/%d", setup->key, what,
                                rank);
}

/* Whether that member was given the same members as `self`. */
static int check_members(const struct ct_peer *peer, const struct ct_peer *self,
                         struct ctrun_error *err)
{
    if (peer->members == self->members)
        return 0;
    return ct_fail(
        err, CTRUN_E_MISMATCH,
        "open group: rank %d passed other members than rank %d: all ranks must pass "
        "the same members at the same call; ctrun_group_split() makes several groups "
        "at once",
        peer->rank, self->rank);
}

static int check_backend(const char *hello, size_t length, int rank, int self,
                         struct ctrun_error *err)
{
    if (length != strlen(CT_NCCL_HELLO) || memcmp(hello, CT_NCCL_HELLO, length) != 0)
        return 0;
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "open group: rank %d has the back end nccl, rank %d has host", rank,
                   self);
}

/* All hellos are in the store, as far as there was time to look. late: the rank whose hello member 0 has
 * waited for until the deadline; -1 on others. */
static int fail_late(const struct ct_backend_setup *setup, int late,
                     struct ctrun_error *err)
{
    if (late >= 0)
        return ct_fail(err, CTRUN_E_TIMEOUT,
                       "open group: rank %d of %d members was not there in time", late,
                       setup->size);
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "open group: no answer in time from rank %d, which collects the "
                   "addresses of all %d members",
                   setup->ranks[0], setup->size);
}

/* Asks the store for each hello and names in err the ranks that have none. */
static int fail_missing(const struct ct_backend_setup *setup, int late,
                        struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    uint64_t end_ms = ct_deadline_ms(PROBE_ALL_MS);
    char key[CT_BOOTSTRAP_KEY_MAX];
    char names[160] = "";
    size_t used = 0;
    int missing = 0;
    int asked = 0;
    bool does_answer = true;

    for (; asked < setup->size && ct_left_ms(end_ms) > 0; asked++) {
        int rc;

        (void)key_format(key, setup, "hello", setup->ranks[asked]);
        rc = store->wait(store->context, key, ct_deadline_ms(PROBE_MS), NULL);
        does_answer = rc == 0 || rc == CTRUN_E_TIMEOUT;
        if (!does_answer)
            break;
        if (rc == 0)
            continue;
        if (missing++ < NAMES_MAX) {
            int n = ct_format(names + used, sizeof names - used, "%s%d",
                              missing > 1 ? ", " : "", setup->ranks[asked]);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (missing == 0 && !does_answer)
        return ct_fail(
            err, CTRUN_E_TIMEOUT,
            "open group: the store does not answer: it is not known which rank of "
            "%d members is missing",
            setup->size);
    if (missing == 0)
        return fail_late(setup, late, err);
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "open group: %s%d of %d members did not connect: rank %s%s",
                   asked < setup->size ? "at least " : "", missing, setup->size, names,
                   missing > NAMES_MAX ? ", ..." : "");
}

/* Member 0: writes all hellos into the body of the table, in the order of the members. */
static int gather(struct ct_writer *out, const struct ct_peer *self,
                  const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    struct ct_peer peer;
    char key[CT_BOOTSTRAP_KEY_MAX];
    size_t length;
    void *hello;
    int rc;

    for (int i = 0; i < setup->size; i++) {
        (void)key_format(key, setup, "hello", setup->ranks[i]);
        if ((rc = store->get(store->context, key, &hello, &length, setup->deadline_ms,
                             err)) < 0)
            return rc == CTRUN_E_TIMEOUT ? fail_missing(setup, setup->ranks[i], err)
                                         : rc;
        if (length > CT_HELLO_MAX_BYTES)
            rc = ct_fail(
                err, CTRUN_E_PROTOCOL,
                "open group: the record of rank %d in the store has %zu bytes, "
                "at most %d are allowed",
                setup->ranks[i], length, CT_HELLO_MAX_BYTES);
        else if ((rc = check_backend(hello, length, setup->ranks[i], self->rank,
                                     err)) == 0 &&
                 ct_peer_decode(&peer, hello, length) == 0)
            rc = check_members(&peer, self, err);
        if (rc >= 0)
            ct_write_blob(out, hello, length);
        free(hello);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Member 0: publishes the table, or the error instead. All members wait for the table, so they get
 * the error at once and with the same text, not after their deadline. */
static int publish(const struct ct_peer *self, const struct ct_backend_setup *setup,
                   struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    size_t size = 64 + (size_t)setup->size * (CT_HELLO_MAX_BYTES + 4) +
                  CTRUN_ERROR_TEXT_MAX;
    unsigned char cookie[CT_COOKIE_BYTES];
    struct ctrun_error why = {.code = 0};
    char key[CT_BOOTSTRAP_KEY_MAX];
    struct ct_writer out;
    unsigned char *table;
    int rc;

    if (getrandom(cookie, sizeof cookie, 0) != sizeof cookie)
        return ct_fail(err, -errno, "open group: no random bytes: %s", strerror(errno));
    if (!(table = ct_zalloc(size)))
        return ct_fail(err, -ENOMEM, "open group: out of memory for %d members",
                       setup->size);
    ct_writer_init(&out, table, size);
    ct_write_i64(&out, 0);
    ct_write_raw(&out, cookie, sizeof cookie);
    if ((rc = gather(&out, self, setup, &why)) < 0) {
        ct_writer_init(&out, table, size);
        ct_write_i64(&out, rc);
        ct_write_str(&out, why.text);
    }
    if (rc == CTRUN_E_MISMATCH) { /* members with nccl wait for an id */
        (void)key_format(key, setup, "nccl", 0);
        (void)store->set(store->context, key, why.text, strlen(why.text),
                         ct_deadline_ms(TABLE_GRACE_MS), NULL);
    }
    (void)key_format(key, setup, "table", -1);
    rc = store->set(store->context, key, table, out.length,
                    ct_deadline_ms(TABLE_GRACE_MS), err);
    free(table);
    return rc;
}

/* Any program that can reach the store may have written to it: each hello is decoded with limits
 * and must be of the rank whose place it has. */
static int read_table(struct ct_peer *peers, unsigned char *cookie, const void *table,
                      size_t length, const struct ct_backend_setup *setup,
                      struct ctrun_error *err)
{
    const struct ct_peer self = peers[setup->me];
    char text[CTRUN_ERROR_TEXT_MAX];
    struct ct_reader in;
    const uint8_t *raw;
    int64_t code;
    int rc;

    ct_reader_init(&in, table, length);
    if ((code = ct_read_i64(&in)) < 0) {
        ct_read_str(&in, text, sizeof text);
        if (ct_read_end(&in) == 0)
            return ct_fail(err, (int)code, "%s", text);
        return ct_fail(err, (int)code,
                       "open group: rank %d failed, and its report cannot be read",
                       setup->ranks[0]);
    }
    if ((raw = ct_read_raw(&in, CT_COOKIE_BYTES)))
        memcpy(cookie, raw, CT_COOKIE_BYTES);
    for (int i = 0; i < setup->size; i++) {
        size_t bytes;
        const uint8_t *hello = ct_read_blob(&in, CT_HELLO_MAX_BYTES, &bytes);
        const bool is_whole = hello && ct_peer_decode(&peers[i], hello, bytes) == 0;

        if (is_whole && (rc = check_members(&peers[i], &self, err)) < 0)
            return rc;
        if (!is_whole || peers[i].rank != setup->ranks[i])
            return ct_fail(err, CTRUN_E_PROTOCOL,
                           "open group: the record of rank %d cannot be read: it is "
                           "damaged, or that rank has another version of ctrun",
                           setup->ranks[i]);
    }
    if (ct_read_end(&in) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "open group: the list of members from rank %d is damaged",
                       setup->ranks[0]);
    return 0;
}

/* The order is the same on all members: write the own hello, then read the table. Member 0 only
 * needs the hellos of the others, so no two members wait for each other. */
int ct_discover(struct ct_peer *peers, unsigned char *cookie,
                const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    unsigned char hello[CT_HELLO_MAX_BYTES];
    char key[CT_BOOTSTRAP_KEY_MAX];
    uint64_t table_ms;
    size_t length;
    void *table;
    int rc = ct_peer_encode(&peers[setup->me], hello, sizeof hello);

    if (rc < 0)
        return ct_fail(err, rc, "open group: the record of this rank exceeds %d bytes",
                       CT_HELLO_MAX_BYTES);
    (void)key_format(key, setup, "hello", setup->ranks[setup->me]);
    if ((rc = store->set(store->context, key, hello, (size_t)rc, setup->deadline_ms,
                         err)) < 0)
        return ct_wrap(err, "open group"), rc;
    if (setup->me == 0 && (rc = publish(&peers[setup->me], setup, err)) < 0)
        return rc;
    table_ms = setup->deadline_ms + TABLE_GRACE_MS;
    if (table_ms < setup->deadline_ms)
        table_ms = setup->deadline_ms;
    (void)key_format(key, setup, "table", -1);
    rc = store->get(store->context, key, &table, &length, table_ms, err);
    if (rc < 0)
        return rc == CTRUN_E_TIMEOUT ? fail_missing(setup, -1, err)
                                     : (ct_wrap(err, "open group"), rc);
    rc = read_table(peers, cookie, table, length, setup, err);
    free(table);
    return rc;
}
