/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive ring list: the node is part of the linked struct; nothing is allocated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ct_list {
    struct ct_list *next;
    struct ct_list *prev;
};

static inline void ct_list_init(struct ct_list *head)
{
    head->next = head->prev = head;
}

static inline bool ct_list_is_empty(const struct ct_list *head)
{
    return head->next == head;
}

/* Adds node at the end. */
static inline void ct_list_add(struct ct_list *head, struct ct_list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* Removes node from its list; the node is then a ring of its own, so this may be called twice. */
static inline void ct_list_remove(struct ct_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    ct_list_init(node);
}

static inline int ct_list_count(const struct ct_list *head)
{
    int count = 0;

    for (const struct ct_list *it = head->next; it != head; it = it->next)
        count++;
    return count;
}

/* The struct that holds `node` as its `member`. */
#define ct_list_entry(node, type, member)                                              \
    ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* NULL: `at` is the head. */
#define ct_list_entry_or_null(at, head, type, member)                                  \
    ((at) == (head) ? NULL : ct_list_entry(at, type, member))

/* Each struct of the list in turn, as `it`: a variable of the loop. */
#define ct_list_for_each(type, it, head, member)                                       \
    for (type *it = ct_list_entry_or_null((head)->next, head, type, member); it;       \
         it = ct_list_entry_or_null(it->member.next, head, type, member))
/* The same, and the body may remove `it`. */
#define ct_list_for_each_safe(type, it, head, member)                                  \
    for (type *it = ct_list_entry_or_null((head)->next, head, type, member),           \
              *keep_##it;                                                              \
         it &&                                                                         \
         (keep_##it = ct_list_entry_or_null(it->member.next, head, type, member),      \
         true);                                                                        \
         it = keep_##it)
