/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of --stage: manifests, sets of chunks, names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/stage/stage_map.h"
#include "launcher/stage/stage_piece.h"
#include "launcher/stage/stage_set.h"
#include "launcher/stage/stage_text.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

enum {
    MB = 1 << 20
};

/* A writable path, as entries have it. */
#define T(text) ((char[]){text})

static int add(struct stage_manifest *manifest, enum stage_kind kind, char *path,
               uint64_t size)
{
    const struct stage_entry entry = {.kind = kind,
                                      .mode = kind == STAGE_LINK ? 0 : 0640,
                                      .mtime_ns = -1500000000,
                                      .size = size,
                                      .path = path,
                                      .target = kind == STAGE_LINK ? T("../x") : NULL};

    return stage_manifest_add(manifest, &entry);
}

/* A folder, a file of three chunks, an empty file, a link, a file of one chunk. */
static void fill(struct stage_manifest *manifest)
{
    *manifest = (struct stage_manifest){.word = 3, .is_removed = true};
    memset(manifest->key, 0xab, sizeof manifest->key);
    manifest->dir = ct_strdup("/local");
    manifest->program = ct_strdup("data/big");
    assert_int_equal(stage_manifest_add_source(manifest, "/nfs/data", "/vol/7/data"),
                     0);
    assert_int_equal(add(manifest, STAGE_FOLDER, T("data"), 0), 0);
    assert_int_equal(add(manifest, STAGE_FILE, T("data/big"), 9 * MB), 0);
    assert_int_equal(add(manifest, STAGE_FILE, T("data/empty"), 0), 0);
    assert_int_equal(add(manifest, STAGE_LINK, T("data/link"), 0), 0);
    assert_int_equal(add(manifest, STAGE_FILE, T("data/small"), 7), 0);
    memset(manifest->sums, 0x5c, (size_t)manifest->chunk_count * CT_DIGEST_BYTES);
}

TEST(a_manifest_arrives_as_it_was)
{
    struct stage_manifest manifest;
    struct stage_manifest back;
    struct ct_buf buf;
    struct ct_buf again;

    fill(&manifest);
    ct_buf_init(&buf, MB);
    ct_buf_init(&again, MB);
    assert_int_equal(stage_manifest_encode(&buf, &manifest), 0);
    assert_int_equal(
        stage_manifest_decode(&back, ct_buf_data(&buf), ct_buf_length(&buf)), 0);
    assert_int_equal(back.count, 5);
    assert_int_equal(back.chunk_count, 4);
    assert_int_equal(back.bytes, 9 * MB + 7);
    assert_int_equal(back.word, 3);
    assert_true(back.is_removed);
    assert_string_equal(back.dir, "/local");
    assert_string_equal(back.program, "data/big");
    assert_string_equal(back.sources[0].real, "/vol/7/data");
    assert_string_equal(back.sources[0].name, "data");
    assert_string_equal(back.entries[3].target, "../x");
    assert_int_equal(back.entries[1].mode, 0640);
    assert_true(back.entries[1].mtime_ns == -1500000000);
    assert_int_equal(stage_manifest_encode(&again, &back), 0);
    assert_int_equal(ct_buf_length(&again), ct_buf_length(&buf));
    assert_memory_equal(ct_buf_data(&again), ct_buf_data(&buf), ct_buf_length(&buf));
    for (size_t n = 0; n < ct_buf_length(&buf); n++) {
        struct stage_manifest cut;

        assert_int_equal(stage_manifest_decode(&cut, ct_buf_data(&buf), n), -EBADMSG);
        assert_null(cut.entries);
    }
    stage_manifest_deinit(&manifest);
    stage_manifest_deinit(&back);
    ct_buf_deinit(&buf);
    ct_buf_deinit(&again);
}

TEST(a_manifest_survives_every_failed_allocation)
{
    struct stage_manifest manifest;
    struct stage_manifest back;
    struct ct_buf buf;
    size_t n = 0;
    int rc;

    fill(&manifest);
    ct_buf_init(&buf, MB);
    assert_int_equal(stage_manifest_encode(&buf, &manifest), 0);
    do {
        ct_alloc_fail_at(++n);
        rc = stage_manifest_decode(&back, ct_buf_data(&buf), ct_buf_length(&buf));
        ct_alloc_fail_at(0);
    } while (rc < 0 && n < 1000);
    assert_true(n > 10);
    assert_int_equal(rc, 0);
    stage_manifest_deinit(&manifest);
    stage_manifest_deinit(&back);
    ct_buf_deinit(&buf);
}

