/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of our store client against the server at HOST PORT, which must be empty.
 *
 *     store_client HOST PORT           prints "modern" or "legacy" and "ok"
 *     store_client HOST PORT barrier RANK SIZE TIMEOUT_MS
 *     store_client HOST PORT open TIMEOUT_MS
 *
 * Exit 0; 1 with a line for what differs; 3 and the error's text when a call failed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/client/barrier.h"
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

static void want_value(struct ct_store *store, const char *key, const char *text)
{
    void *value;
    size_t length;

    must(ct_store_get(store, key, &value, &length, &err), key);
    if (length != strlen(text) || memcmp(value, text, length) != 0)
        printf("%s is '%s', not '%s'\n", key, (char *)value, text);
    want(length == strlen(text) && memcmp(value, text, length) == 0, key);
    free(value);
}

static void set(struct ct_store *store, const char *key, const char *text)
{
    must(ct_store_set(store, key, text, strlen(text), &err), "set");
}

static void simple_operations(struct ct_store *store)
{
    int64_t number;

    set(store, "k", "v");
    want_value(store, "k", "v");
    set(store, "empty", "");
    want_value(store, "empty", "");
    must(ct_store_add(store, "c", 1, NULL, &err), "add");
    must(ct_store_add(store, "c", -51, &number, &err), "add");
    want(number == -50, "add");
    want_value(store, "c", "-50");
    must(ct_store_num_keys(store, &number, &err), "num_keys");
    want(number == 3, "num_keys");
    want(must(ct_store_delete(store, "k", &err), "delete") == 1, "delete");
    want(must(ct_store_delete(store, "k", &err), "delete") == 0, "delete again");
}

static void compare_set(struct ct_store *store)
{
    void *value;
    size_t length;

    must(ct_store_compare_set(store, "cs", "", 0, "first", 5, &value, &length, &err),
         "cs");
    want(length == 5 && !memcmp(value, "first", 5), "compare_set creates");
    free(value);
    must(ct_store_compare_set(store, "cs", "nope", 4, "second", 6, &value, &length,
                              &err),
         "cs");
    want(length == 5 && !memcmp(value, "first", 5), "compare_set refuses");
    free(value);
}

static void several_keys(struct ct_store *store)
{
    const char *const keys[] = {"m1", "m2", "m3"};
    char texts[3][4] = {"one", "", "3"};
    const struct ct_store_value in[] = {{texts[0], 3}, {texts[1], 0}, {texts[2], 1}};
    const char *const some[] = {"m1", "none", "m3"};
    struct ct_store_value out[3];
    bool present[3];

    must(ct_store_multi_set(store, keys, in, 3, &err), "multi_set");
    must(ct_store_multi_get(store, keys, out, 3, &err), "multi_get");
    for (int i = 0; i < 3; i++) {
        want(out[i].length == in[i].length &&
                 !memcmp(out[i].data, in[i].data, in[i].length),
             "multi_get");
        free(out[i].data);
    }
    want(must(ct_store_check(store, keys, 3, &err), "check") == 1, "check");
    want(must(ct_store_check(store, some, 3, &err), "check") == 0,
         "check with a missing key");
    want(must(ct_store_check(store, NULL, 0, &err), "check") == 1, "check of nothing");
    must(ct_store_check_each(store, some, 3, present, &err), "check_each");
    want(present[0] && !present[1] && present[2], "check_each");
    if (ct_store_is_modern(store)) {
        must(ct_store_append(store, "ap", "abc", 3, &err), "append");
        must(ct_store_append(store, "ap", "def", 3, &err), "append");
        want_value(store, "ap", "abcdef");
    } else {
        want(ct_store_append(store, "ap", "abc", 3, &err) == CTRUN_E_UNSUPPORTED,
             "append");
    }
}

/* A late set must not shift the replies after a wait that timed out. */
static void timeouts(struct ct_store *store)
{
    const char *const keys[] = {"m1", "never/1", "never/2"};
    struct ct_store *other;
    int64_t number;
    int64_t again;

    must(ct_store_num_keys(store, &number, &err), "num_keys");
    want(ct_store_wait(store, keys, 3, 50, &err) == CTRUN_E_TIMEOUT, "wait times out");
    want(strstr(err.text, "'never/1', 'never/2'") && !strstr(err.text, "'m1'"),
         err.text);
    must(ct_store_clone(&other, store, &err), "clone");
    set(other, "never/1", "x");
    set(other, "never/2", "x");
    must(ct_store_wait(other, keys, 3, 10000, &err), "wait");
    ct_store_close(other);
    must(ct_store_num_keys(store, &again, &err), "num_keys");
    want(again == number + 2, "num_keys after a timed-out wait");
}

static void large_values(struct ct_store *store)
{
    size_t length = 8 << 20;
    char *value = malloc(length);
    size_t got_length;
    void *got;

    if (!value)
        exit(1);
    for (size_t i = 0; i < length; i++)
        value[i] = (char)(i * 31 >> 3);
    must(ct_store_set(store, "large", value, length, &err), "set 8 MiB");
    must(ct_store_get(store, "large", &got, &got_length, &err), "get 8 MiB");
    want(got_length == length && !memcmp(got, value, length), "8 MiB come back");
    want(ct_store_set(store, "large", value, length + 1, &err) == -EMSGSIZE,
         "8 MiB + 1");
    must(ct_store_delete(store, "large", &err), "store works after a refusal");
    free(got);
    free(value);
}

static void server_closes(struct ct_store *store)
{
    set(store, "text", "abc");
    want(ct_store_add(store, "text", 1, NULL, &err) == CTRUN_E_PROTOCOL, "add to text");
    want(strstr(err.text, "number") != NULL, err.text);
    want(ct_store_set(store, "k", "v", 1, &err) == -EPIPE, "a dead store says so");
}

int main(int argc, char **argv)
{
    uint64_t timeout_ms = 20000;
    struct ct_store *store;
    const char *mode = argc > 3 ? argv[3] : "";

    if (argc < 3)
        return 2;
    if (strcmp(mode, "open") == 0)
        timeout_ms = strtoull(argv[4], NULL, 10);
    must(ct_store_open(&store, argv[1], (int)strtol(argv[2], NULL, 10), timeout_ms,
                       &err),
         "open");
    if (strcmp(mode, "barrier") == 0) {
        must(ct_store_barrier(store, "b/1", (int)strtol(argv[4], NULL, 10),
                              (int)strtol(argv[5], NULL, 10),
                              strtoull(argv[6], NULL, 10), &err),
             "barrier");
    } else if (strcmp(mode, "open") != 0) {
        printf("%s\n", ct_store_is_modern(store) ? "modern" : "legacy");
        simple_operations(store);
        compare_set(store);
        several_keys(store);
        timeouts(store);
        large_values(store);
        server_closes(store);
    }
    ct_store_close(store);
    printf("ok\n");
    return 0;
}
