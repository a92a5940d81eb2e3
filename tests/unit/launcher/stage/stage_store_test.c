/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on one host, whose disk is a temporary folder: wrong data never becomes a file, and a
 * locked copy is not changed. The transfer through ssh is tested in tests/cli/test_stage.py. */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/stage/stage_scan.h"
#include "launcher/stage/stage_store.h"
#include "launcher/stage/stage_text.h"
#include "launcher/stage/stage_tree.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    NOBODY = 65534
};

struct room {
    char dir[64];
    struct stage_manifest manifest;
    uint8_t *content; /* content of data/f */
    size_t size;
};

static void write_file(const char *path, const void *data, size_t length)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, length), length);
    close(fd);
}

static char *path_in(const struct room *room, const char *name)
{
    static char path[PATH_MAX];

    assert_int_not_equal(ct_format(path, sizeof path, "%s/%s", room->dir, name), -1);
    return path;
}

static int open_room(void **state)
{
    struct room *room = ct_zalloc(sizeof *room);
    struct stage_scan *scan;
    struct ctrun_error err;
    char copies[STAGE_TEXT_NAME_MAX];
    char list[PATH_MAX];
    int rc;

    (void)ct_copy(room->dir, sizeof room->dir, "/tmp/ctrun-stage-test-XXXXXX");
    assert_non_null(mkdtemp(room->dir));
    room->size = STAGE_CHUNK_BYTES + 1000;
    room->content = ct_zalloc(room->size);
    for (size_t i = 0; i < room->size; i++)
        room->content[i] = (uint8_t)(i * 31 >> 3);
    assert_int_equal(mkdir(path_in(room, "data"), 0755), 0);
    write_file(path_in(room, "data/f"), room->content, room->size);
    assert_int_equal(symlink("/nowhere", path_in(room, "data/l")), 0);
    /* Folders of copies do not belong to the source, even below it: this machine's disk may be
     * there. */
    stage_text_folder(copies, getuid());
    (void)ct_format(list, sizeof list, "%s/data/%s", room->dir, copies);
    assert_int_equal(mkdir(list, 0700), 0);
    (void)ct_copy(list, sizeof list, path_in(room, "data"));
    assert_int_equal(stage_scan_open(&scan, &room->manifest, list, "/", &err), 0);
    room->manifest.dir = ct_strdup("");
    room->manifest.program = ct_strdup("");
    while ((rc = stage_scan_step(scan, &err)) == 1)
        ;
    assert_int_equal(rc, 0);
    assert_int_equal(stage_scan_bytes(scan), room->size);
    assert_int_equal(room->manifest.count, 3);
    stage_scan_close(scan);
    *state = room;
    return 0;
}

static int close_room(void **state)
{
    struct room *room = *state;

    assert_int_equal(stage_tree_remove(AT_FDCWD, room->dir), 0);
    assert_int_not_equal(access(room->dir, F_OK), 0);
    stage_manifest_deinit(&room->manifest);
    free(room->content);
    free(room);
    return 0;
}

static struct stage_store *open_store(struct room *room)
{
    struct stage_store *store = NULL;
    struct ctrun_error err;
    int rc;

    assert_int_equal(stage_store_open(&store, &room->manifest, room->dir, &err), 0);
    while ((rc = stage_store_check(store, &err)) == 1)
        ;
    assert_int_equal(rc, 0);
    return store;
}

static int put(struct stage_store *store, const struct room *room, uint32_t chunk)
{
    const size_t begin = (size_t)chunk * STAGE_CHUNK_BYTES;
    const size_t left = room->size - begin;
    struct ctrun_error err;

    return stage_store_put(store, chunk, 0, room->content + begin,
                           left < STAGE_CHUNK_BYTES ? left : STAGE_CHUNK_BYTES, &err);
}

static char *file_of(const struct stage_store *store)
{
    static char path[PATH_MAX];

    (void)ct_format(path, sizeof path, "%s/data/f", stage_store_path(store));
    return path;
}

TEST_AROUND(a_file_is_there_when_its_last_chunk_is_and_not_before, open_room,
            close_room)
{
    struct room *room = *state;
    struct stage_store *store = open_store(room);
    struct ctrun_error err;

    assert_int_equal(stage_store_needs(store)->count, 2);
    assert_int_equal(put(store, room, 0), 0);
    assert_int_not_equal(access(file_of(store), F_OK), 0);
    stage_store_close(store, false); /* as if the transfer had ended here */
    store = open_store(room);
    assert_int_equal(stage_store_needs(store)->count, 1);
    assert_int_equal(put(store, room, 1), 0);
    assert_int_equal(access(file_of(store), F_OK), 0);
    assert_int_equal(stage_store_settle(store, &err), 0);
    stage_store_close(store, false);
    store = open_store(room);
    assert_int_equal(stage_store_needs(store)->count, 0);
    assert_int_equal(stage_store_done(store), room->size);
    stage_store_close(store, true);
}