/* As from a malicious sender: the rights of a file matter as much as its place. */
TEST(a_program_outside_and_the_right_to_be_another_user_are_refused)
{
    struct stage_entry entry = {.kind = STAGE_FILE, .mode = 04755, .path = T("x")};
    struct stage_manifest manifest;
    struct stage_manifest back;
    struct ct_buf buf;

    fill(&manifest);
    assert_int_equal(stage_manifest_add(&manifest, &entry), -EINVAL);
    entry.mode = 0755;
    assert_int_equal(stage_manifest_add(&manifest, &entry), 0);
    free(manifest.program);
    manifest.program = ct_strdup("../bin/x");
    ct_buf_init(&buf, MB);
    assert_int_equal(stage_manifest_encode(&buf, &manifest), 0);
    assert_int_equal(
        stage_manifest_decode(&back, ct_buf_data(&buf), ct_buf_length(&buf)), -EBADMSG);
    stage_manifest_deinit(&manifest);
    ct_buf_deinit(&buf);
}

TEST(chunks_are_counted_over_all_files)
{
    struct stage_manifest manifest;
    const struct stage_entry *file;

    fill(&manifest);
    file = stage_manifest_file(&manifest, 2);
    assert_string_equal(file->path, "data/big");
    assert_int_equal(stage_chunk_offset(file, 2), 8 * MB);
    assert_int_equal(stage_chunk_size(file, 1), 4 * MB);
    assert_int_equal(stage_chunk_size(file, 2), MB);
    assert_string_equal(stage_manifest_file(&manifest, 0)->path, "data/big");
    file = stage_manifest_file(&manifest, 3);
    assert_string_equal(file->path, "data/small");
    assert_int_equal(stage_chunk_size(file, 3), 7);
    assert_ptr_equal(stage_manifest_find(&manifest, "data/link"), &manifest.entries[3]);
    assert_null(stage_manifest_find(&manifest, "data/lin"));
    assert_null(stage_manifest_find(&manifest, "data/small/x"));
    stage_manifest_deinit(&manifest);
}

TEST(paths_that_leave_the_folder_are_refused)
{
    static const char *const bad[] = {"",   "/",    "/etc", "a/",    "a//b",  ".",
                                      "..", "a/..", "../a", "a/./b", "a/../b"};
    static const char *const good[] = {"a", "...", "a/..b", ".a/b.", "a b/\n"};
    char name[STAGE_NAME_MAX + 2];
    char path[STAGE_PATH_MAX + 2];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(stage_path_is_safe(bad[i]));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(stage_path_is_safe(good[i]));
    memset(name, 'n', sizeof name);
    name[STAGE_NAME_MAX] = '\0';
    assert_true(stage_path_is_safe(name));
    name[STAGE_NAME_MAX] = 'n';
    name[STAGE_NAME_MAX + 1] = '\0';
    assert_false(stage_path_is_safe(name));
    for (size_t i = 0; i < sizeof path; i++)
        path[i] = i % 2 ? '/' : 'p';
    path[STAGE_PATH_MAX - 1] = '\0';
    assert_true(stage_path_is_safe(path));
    path[STAGE_PATH_MAX - 1] = '/';
    path[STAGE_PATH_MAX + 1] = '\0';
    assert_false(stage_path_is_safe(path));
}

TEST(nothing_lies_below_a_link_or_a_file_or_comes_twice)
{
    struct stage_manifest manifest = {0};

    assert_int_equal(add(&manifest, STAGE_FOLDER, T("d"), 0), 0);
    assert_int_equal(add(&manifest, STAGE_FOLDER, T("d"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_LINK, T("d/l"), 0), 0);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/l/x"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/l"), 0), -EINVAL);
    /* Wrong order. */
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/a"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/m"), 0), 0);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/m/x"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/n/x"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_FILE, T("e/x"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_FOLDER, T("d/n"), 0), 0);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/n/x"), 0), 0);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/n.txt"), 0), 0);
    assert_int_equal(add(&manifest, STAGE_FILE, T("d/n/y"), 0), -EINVAL);
    assert_int_equal(add(&manifest, STAGE_FILE, T("dd"), UINT64_MAX), -E2BIG);
    assert_int_equal(manifest.count, 6);
    stage_manifest_deinit(&manifest);
}

