/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of groups, in the worker store: over a connection of their own, so that any thread may
 * leave one while the session's thread waits for a request. Failures are not told: the notes
 * explain other failures, or end them sooner. */
#include <errno.h>

#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/session/session_private.h"

enum {
    NOTE_MS = 500 /* for a connection, and for each request */
};

/* Lock held. */
static int open_store(struct ctrun_session *session)
{
    int rc = 0;

    if (session->board_store && !ct_store_has_ended(session->board_store))
        return 0;
    ctrun_store_close(session->board_store);
    session->board_store = NULL;
    if (session->master_port == 0)
        return -ENOTCONN;
    rc = ct_store_connect(&session->board_store, session->master_addr,
                          session->master_port, NOTE_MS, NULL);
    if (rc == 0)
        ct_store_set_timeout(session->board_store, NOTE_MS);
    return rc;
}

/* Takes a value of the store, which another program may have set. */
static void take_text(char text[CT_NOTE_MAX], void *value, size_t length)
{
    if (length > CT_NOTE_MAX - 1)
        length = CT_NOTE_MAX - 1;
    memcpy(text, value, length);
    text[length] = '\0';
    ct_make_plain(text, false);
    free(value);
}

static int put(void *context, const char *key, const char *text)
{
    struct ctrun_session *session = context;
    int rc;

    pthread_mutex_lock(&session->board_lock);
    if ((rc = open_store(session)) == 0)
        rc = ctrun_store_set(session->board_store, key, text, strlen(text), NULL);
    pthread_mutex_unlock(&session->board_lock);
    return rc;
}

/* Lock held. */
static int ask_first(struct ctrun_session *session, const char *key, const char *text,
                     char first[CT_NOTE_MAX])
{
    size_t length;
    void *value;
    int rc = open_store(session);

    if (rc == 0 && (rc = ct_store_compare_set(session->board_store, key, "", text,
                                              &value, &length, NULL)) == 0)
        take_text(first, value, length);
    return rc;
}

/* A second time where the connection had ended since the last note. */
static int put_first(void *context, const char *key, const char *text,
                     char first[CT_NOTE_MAX])
{
    struct ctrun_session *session = context;
    int rc;

    pthread_mutex_lock(&session->board_lock);
    rc = ask_first(session, key, text, first);
    if (rc < 0 && rc != CTRUN_E_TIMEOUT && session->board_store)
        rc = ask_first(session, key, text, first);
    pthread_mutex_unlock(&session->board_lock);
    return rc;
}

/* It does not wait until another thread has its answer. */
static int read_note(void *context, const char *key, char text[CT_NOTE_MAX])
{
    struct ctrun_session *session = context;
    size_t length;
    void *value;
    int rc;

    if (pthread_mutex_trylock(&session->board_lock) != 0)
        return -EAGAIN;
    if ((rc = open_store(session)) == 0 &&
        (rc = ct_store_check(session->board_store, &key, 1, NULL)) == 1 &&
        (rc = ctrun_store_get(session->board_store, key, &value, &length, NULL)) == 0) {
        take_text(text, value, length);
        rc = 1;
    }
    pthread_mutex_unlock(&session->board_lock);
    return rc;
}

struct ct_board ct_session_board(struct ctrun_session *session)
{
    return (struct ct_board){
        .context = session, .put = put, .put_first = put_first, .read = read_note};
}
