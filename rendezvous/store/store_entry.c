/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a store and their values. Every byte allocated here counts against
 * STORE_DATA_MAX_BYTES. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store_private.h"
#include "worker_sdk/base/alloc.h"

enum {
    VALUE_MIN_BYTES =
        24, /* holds any i64 as text, so that counters are allocated once */
    /* What an entry costs beyond its struct and key: heap headers and its share of the table. */
    ENTRY_OVERHEAD_BYTES = 48,
    DECIMAL_MAX_BYTES = 20, /* "-9223372036854775808" */
};

static size_t entry_bytes(const struct store_entry *entry)
{
    return sizeof *entry + entry->node.key_length + ENTRY_OVERHEAD_BYTES;
}

static struct store_entry *entry_of(struct store_map_node *node)
{
    return (struct store_entry *)(void *)((char *)node -
                                          offsetof(struct store_entry, node));
}

static struct store_entry *create(struct store *store, struct ct_tcpstore_blob key,
                                  uint64_t hash)
{
    struct store_entry *entry = ct_zalloc(sizeof *entry + key.length);

    if (!entry)
        return NULL;
    if (key.length)
        memcpy(entry->key, key.data, key.length);
    entry->node = (struct store_map_node){entry->key, key.length, hash};
    ct_list_init(&entry->waits);
    ct_list_init(&entry->of_group);
    if (store_map_add(&store->map, &entry->node) < 0) {
        free(entry);
        return NULL;
    }
    ct_list_add(&store->entries, &entry->link);
    store->data_bytes += entry_bytes(entry);
    store_group_attach(store, entry);
    return entry;
}

/* Empties an entry that was found by name but belongs to a finished run. NULL: the entry was
 * freed. */
static struct store_entry *renew(struct store *store, struct store_entry *entry)
{
    bool is_kept;

    if (!store_group_has_dropped(entry))
        return entry;
    entry->pins++;
    if (entry->has_value)
        store_entry_clear(store, entry);
    store_group_detach(store, entry);
    entry->pins--;
    is_kept = entry->queue_head || entry->pins || !ct_list_is_empty(&entry->waits);
    if (is_kept)
        store_group_attach(store, entry);
    else
        store_entry_destroy(store, entry);
    return is_kept ? entry : NULL;
}

static struct store_entry *find(struct store *store, struct ct_tcpstore_blob key,
                                uint64_t hash)
{
    struct store_map_node *node = store_map_find(&store->map, hash, key.data,
                                                 key.length);

    return node ? renew(store, entry_of(node)) : NULL;
}

struct store_entry *store_find(struct store *store, struct ct_tcpstore_blob key)
{
    return find(store, key, store_map_hash(&store->map, key.data, key.length));
}

struct store_entry *store_find_or_create(struct store *store,
                                         struct ct_tcpstore_blob key)
{
    uint64_t hash = store_map_hash(&store->map, key.data, key.length);
    struct store_entry *entry = find(store, key, hash);

    return entry ? entry : create(store, key, hash);
}

void store_entry_destroy(struct store *store, struct store_entry *entry)
{
    while (entry->queue_head) {
        struct store_item *item = entry->queue_head;

        entry->queue_head = item->next;
        store->data_bytes -= sizeof *item + item->length;
        free(item);
    }
    store->data_bytes -= entry_bytes(entry) + entry->capacity;
    store_group_detach(store, entry);
    ct_list_remove(&entry->link);
    store_map_remove(&store->map, &entry->node);
    free(entry->value);
    free(entry);
}

bool store_entry_exists(const struct store_entry *entry)
{
    return entry && (entry->has_value || entry->queue_head);
}

void store_entry_tidy(struct store *store, struct store_entry *entry)
{
    if (!store_entry_exists(entry) && !entry->pins && ct_list_is_empty(&entry->waits))
        store_entry_destroy(store, entry);
}

bool store_purge(struct store *store, size_t max)
{
    struct store_entry *entry;

    for (; max > 0 && (entry = store_group_find_dropped(store)); max--)
        (void)renew(store, entry);
    return store_group_find_dropped(store) != NULL;
}

/* ---- Values ----------------------------------------------------------------------------- */