TEST(the_order_is_that_of_a_walk)
{
    static const char *const sorted[] = {"a",     "a/b",   "a/b/c", "a/c",
                                         "a\x01", "a.txt", "a\xff"};

    for (size_t i = 0; i < sizeof sorted / sizeof *sorted; i++)
        for (size_t j = 0; j < sizeof sorted / sizeof *sorted; j++) {
            const int order = stage_path_compare(sorted[i], sorted[j]);

            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
}

TEST(a_set_arrives_in_as_many_messages_as_it_takes)
{
    struct stage_set set;
    struct stage_set back;
    uint8_t data[16]; /* room for two runs */
    uint32_t from = 0;
    int messages = 0;

    assert_int_equal(stage_set_init(&set, 1000), 0);
    assert_int_equal(stage_set_init(&back, 1000), 0);
    assert_int_equal(stage_set_next(&set, 0), 1000);
    stage_set_add(&set, 64); /* the first of a word that is scanned as a whole */
    assert_int_equal(stage_set_next(&set, 0), 64);
    stage_set_remove(&set, 64);
    for (uint32_t i = 0; i < 1000; i += i < 500 ? 1 : 7)
        stage_set_add(&set, i);
    stage_set_remove(&set, 250);
    stage_set_remove(&set, 250);
    assert_int_equal(set.count, 499 + 72);
    assert_false(stage_set_has(&set, 250));
    assert_false(stage_set_has(&set, 1000));
    assert_int_equal(stage_set_next(&set, 501), 507);
    while (from < set.size) {
        const size_t length = stage_set_encode(&set, &from, data, sizeof data);

        assert_int_equal(stage_set_decode(&back, data, length), 0);
        messages++;
    }
    assert_int_equal(messages, (2 + 71 + 1) / 2);
    assert_int_equal(back.count, set.count);
    assert_memory_equal(back.bits, set.bits, 1000 / 64 * 8);
    stage_set_deinit(&set);
    stage_set_deinit(&back);
}

TEST(a_run_outside_of_the_set_is_refused)
{
    static const uint8_t bad[][16] = {
        {9, 0, 0, 0, 2, 0, 0, 0},                         /* ends beyond the set */
        {11, 0, 0, 0, 1, 0, 0, 0},                        /* begins beyond the set */
        {9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},             /* overflows */
        {1, 0, 0, 0, 0, 0, 0, 0},                         /* an empty run */
        {5, 0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0}, /* overlaps the run before */
    };
    struct stage_set set;

    assert_int_equal(stage_set_init(&set, 10), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(stage_set_decode(&set, bad[i], i < 4 ? 8 : 16), -EBADMSG);
    assert_int_equal(stage_set_decode(&set, bad[0], 7), -EBADMSG);
    assert_int_equal(stage_set_decode(&set, bad[0], 0), 0);
    stage_set_deinit(&set);
}

TEST(a_set_without_memory_is_empty)
{
    struct stage_set set;

    ct_alloc_fail_at(1);
    assert_int_equal(stage_set_init(&set, 1000), -ENOMEM);
    ct_alloc_fail_at(0);
    assert_false(stage_set_has(&set, 3));
    assert_int_equal(stage_set_next(&set, 0), set.size);
    stage_set_deinit(&set);
}

TEST(a_piece_has_bytes)
{
    uint8_t data[STAGE_PIECE_HEAD_BYTES + 2] = {0};
    struct stage_piece piece;

    stage_piece_put_head(data, 258, 3);
    data[8] = 'x';
    assert_int_equal(stage_piece_decode(&piece, data, sizeof data), 0);
    assert_int_equal(piece.chunk, 258);
    assert_int_equal(piece.offset, 3);
    assert_int_equal(piece.length, 2);
    assert_ptr_equal(piece.data, data + 8);
    assert_int_equal(data[1], 1); /* little-endian */
    for (size_t n = 0; n <= STAGE_PIECE_HEAD_BYTES; n++)
        assert_int_equal(stage_piece_decode(&piece, data, n), -EBADMSG);
}

TEST(a_path_is_found_below_its_source)
{
    struct stage_manifest manifest;
    char path[128];

    fill(&manifest);
    assert_int_equal(stage_map_path(path, sizeof path, &manifest, "/nfs/data"), 0);
    assert_string_equal(path, "data");
    assert_int_equal(stage_map_path(path, sizeof path, &manifest, "/vol/7/data/b/c"),
                     0);
    assert_string_equal(path, "data/b/c");
    assert_int_equal(stage_map_path(path, sizeof path, &manifest, "/nfs/data2"),
                     -ENOENT);
    assert_int_equal(stage_map_path(path, 6, &manifest, "/nfs/data/long"),
                     -ENAMETOOLONG);
    stage_manifest_deinit(&manifest);
}

TEST(paths_are_made_absolute_by_their_letters)
{
    static const char *const cases[][3] = {
        {"/home/joe", "./train", "/home/joe/train"},
        {"/home/joe", "../x//y/", "/home/x/y"},
        {"/home", "/a/./b/..", "/a"},
        {"/", "../..", "/"},
        {"/home", "", "/home"},
    };
    char path[32];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            stage_map_normalise(path, sizeof path, cases[i][0], cases[i][1]), 0);
        assert_string_equal(path, cases[i][2]);
    }
    assert_int_equal(stage_map_normalise(path, 8, "/home/joe", "train"), -ENAMETOOLONG);
}