static struct stat look_at(const char *path)
{
    struct stat info;

    assert_int_equal(stat(path, &info), 0);
    return info;
}

TEST_AROUND(times_before_1970_rights_and_closed_folders_are_kept, open_room, close_room)
{
    struct room *room = *state;
    struct stage_entry *folder = &room->manifest.entries[0];
    struct stage_entry *file = &room->manifest.entries[1];
    struct stage_store *store;
    struct ctrun_error err;
    struct stat info;

    folder->mode = 0500;
    file->mtime_ns = -1500000000;
    store = open_store(room);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(put(store, room, i), 0);
    assert_int_equal(stage_store_settle(store, &err), 0);
    info = look_at(file_of(store));
    assert_int_equal(info.st_mtim.tv_sec, -2);
    assert_int_equal(info.st_mtim.tv_nsec, 500000000);
    assert_int_equal(info.st_mode & 07777, 0644);
    info = look_at(dirname(file_of(store)));
    /* Else the next run could not write there. */
    assert_int_equal(info.st_mode & 07777, 0700);
    stage_store_close(store, false);
    file->mode = 0755; /* chmod does not change the time */
    store = open_store(room);
    assert_int_equal(stage_store_needs(store)->count, 0);
    info = look_at(file_of(store));
    assert_int_equal(info.st_mode & 07777, 0755);
    stage_store_close(store, true);
}

/* Root may write everywhere. */
static bool become_nobody(const struct room *room)
{
    if (getuid() != 0)
        return false;
    assert_int_equal(chown(room->dir, NOBODY, (gid_t)-1), 0);
    assert_int_equal(setresuid(NOBODY, NOBODY, 0), 0);
    return true;
}

TEST_AROUND(what_workers_left_in_a_copy_goes_but_for_bytecode, open_room, close_room)
{
    struct room *room = *state;
    const bool was_root = become_nobody(room);
    struct stage_store *store = open_store(room);
    char cache[PATH_MAX];
    char made[PATH_MAX];
    char file[PATH_MAX];

    (void)ct_format(cache, sizeof cache, "%s/data/__pycache__",
                    stage_store_path(store));
    (void)ct_format(made, sizeof made, "%s/data/made", stage_store_path(store));
    (void)ct_format(file, sizeof file, "%s/data/made/x", stage_store_path(store));
    assert_int_equal(mkdir(cache, 0755), 0);
    assert_int_equal(mkdir(made, 0755), 0);
    write_file(file, "x", 1);
    assert_int_equal(chmod(made, 0555), 0);
    stage_store_close(store, false);
    store = open_store(room);
    assert_int_equal(access(cache, F_OK), 0);
    assert_int_not_equal(access(made, F_OK), 0);
    stage_store_close(store, true);
    if (was_root)
        assert_int_equal(setresuid(0, 0, 0), 0);
}

/* As after a disk that was full at the rename, or a SIGKILL before it. */
TEST_AROUND(a_part_that_has_the_rights_of_its_file_already_is_taken_anew, open_room,
            close_room)
{
    struct room *room = *state;
    const bool was_root = become_nobody(room);
    struct stage_store *store;
    char name[STAGE_TEXT_NAME_MAX];
    char part[PATH_MAX];

    store = open_store(room);
    assert_int_equal(put(store, room, 0), 0);
    stage_text_part(name, "data/f");
    (void)ct_format(part, sizeof part, "%s.parts/%s", stage_store_path(store), name);
    stage_store_close(store, false);
    assert_int_equal(chmod(part, 0444), 0);
    store = open_store(room);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(put(store, room, i), 0);
    assert_int_equal(access(file_of(store), F_OK), 0);
    stage_store_close(store, true);
    if (was_root)
        assert_int_equal(setresuid(0, 0, 0), 0);
}

TEST_AROUND(what_does_not_have_its_checksum_is_no_file, open_room, close_room)
{
    struct room *room = *state;
    struct stage_store *store = open_store(room);

    assert_int_equal(put(store, room, 0), 0);
    room->content[STAGE_CHUNK_BYTES] ^= 1;
    assert_int_equal(put(store, room, 1), CTRUN_E_STAGE);
    assert_int_not_equal(access(file_of(store), F_OK), 0);
    stage_store_close(store, false);
    store = open_store(room);
    assert_int_equal(stage_store_needs(store)->count, 1);
    stage_store_close(store, true);
}