static void become_key(struct store *store, struct store_entry *entry)
{
    if (entry->has_value)
        return;
    entry->has_value = true;
    store_group_count(store, entry, 1);
}

static void replace_buffer(struct store *store, struct store_entry *entry,
                           uint8_t *data, size_t capacity)
{
    store->data_bytes += capacity - entry->capacity; /* wraps and wraps back */
    entry->value = data;
    entry->capacity = capacity;
}

/* True if a value of this length may use the present buffer: it fits, and wastes little. */
static bool fits(const struct store_entry *entry, size_t length)
{
    return length <= entry->capacity &&
           (entry->capacity <= VALUE_MIN_BYTES || entry->capacity / 4 <= length);
}

int store_entry_set(struct store *store, struct store_entry *entry, const uint8_t *data,
                    size_t length)
{
    if (!fits(entry, length)) {
        size_t capacity = length > VALUE_MIN_BYTES ? length : VALUE_MIN_BYTES;
        uint8_t *fresh = ct_realloc_array(NULL, capacity, 1);

        if (!fresh)
            return -ENOMEM;
        free(entry->value);
        replace_buffer(store, entry, fresh, capacity);
    }
    if (length)
        memcpy(entry->value, data, length);
    entry->length = length;
    become_key(store, entry);
    return 0;
}

int store_entry_append(struct store *store, struct store_entry *entry,
                       const uint8_t *data, size_t length)
{
    size_t total = entry->length + length;

    if (total > entry->capacity) {
        size_t capacity = total > 2 * entry->capacity ? total : 2 * entry->capacity;
        uint8_t *longer = ct_realloc_array(entry->value, capacity, 1);

        if (!longer)
            return -ENOMEM;
        replace_buffer(store, entry, longer, capacity);
    }
    if (length)
        memcpy(entry->value + entry->length, data, length);
    entry->length = total;
    become_key(store, entry);
    return 0;
}

void store_entry_take(struct store *store, struct store_entry *entry, uint8_t *data,
                      size_t length)
{
    free(entry->value);
    replace_buffer(store, entry, data, length);
    entry->length = length;
    become_key(store, entry);
}

void store_entry_clear(struct store *store, struct store_entry *entry)
{
    free(entry->value);
    replace_buffer(store, entry, NULL, 0);
    entry->length = 0;
    store_group_count(store, entry, -1);
    entry->has_value = false;
    store_entry_tidy(store, entry);
}

/* ---- Counters: decimal text, as strtoll() reads it --------------------------------------- */

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Blanks, a sign, digits; anything after the digits is ignored. 0, or -EINVAL if there is no digit
 * or the number does not fit. */
static int parse_decimal(const uint8_t *text, size_t length, uint64_t *out)
{
    const uint8_t *end;
    const uint8_t *digits;
    uint64_t limit = INT64_MAX;
    uint64_t value = 0;
    bool is_negative;

    if (!length) /* text may be NULL then */
        return -EINVAL;
    end = text + length;
    while (text < end && is_blank(*text))
        text++;
    is_negative = text < end && *text == '-';
    if (is_negative)
        limit++;
    if (text < end && (*text == '-' || *text == '+'))
        text++;
    for (digits = text; text < end && *text >= '0' && *text <= '9'; text++) {
        unsigned int digit = *text - '0';

        if (value > (limit - digit) / 10)
            return -EINVAL;
        value = value * 10 + digit;
    }
    *out = is_negative ? 0 - value : value;
    return text > digits ? 0 : -EINVAL;
}

/* Writes value so that it ends at `end`; returns where it begins. */
static uint8_t *format_decimal(uint8_t *end, int64_t value)
{
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    do
        *--end = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        *--end = '-';
    return end;
}

int store_entry_add(struct store *store, struct store_entry *entry, int64_t delta,
                    int64_t *result)
{
    uint8_t text[DECIMAL_MAX_BYTES];
    uint8_t *start;
    uint64_t sum = 0;
    int rc;

    if (entry->has_value && (rc = parse_decimal(entry->value, entry->length, &sum)) < 0)
        return rc;
    sum += (uint64_t)delta; /* wraps, as PyTorch's servers do */
    *result = (int64_t)sum;
    start = format_decimal(text + sizeof text, *result);
    return store_entry_set(store, entry, start, (size_t)(text + sizeof text - start));
}