TEST(the_usual_variables_name_the_copy_and_no_others)
{
    char *const env[] = {T("PATH=/nfs/data/bin:/usr/bin:"),
                         T("PYTHONPATH=nfs/data:/nfs/data2:/vol/7/data/../data/lib"),
                         T("VIRTUAL_ENV=/nfs/data"), T("OTHER=/nfs/data"), NULL};
    struct stage_manifest manifest;
    struct ct_env out;

    fill(&manifest);
    assert_int_equal(ct_env_init(&out, env), 0);
    assert_int_equal(stage_map_env(&out, &manifest, "/tmp/s/k-0"), 0);
    assert_string_equal(ct_env_get(&out, "PATH"), "/tmp/s/k-0/data/bin:/usr/bin:");
    assert_string_equal(ct_env_get(&out, "PYTHONPATH"),
                        "nfs/data:/nfs/data2:/tmp/s/k-0/data/lib");
    assert_string_equal(ct_env_get(&out, "VIRTUAL_ENV"), "/tmp/s/k-0/data");
    assert_string_equal(ct_env_get(&out, "OTHER"), "/nfs/data");
    assert_string_equal(ct_env_get(&out, STAGE_ENV), "/tmp/s/k-0");
    assert_null(ct_env_get(&out, "LD_LIBRARY_PATH"));
    ct_env_deinit(&out);
    stage_manifest_deinit(&manifest);
}

TEST(sizes_are_for_people)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {999, "999 B"},
                 {1000, "1.0 kB"},
                 {3400000000, "3.4 GB"},
                 {999600, "1.0 MB"},
                 {99960, "100 kB"},
                 {123000000, "123 MB"},
                 {UINT64_MAX, "18.4 EB"}};
    char text[STAGE_TEXT_MAX];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stage_text_bytes(text, cases[i].bytes);
        assert_string_equal(text, cases[i].text);
    }
}

/* RFC 7693 has no vector of this length; this one comes from `b2sum -l 256`. */
TEST(parts_of_two_files_have_two_names)
{
    char one[STAGE_TEXT_NAME_MAX];
    char other[STAGE_TEXT_NAME_MAX];

    stage_text_part(one, "data/weights.0");
    stage_text_part(other, "data/weights.1");
    assert_string_not_equal(one, other);
}

TEST(a_digest_is_what_b2sum_prints)
{
    static const uint8_t wanted[] = {0xbd, 0xdd, 0x81, 0x3c, 0x63, 0x42, 0x39, 0x72,
                                     0x31, 0x71, 0xef, 0x3f, 0xee, 0x98, 0x57, 0x9b,
                                     0x94, 0x96, 0x4e, 0x3b, 0xb1, 0xcb, 0x3e, 0x42,
                                     0x72, 0x62, 0xc8, 0xc0, 0x68, 0xd5, 0x23, 0x19};
    struct ct_digest digest;
    uint8_t sum[CT_DIGEST_BYTES];

    ct_digest_init(&digest);
    ct_digest_add(&digest, "a", 1);
    ct_digest_add(&digest, "bc", 2);
    ct_digest_end(&digest, sum);
    assert_memory_equal(sum, wanted, sizeof sum);
}
