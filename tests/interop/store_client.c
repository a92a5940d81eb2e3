/* SPDX-License-Identifier: Apache-2.0 */
/* Tries every operation of our store client with the server at HOST PORT, which must be empty.
 *
 *     store_client HOST PORT           prints "modern" or "legacy" and "ok"
 *     store_client HOST PORT open TIMEOUT_MS
 *     store_client HOST PORT wait      waits for a key that is not there
 *
 * Exit 0; 1 with a line for what differs; 3 and the error's text when a call failed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/client/store.h"

static struct ctrun_error err;

static int must(int rc, const char *what)
{
    if (rc >= 0)
        return rc;
    printf("%s: %d %s\n", what, rc, err.text);
    exit(3);
}

static void want(bool holds, const char *what)
{
    if (holds)
        return;
    printf("differs: %s\n", what);
    exit(1);
}

static void want_value(struct ctrun_store *store, const char *key, const char *text)
{
    void *value;
    size_t length;

    must(ctrun_store_get(store, key, &value, &length, &err), key);
    if (length != strlen(text) || memcmp(value, text, length) != 0)
        printf("%s is '%s', not '%s'\n", key, (char *)value, text);
    want(length == strlen(text) && memcmp(value, text, length) == 0, key);
    free(value);
}

static void set(struct ctrun_store *store, const char *key, const char *text)
{
    must(ctrun_store_set(store, key, text, strlen(text), &err), "set");
}

static void want_swap(struct ctrun_store *store, const char *key, const char *expected,
                      const char *desired, const char *actual)
{
    void *value;
    size_t length;

    must(ct_store_compare_set(store, key, expected, desired, &value, &length, &err),
         key);
    want(length == strlen(actual) && memcmp(value, actual, length) == 0, key);
    free(value);
}

static void simple_operations(struct ctrun_store *store)
{
    int64_t number;

    set(store, "k", "v");
    want_value(store, "k", "v");
    set(store, "empty", "");
    want_value(store, "empty", "");
    must(ctrun_store_add(store, "c", 1, NULL, &err), "add");
    must(ctrun_store_add(store, "c", -51, &number, &err), "add");
    want(number == -50, "add");
    want_value(store, "c", "-50");
    want_swap(store, "swap", "", "first", "first");
    want_swap(store, "swap", "nope", "third", "first");
    want_swap(store, "swap", "first", "", "");
    want_swap(store, "not there", "expected", "new", "expected");
    want(must(ctrun_store_delete(store, "k", &err), "delete") == 1, "delete");
    want(must(ctrun_store_delete(store, "k", &err), "delete") == 0, "delete again");
}

static void several_keys(struct ctrun_store *store)
{
    const char *const keys[] = {"m1", "m2", "m3"};
    const char *const some[] = {"m1", "none", "m3"};

    set(store, "m1", "one");
    set(store, "m2", "");
    set(store, "m3", "3");
    want(must(ct_store_check(store, keys, 3, &err), "check") == 1, "check");
    want(must(ct_store_check(store, some, 3, &err), "check") == 0,
         "check with a missing key");
    want(must(ct_store_check(store, NULL, 0, &err), "check") == 1, "check of nothing");
}

/* A late set must not shift the replies after a wait that timed out. */
static void timeouts(struct ctrun_store *store, const char *host, int port)
{
    const char *const keys[] = {"m1", "never/1", "never/2"};
    struct ctrun_store *other;

    want(ctrun_store_wait(store, keys, 3, 50, &err) == CTRUN_E_TIMEOUT,
         "wait times out");
    want(strstr(err.text, "'never/1', 'never/2'") && !strstr(err.text, "'m1'"),
         err.text);
    must(ct_store_connect(&other, host, port, 20000, &err), "open another");
    set(other, "never/1", "x");
    set(other, "never/2", "x");
    must(ctrun_store_wait(other, keys, 3, 10000, &err), "wait");
    ctrun_store_close(other);
    want_value(store, "never/2", "x");
}

static void large_values(struct ctrun_store *store)
{
    size_t length = 8 << 20;
    char *value = malloc(length);
    size_t got_length;
    void *got;

    if (!value)
        exit(1);
    for (size_t i = 0; i < length; i++)
        value[i] = (char)(i * 31 >> 3);
    must(ctrun_store_set(store, "large", value, length, &err), "set 8 MiB");
    must(ctrun_store_get(store, "large", &got, &got_length, &err), "get 8 MiB");
    want(got_length == length && !memcmp(got, value, length), "8 MiB come back");
    want(ctrun_store_set(store, "large", value, length + 1, &err) == -EMSGSIZE,
         "8 MiB + 1");
    must(ctrun_store_delete(store, "large", &err), "store works after a refusal");
    free(got);
    free(value);
}

static void long_keys(struct ctrun_store *store)
{
    char key[8193];

    memset(key, 'k', sizeof key);
    key[8192] = '\0';
    want(ctrun_store_set(store, key, "v", 1, &err) == -EMSGSIZE, "a long key");
    want(strstr(err.text, "a key has at most 8191 bytes") != NULL, err.text);
    key[8191] = '\0';
    set(store, key, "v");
    want_value(store, key, "v");
    must(ctrun_store_delete(store, key, &err), "delete");
}

static void server_closes(struct ctrun_store *store)
{
    set(store, "text", "abc");
    want(ctrun_store_add(store, "text", 1, NULL, &err) == CTRUN_E_PROTOCOL,
         "add to text");
    want(strstr(err.text, "number") != NULL, err.text);
    want(ctrun_store_set(store, "k", "v", 1, &err) == -EPIPE, "a dead store says so");
}

int main(int argc, char **argv)
{
    const bool is_open_only = argc > 4 && strcmp(argv[3], "open") == 0;
    const bool is_wait_only = argc > 3 && strcmp(argv[3], "wait") == 0;
    const char *key = "k";
    struct ctrun_store *store;
    int port;

    if (argc < 3)
        return 2;
    port = (int)strtol(argv[2], NULL, 10);
    must(ct_store_connect(&store, argv[1], port,
                          is_open_only ? strtoull(argv[4], NULL, 10) : 20000, &err),
         "open");
    if (is_wait_only)
        must(ctrun_store_wait(store, &key, 1, 50, &err), "wait");
    if (!is_open_only) {
        printf("%s\n", ct_store_is_modern(store) ? "modern" : "legacy");
        simple_operations(store);
        several_keys(store);
        timeouts(store, argv[1], port);
        large_values(store);
        long_keys(store);
        server_closes(store);
    }
    ctrun_store_close(store);
    printf("ok\n");
    return 0;
}
