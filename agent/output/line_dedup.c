/* SPDX-License-Identifier: Apache-2.0 */
/* Lines wait in a list, oldest first, and in a hash table, whose chains are oldest first, too: a
 * new line is merged with the first one of the same text that is newer than its worker's last
 * line. */
#include "agent/output/line_dedup.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/str.h"

enum {
    BUCKETS = 1024,
    WORD_BITS = 64
};

struct entry {
    struct ct_list node;  /* in the list of all waiting lines */
    struct ct_list chain; /* in the chain of its bucket */
    struct line_dedup_line line;
    uint64_t hash;
    uint64_t number; /* increases from entry to entry */
    uint64_t due_ms;
    int count;          /* number of its workers */
    uint64_t workers[]; /* and then the text */
};

struct line_dedup {
    struct ct_list entries;
    struct ct_list buckets[BUCKETS];
    int count;
    int expected;
    size_t words; /* of a set of workers */
    size_t max_bytes;
    size_t bytes; /* of all waiting lines */
    uint64_t delay_ms;
    uint64_t number;
    uint64_t last[]; /* by worker: the number of its newest line */
};

struct line_dedup *line_dedup_create(int count, size_t max_bytes, uint64_t delay_ms)
{
    struct line_dedup *dedup = ct_zalloc(sizeof *dedup +
                                         (size_t)count * sizeof dedup->last[0]);

    if (!dedup)
        return NULL;
    ct_list_init(&dedup->entries);
    for (int i = 0; i < BUCKETS; i++)
        ct_list_init(&dedup->buckets[i]);
    dedup->count = dedup->expected = count;
    dedup->words = ((size_t)count + WORD_BITS - 1) / WORD_BITS;
    dedup->max_bytes = max_bytes;
    dedup->delay_ms = delay_ms;
    return dedup;
}

static struct entry *first(const struct line_dedup *dedup)
{
    return ct_list_is_empty(&dedup->entries)
               ? NULL
               : ct_list_entry(dedup->entries.next, struct entry, node);
}

void line_dedup_destroy(struct line_dedup *dedup)
{
    while (dedup && first(dedup))
        line_dedup_pop(dedup);
    free(dedup);
}

void line_dedup_set_expected(struct line_dedup *dedup, int expected)
{
    dedup->expected = expected;
}

/* FNV-1a over eight bytes at a time. */
static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = CT_HASH_START ^ length;
    uint64_t word;

    for (; length >= sizeof word; text += sizeof word, length -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = (hash ^ word) * CT_HASH_PRIME;
        hash ^= hash >> 32;
    }
    hash = ct_hash_add(hash, text, length);
    return hash ^ hash >> 32;
}

static size_t size_of(const struct line_dedup *dedup, size_t length)
{
    return sizeof(struct entry) + dedup->words * sizeof(uint64_t) + length;
}

static void add_worker(struct line_dedup *dedup, struct entry *entry, int worker)
{
    entry->workers[worker / WORD_BITS] |= UINT64_C(1) << worker % WORD_BITS;
    entry->count++;
    dedup->last[worker] = entry->number;
}

static struct entry *find_like(struct line_dedup *dedup, int worker,
                               const struct line_dedup_line *line, uint64_t hash)
{
    struct ct_list *bucket = &dedup->buckets[hash % BUCKETS];

    ct_list_for_each(struct entry, entry, bucket, chain) {
        /* Only lines newer than the worker's last one: so its own lines stay in order, and its
         * second "x" is never merged with its first. */
        if (entry->hash == hash && entry->number > dedup->last[worker] &&
            entry->line.kind == line->kind && entry->line.length == line->length &&
            memcmp(entry->line.text, line->text, line->length) == 0)
            return entry;
    }
    return NULL;
}

/* One block: the entry, the set of its workers, its text. `line` points into it. */
static struct entry *create_entry(struct line_dedup *dedup,
                                  const struct line_dedup_line *line, uint64_t hash)
{
    struct entry *entry = ct_zalloc(size_of(dedup, line->length));
    char *text;

    if (!entry)
        return NULL;
    text = (char *)(entry->workers + dedup->words);
    memcpy(text, line->text, line->length);
    entry->line = *line;
    entry->line.text = text;
    entry->line.workers = entry->workers;
    entry->hash = hash;
    entry->number = ++dedup->number;
    ct_list_add(&dedup->entries, &entry->node);
    ct_list_add(&dedup->buckets[hash % BUCKETS], &entry->chain);
    dedup->bytes += size_of(dedup, line->length);
    return entry;
}

int line_dedup_add(struct line_dedup *dedup, int worker, int kind, const char *text,
                   size_t length, uint64_t now_ms)
{
    const struct line_dedup_line line = {.text = text, .length = length, .kind = kind};
    const uint64_t hash = hash_of(text, length);
    struct entry *entry = find_like(dedup, worker, &line, hash);

    if (!entry) {
        if (dedup->bytes > 0 &&
            dedup->bytes + size_of(dedup, length) > dedup->max_bytes)
            return -ENOBUFS;
        if (!(entry = create_entry(dedup, &line, hash)))
            return -ENOMEM;
        entry->due_ms = now_ms + dedup->delay_ms;
    }
    add_worker(dedup, entry, worker);
    return 0;
}

const struct line_dedup_line *line_dedup_peek(const struct line_dedup *dedup,
                                              uint64_t now_ms, bool is_all)
{
    const struct entry *entry = first(dedup);

    if (!entry)
        return NULL;
    return is_all || entry->count >= dedup->expected || entry->due_ms <= now_ms
               ? &entry->line
               : NULL;
}

void line_dedup_pop(struct line_dedup *dedup)
{
    struct entry *entry = first(dedup);

    if (!entry)
        return;
    dedup->bytes -= size_of(dedup, entry->line.length);
    ct_list_remove(&entry->node);
    ct_list_remove(&entry->chain);
    free(entry);
}

uint64_t line_dedup_wake_ms(const struct line_dedup *dedup)
{
    const struct entry *entry = first(dedup);

    if (!entry)
        return UINT64_MAX;
    return entry->count >= dedup->expected ? 0 : entry->due_ms;
}

static bool has_worker(const uint64_t *workers, int count, int i)
{
    return i < count && workers[i / WORD_BITS] >> i % WORD_BITS & 1;
}

static int format_range(char *dst, size_t size, unsigned from, unsigned to)
{
    return from == to ? ct_format(dst, size, "%u", from)
                      : ct_format(dst, size, "%u-%u", from, to);
}

void line_dedup_format(char *dst, size_t size, const uint64_t *workers, int count,
                       unsigned base)
{
    size_t used = 0;
    int total = 0;
    int end;
    int n = 0;

    dst[0] = '\0';
    for (int i = 0; i < count; i = end + 1) {
        for (end = i; has_worker(workers, count, end); end++)
            total++;
        if (end == i || n < 0)
            continue;
        if (used > 0 && used + 1 < size)
            dst[used++] = ',';
        n = format_range(dst + used, size - used, base + (unsigned)i,
                         base + (unsigned)end - 1);
        used += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        (void)ct_format(dst, size, "%d workers", total);
}
