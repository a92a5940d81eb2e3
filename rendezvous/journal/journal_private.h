/* SPDX-License-Identifier: Apache-2.0 */
/* What journal.c writes and journal_book.c reads. */
#pragma once

enum {
    JOURNAL_RECORD_BYTES = 5 /* kind and length */
};

enum journal_kind {
    JOURNAL_SETTINGS = 1, /* struct round_settings, heartbeat */
    JOURNAL_STATE = 2,    /* the round's own fields */
    JOURNAL_TROUBLE = 3,  /* STOP; VERDICT, or the failures so far as one */
    JOURNAL_MEMBER = 4,   /* a member: state, key, names, JOIN, START */
    JOURNAL_STANDING = 5, /* id, state, is_survivor, is_asked, is_excluded */
    JOURNAL_GONE = 6,     /* id */
    JOURNAL_WORLD = 8,    /* WORLD, losses sent since, lost ranks */
    JOURNAL_FAULTS = 9,   /* exclude_after; hosts whose hardware has failed */
    JOURNAL_RELOAD = 10,  /* the number of the reload that this world began with */
    JOURNAL_AFTER = 7,    /* ct_hash() of the run's batch before this one */
};
