/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples of an epoch were consumed, as sums that do not depend on the order: the number of
 * samples, and two sums of 64 bits over a hash of each index. A sample that is missing, or counted
 * twice, changes the sums; several such errors cancel out with a probability of 2^-128. */
#include <errno.h>
#include <inttypes.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"

static void add(struct ctrun_ledger *ledger, uint64_t index)
{
    const uint64_t hash = ct_hash_mix(index + 0x9e3779b97f4a7c15u);

    ledger->count++;
    ledger->sums[0] += hash;
    ledger->sums[1] += ct_hash_mix(hash ^ 0x2545f4914f6cdd1du);
}

int ctrun_ledger_add(struct ctrun_ledger *ledger, const uint64_t *indices, size_t count,
                     struct ctrun_error *err)
{
    struct ctrun_ledger all = CTRUN_LEDGER_INIT;
    int rc = ct_sized_read(&all, sizeof all, ledger, "CTRUN_LEDGER_INIT", err);

    if (rc < 0)
        return rc;
    if (!indices && count)
        return ct_fail(err, -EINVAL, "ledger: indices is NULL");
    for (size_t i = 0; i < count; i++)
        add(&all, indices[i]);
    return ct_sized_write(ledger, &all, sizeof all, "CTRUN_LEDGER_INIT", err);
}

int ctrun_ledger_total(const struct ctrun_ledger *mine, struct ctrun_group *group,
                       struct ctrun_ledger *total, struct ctrun_error *err)
{
    struct ctrun_ledger all = CTRUN_LEDGER_INIT;
    uint64_t words[3];
    int rc = ct_sized_read(&all, sizeof all, mine, "CTRUN_LEDGER_INIT", err);

    if (rc == 0) /* a struct that is wrong is refused before the others take part */
        rc = ct_sized_write(total, &all, sizeof all, "CTRUN_LEDGER_INIT", err);
    if (rc < 0)
        return rc;
    words[0] = all.count;
    memcpy(words + 1, all.sums, sizeof all.sums);
    if (group && (rc = ctrun_all_reduce(group, words, words, 3, CTRUN_I64, CTRUN_SUM,
                                        NULL, err)) < 0)
        return ct_wrap(err, "ledger"), rc;
    all.count = words[0];
    memcpy(all.sums, words + 1, sizeof all.sums);
    return ct_sized_write(total, &all, sizeof all, "CTRUN_LEDGER_INIT", err);
}

int ctrun_ledger_check(const struct ctrun_ledger *total, uint64_t count,
                       struct ctrun_error *err)
{
    struct ctrun_ledger all = CTRUN_LEDGER_INIT, wanted = CTRUN_LEDGER_INIT;
    int rc = ct_sized_read(&all, sizeof all, total, "CTRUN_LEDGER_INIT", err);

    if (rc < 0)
        return rc;
    if (all.count != count)
        return ct_fail(err, CTRUN_E_MISMATCH,
                       "ledger: %" PRIu64
                       " samples were consumed, the epoch has %" PRIu64,
                       all.count, count);
    for (uint64_t i = 0; i < count; i++)
        add(&wanted, i);
    if (memcmp(all.sums, wanted.sums, sizeof all.sums) == 0)
        return 0;
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "ledger: %" PRIu64
                   " samples were consumed, as many as the epoch has, but not each of "
                   "them exactly once",
                   count);
}

int ctrun_ledger_format(const struct ctrun_ledger *ledger, char *text, size_t size,
                        struct ctrun_error *err)
{
    struct ctrun_ledger all = CTRUN_LEDGER_INIT;
    int rc = ct_sized_read(&all, sizeof all, ledger, "CTRUN_LEDGER_INIT", err);

    if (rc < 0)
        return rc;
    if (!text)
        return ct_fail_null(err, "text");
    if (ct_format(text, size, "%" PRIu64 " %016" PRIx64 "%016" PRIx64, all.count,
                  all.sums[0], all.sums[1]) < 0)
        return ct_fail(err, -ENAMETOOLONG,
                       "ledger: the text does not fit into %zu bytes: give %d", size,
                       CTRUN_LEDGER_TEXT_MAX);
    return 0;
}

/* Exactly 16 digits. */
static bool parse_sum(const char *text, uint64_t *out)
{
    char digits[17];

    if (strspn(text, "0123456789abcdef") < 16)
        return false;
    memcpy(digits, text, 16);
    digits[16] = '\0';
    *out = strtoull(digits, NULL, 16);
    return true;
}

int ctrun_ledger_parse(struct ctrun_ledger *ledger, const char *text,
                       struct ctrun_error *err)
{
    struct ctrun_ledger all = CTRUN_LEDGER_INIT;
    size_t length;
    char count[21];

    if (!text)
        return ct_fail_null(err, "text");
    length = strcspn(text, " ");
    if (length >= sizeof count || strlen(text) != length + 1 + 32)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "ledger: '%.60s' is not the text of a ledger", text);
    memcpy(count, text, length);
    count[length] = '\0';
    if (ct_parse_u64(count, 0, UINT64_MAX, &all.count) < 0 ||
        !parse_sum(text + length + 1, &all.sums[0]) ||
        !parse_sum(text + length + 1 + 16, &all.sums[1]))
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "ledger: '%.60s' is not the text of a ledger", text);
    return ct_sized_write(ledger, &all, sizeof all, "CTRUN_LEDGER_INIT", err);
}
