/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that a node or the server found about a failure: keys and texts, in the order in which they
 * are printed. Programs decide by the key, the launcher has a label for each key, the text is for
 * users. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* On the wire as u8; numbered forever. */
enum ct_fact_key {
    CT_FACT_ROLE = 1, /* of the worker, if its node has several */
    CT_FACT_FAULT = 2,
    CT_FACT_AT = 3, /* a frame of its stack; the next ones are CALLED_BY */
    CT_FACT_CALLED_BY = 4,
    CT_FACT_RAISED = 5, /* where an exception was raised */
    CT_FACT_WHY = 6,
    CT_FACT_LIMIT = 7, /* of memory */
    CT_FACT_MEMORY = 8,
    CT_FACT_LARGER = 9, /* processes that used more of it */
    CT_FACT_PROOF = 10,
    CT_FACT_BECAUSE = 11,
    CT_FACT_LIKELY = 12, /* a guess */
    CT_FACT_CORE = 13,
    CT_FACT_IS_IN = 14, /* the function or system call that a stuck one is in */
    CT_FACT_SO = 15,
    CT_FACT_NOW = 16,      /* what ctrun does now */
    CT_FACT_DO = 17,       /* what the user can do */
    CT_FACT_WAS = 18,      /* where a lost node was: address, ranks */
    CT_FACT_JOINED = 19,   /* the nodes that were there */
    CT_FACT_MISSING = 20,  /* one missing node each */
    CT_FACT_TRIED = 21,    /* addresses of group rank 0 that do not answer either */
    CT_FACT_WORKS = 22,    /* a link that works: to the rendezvous */
    CT_FACT_WORLD = 23,    /* all ranks, when one is stuck */
    CT_FACT_CALLS = 24,    /* where ranks of its node stand in their collectives */
    CT_FACT_AGAIN = 25,    /* what an earlier failure had, too */
    CT_FACT_HARDWARE = 26, /* text that shows a broken machine */
    CT_FACT_CHAOS = 27,    /* what ctrunctl chaos did to it */
    CT_FACT_LAST = CT_FACT_CHAOS,
};

enum {
    CT_FACTS_MAX = 1024, /* bytes of all texts, terminators included */
    CT_FACTS_COUNT_MAX = 48,
};

struct ct_facts {
    uint8_t count;
    uint16_t used; /* bytes of `text` */
    struct ct_fact {
        uint8_t key; /* enum ct_fact_key, or one of a newer peer; never 0 */
        uint16_t at; /* where in `text` its text begins; ends with NUL */
    } list[CT_FACTS_COUNT_MAX];
    char text[CT_FACTS_MAX];
};

/* Adds a copy of `text` after the others. False: no room, and nothing has changed. */
bool ct_facts_add(struct ct_facts *facts, uint8_t key, const char *text);
/* Removes all facts with that key. */
void ct_facts_remove(struct ct_facts *facts, uint8_t key);
/* The text of the fact at `i`, below `count`. Borrowed; it may be changed in place, not made longer. */
const char *ct_facts_text(const struct ct_facts *facts, int i);
/* The text of the first fact with that key, borrowed; NULL: there is none. */
const char *ct_facts_find(const struct ct_facts *facts, enum ct_fact_key key);
