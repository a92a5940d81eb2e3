/* SPDX-License-Identifier: Apache-2.0 */
/* Lines wait in a list, oldest first, and in a hash table, whose chains are oldest first too:
 * the first one of the same text that is newer than the worker's last line is its like. */
#include "agent/collapse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/str.h"

enum {
    BUCKETS = 1024,
    WORD_BITS = 64
};

struct entry {
    struct ct_list node;  /* of all that wait */
    struct ct_list chain; /* of its bucket */
    struct collapse_line line;
    uint64_t hash;
    uint64_t number; /* grows from entry to entry */
    uint64_t due_ms;
    int count;          /* of its workers */
    uint64_t workers[]; /* and then the text */
};

struct collapse {
    struct ct_list entries;
    struct ct_list buckets[BUCKETS];
    int count;
    int expected;
    size_t words; /* of a set of workers */
    size_t max_bytes;
    size_t bytes; /* that wait */
    uint64_t delay_ms;
    uint64_t number;
    uint64_t last[]; /* by worker: the number of its newest line */
};

struct collapse *collapse_create(int count, size_t max_bytes, uint64_t delay_ms)
{
    struct collapse *collapse = ct_zalloc(sizeof *collapse +
                                          (size_t)count * sizeof collapse->last[0]);

    if (!collapse)
        return NULL;
    ct_list_init(&collapse->entries);
    for (int i = 0; i < BUCKETS; i++)
        ct_list_init(&collapse->buckets[i]);
    collapse->count = collapse->expected = count;
    collapse->words = ((size_t)count + WORD_BITS - 1) / WORD_BITS;
    collapse->max_bytes = max_bytes;
    collapse->delay_ms = delay_ms;
    return collapse;
}

static struct entry *first(const struct collapse *collapse)
{
    return ct_list_is_empty(&collapse->entries)
               ? NULL
               : ct_list_entry(collapse->entries.next, struct entry, node);
}

void collapse_destroy(struct collapse *collapse)
{
    while (collapse && first(collapse))
        collapse_pop(collapse);
    free(collapse);
}

void collapse_set_expected(struct collapse *collapse, int expected)
{
    collapse->expected = expected;
}

/* FNV-1a over eight bytes at a time. */
static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u ^ length;
    uint64_t word;

    for (; length >= sizeof word; text += sizeof word, length -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 32;
    }
    for (; length > 0; text++, length--)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static size_t size_of(const struct collapse *collapse, size_t length)
{
    return sizeof(struct entry) + collapse->words * sizeof(uint64_t) + length;
}

static void add_worker(struct collapse *collapse, struct entry *entry, int worker)
{
    entry->workers[worker / WORD_BITS] |= UINT64_C(1) << worker % WORD_BITS;
    entry->count++;
    collapse->last[worker] = entry->number;
}

static struct entry *find_like(struct collapse *collapse, int worker,
                               const struct collapse_line *line, uint64_t hash)
{
    struct ct_list *bucket = &collapse->buckets[hash % BUCKETS];
    struct ct_list *at;

    ct_list_for_each(at, bucket) {
        struct entry *entry = ct_list_entry(at, struct entry, chain);

        if (entry->hash == hash && entry->number > collapse->last[worker] &&
            entry->line.kind == line->kind && entry->line.length == line->length &&
            memcmp(entry->line.text, line->text, line->length) == 0)
            return entry;
    }
    return NULL;
}

static struct entry *create_entry(struct collapse *collapse,
                                  const struct collapse_line *line, uint64_t hash)
{
    struct entry *entry = ct_zalloc(size_of(collapse, line->length));
    char *text;

    if (!entry)
        return NULL;
    text = (char *)(entry->workers + collapse->words);
    memcpy(text, line->text, line->length);
    entry->line = *line;
    entry->line.text = text;
    entry->line.workers = entry->workers;
    entry->hash = hash;
    entry->number = ++collapse->number;
    ct_list_add(&collapse->entries, &entry->node);
    ct_list_add(&collapse->buckets[hash % BUCKETS], &entry->chain);
    collapse->bytes += size_of(collapse, line->length);
    return entry;
}

int collapse_add(struct collapse *collapse, int worker, int kind, const char *text,
                 size_t length, uint64_t now_ms)
{
    const struct collapse_line line = {.text = text, .length = length, .kind = kind};
    const uint64_t hash = hash_of(text, length);
    struct entry *entry = find_like(collapse, worker, &line, hash);

    if (!entry) {
        if (collapse->bytes > 0 &&
            collapse->bytes + size_of(collapse, length) > collapse->max_bytes)
            return -ENOBUFS;
        if (!(entry = create_entry(collapse, &line, hash)))
            return -ENOMEM;
        entry->due_ms = now_ms + collapse->delay_ms;
    }
    add_worker(collapse, entry, worker);
    return 0;
}

const struct collapse_line *collapse_peek(const struct collapse *collapse,
                                          uint64_t now_ms, bool is_all)
{
    const struct entry *entry = first(collapse);

    if (!entry)
        return NULL;
    return is_all || entry->count >= collapse->expected || entry->due_ms <= now_ms
               ? &entry->line
               : NULL;
}

void collapse_pop(struct collapse *collapse)
{
    struct entry *entry = first(collapse);

    if (!entry)
        return;
    collapse->bytes -= size_of(collapse, entry->line.length);
    ct_list_remove(&entry->node);
    ct_list_remove(&entry->chain);
    free(entry);
}

uint64_t collapse_wake_ms(const struct collapse *collapse)
{
    const struct entry *entry = first(collapse);

    if (!entry)
        return UINT64_MAX;
    return entry->count >= collapse->expected ? 0 : entry->due_ms;
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

void collapse_format(char *dst, size_t size, const uint64_t *workers, int count,
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
