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

/* The struct that holds `node` as its `member`. */
#define ct_list_entry(node, type, member)                                              \
    ((type *)(void *)((char *)(node)-offsetof(type, member)))

#define ct_list_for_each(it, head) for (it = (head)->next; it != (head); it = it->next)
/* `it` may be removed in the body; `keep` is a second pointer of the same type. */
#define ct_list_for_each_safe(it, keep, head)                                          \
    for (it = (head)->next, keep = it->next; it != (head); it = keep, keep = it->next)