TEST_AROUND(a_piece_out_of_its_turn_or_too_long_is_refused, open_room, close_room)
{
    struct room *room = *state;
    struct stage_store *store = open_store(room);
    struct ctrun_error err;

    assert_int_equal(stage_store_put(store, 0, 5, "x", 1, &err), CTRUN_E_STAGE);
    assert_int_equal(stage_store_put(store, 1, 0, room->content, 1001, &err),
                     CTRUN_E_STAGE);
    assert_int_equal(stage_store_put(store, 1, 0, room->content, 0, &err),
                     CTRUN_E_STAGE);
    assert_int_equal(stage_store_put(store, 1, 0, room->content, 500, &err), 0);
    assert_int_equal(stage_store_put(store, 1, 501, room->content, 1, &err),
                     CTRUN_E_STAGE);
    assert_int_equal(stage_store_put(store, 1, 500, room->content, 501, &err),
                     CTRUN_E_STAGE);
    assert_int_equal(stage_store_put(store, 0, 500, room->content, 1, &err),
                     CTRUN_E_STAGE);
    /* There is no such chunk. */
    assert_int_equal(stage_store_put(store, 2, 0, "x", 1, &err), 0);
    assert_int_equal(stage_store_put(store, UINT32_MAX, UINT32_MAX, "x", 1, &err), 0);
    stage_store_close(store, true);
}

TEST_AROUND(who_writes_has_a_slot_alone, open_room, close_room)
{
    struct room *room = *state;
    struct stage_store *first = open_store(room);
    struct stage_store *second = open_store(room);
    struct ctrun_error err;

    assert_string_not_equal(stage_store_path(first), stage_store_path(second));
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(put(first, room, i), 0);
    assert_int_equal(stage_store_settle(first, &err), 0);
    stage_store_close(second, true);
    second = open_store(room); /* the same copy, shared */
    assert_string_equal(stage_store_path(first), stage_store_path(second));
    assert_int_equal(stage_store_needs(second)->count, 0);
    stage_store_close(first, true); /* not removed while another one uses it */
    assert_int_equal(access(file_of(second), F_OK), 0);
    stage_store_close(second, true);
    assert_int_equal(rmdir(path_in(room, "data/..")), -1);
}

TEST_AROUND(a_ninth_user_of_other_content_is_told, open_room, close_room)
{
    struct room *room = *state;
    struct stage_store *stores[STAGE_SLOTS_MAX];
    struct stage_store *more = NULL;
    struct ctrun_error err;

    for (int i = 0; i < STAGE_SLOTS_MAX; i++)
        stores[i] = open_store(room);
    assert_int_equal(stage_store_open(&more, &room->manifest, room->dir, &err),
                     CTRUN_E_STAGE);
    assert_non_null(strstr(err.text, "use all 8 copies of these paths"));
    for (int i = 0; i < STAGE_SLOTS_MAX; i++)
        stage_store_close(stores[i], true);
}

TEST_AROUND(a_file_that_changed_meanwhile_is_named, open_room, close_room)
{
    struct room *room = *state;
    const struct stage_entry *file = stage_manifest_find(&room->manifest, "data/f");
    struct ctrun_error err;
    const int fd = stage_scan_open_file(&room->manifest, file, &err);

    assert_true(fd >= 0);
    /* As long as before, perhaps with other bytes. */
    assert_int_equal(futimens(fd, (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}),
                     0);
    close(fd);
    assert_int_equal(stage_scan_open_file(&room->manifest, file, &err), CTRUN_E_STAGE);
    write_file(path_in(room, "data/f"), "short", 5);
    assert_int_equal(stage_scan_open_file(&room->manifest, file, &err), CTRUN_E_STAGE);
    assert_non_null(strstr(err.text, "data/f: changed while"));
    assert_int_equal(unlink(path_in(room, "data/f")), 0);
    assert_int_equal(symlink("/etc/passwd", path_in(room, "data/f")), 0);
    assert_int_equal(stage_scan_open_file(&room->manifest, file, &err), CTRUN_E_STAGE);
}

TEST_AROUND(room_on_the_disk_is_asked_for, open_room, close_room)
{
    struct room *room = *state;
    struct stage_slot slot;
    struct ctrun_error err;

    assert_int_equal(stage_slot_open(&slot, room->dir, &err), 0);
    assert_int_equal(stage_slot_check_room(&slot, 1, &err), 0);
    assert_int_equal(stage_slot_check_room(&slot, UINT64_MAX, &err), CTRUN_E_STAGE);
    assert_non_null(strstr(err.text, "18.4 EB must be copied"));
    assert_non_null(strstr(err.text, "--stage-dir"));
    stage_slot_close(&slot);
    assert_int_equal(stage_slot_open(&slot, "relative", &err), CTRUN_E_STAGE);
    assert_int_equal(stage_slot_open(&slot, path_in(room, "none"), &err),
                     CTRUN_E_STAGE);
    assert_int_equal(err.code, CTRUN_E_STAGE);
}
