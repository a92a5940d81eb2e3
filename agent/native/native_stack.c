/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/native/native_stack.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

/* ---- Frames ------------------------------------------------------------------------------ */

static enum native_end end_of(enum cfi_result result)
{
    switch (result) {
    case CFI_CALLER:
    case CFI_OUTERMOST: return NATIVE_WHOLE;
    case CFI_NO_ENTRY: return NATIVE_NO_ENTRY;
    case CFI_UNREADABLE: return NATIVE_UNREADABLE;
    case CFI_NO_REGISTER: return NATIVE_NO_REGISTER;
    case CFI_NO_MEMORY: return NATIVE_NO_MEMORY;
    }
    return NATIVE_UNREADABLE;
}

/* Goes to the caller of the frame, which is at `place`. */
static enum native_end step(struct cfi_frame *frame, struct native_room *room,
                            uint64_t place)
{
    const struct cfi_memory memory = {.context = &room->copy, .read = native_copy_read};
    const uint64_t stack = frame->values[CFI_RSP];
    uint64_t offset, address;
    struct native_module *module = native_modules_find(&room->modules, place, &offset);
    enum cfi_result result;

    if (!module)
        return NATIVE_NO_CODE;
    if (!native_module_use(module))
        return NATIVE_NO_FILE;
    if ((address = cfi_file_address(&module->file, offset)) == 0)
        return NATIVE_NO_ENTRY;
    result = cfi_step(frame, &module->file, place - address, &memory, &room->cfi);
    if (result == CFI_CALLER && frame->is_returned && frame->values[CFI_RSP] <= stack)
        return NATIVE_UNREADABLE; /* the stack grows downwards */
    return end_of(result);
}

static void unwind(struct native_thread *thread, struct native_room *room)
{
    struct cfi_frame frame = room->copy.frame;

    thread->count = 0;
    thread->end = NATIVE_TOO_MANY;
    while (thread->count < NATIVE_FRAMES_MAX) {
        const uint64_t before = frame.values[CFI_RSP];
        const uint64_t place = frame.values[CFI_RIP] - frame.is_returned;

        thread->places[thread->count++] = place;
        thread->end = step(&frame, room, place);
        if (thread->end != NATIVE_WHOLE || frame.values[CFI_RIP] == 0 ||
            frame.values[CFI_RSP] == before) /* the outermost frame */
            return;
        thread->end = NATIVE_TOO_MANY;
    }
}

/* Reads without a stop if that is enough. */
static int read_thread(struct native_thread *thread, struct native_room *room)
{
    const pid_t pid = room->modules.pid;
    int rc = native_copy_asleep(&room->copy, pid, thread->id);

    thread->error = 0;
    thread->count = 0;
    thread->end = NATIVE_NOT_COPIED;
    if (rc == 0)
        unwind(thread, room);
    if (rc == -EPERM || (rc == 0 && thread->end != NATIVE_NO_REGISTER))
        return rc;
    rc = native_copy_stopped(&room->copy, pid, thread->id);
    if (rc == 0)
        unwind(thread, room);
    else
        thread->error = rc;
    return 0;
}

/* ---- Threads ----------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    const struct native_thread *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static void list_threads(struct native_room *room, pid_t pid)
{
    char path[64];
    DIR *tasks;

    room->count = 0;
    room->is_cut = false;
    (void)ct_format(path, sizeof path, "/proc/%d/task", (int)pid);
    if (!(tasks = opendir(path)))
        return;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        int64_t id;

        if (ct_parse_i64(entry->d_name, 1, INT32_MAX, &id) < 0)
            continue;
        if ((room->is_cut = room->count == NATIVE_THREADS_MAX))
            break;
        room->threads[room->count++].id = (pid_t)id;
    }
    closedir(tasks);
    qsort(room->threads, (size_t)room->count, sizeof room->threads[0], compare_ids);
}

const struct native_thread *native_stack_find(const struct native_room *room, pid_t id)
{
    const struct native_thread key = {.id = id};

    return bsearch(&key, room->threads, (size_t)room->count, sizeof room->threads[0],
                   compare_ids);
}

/* ---- A process --------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum {
    IS_KNOWN_PROCESSOR = 1
};
#else
enum {
    IS_KNOWN_PROCESSOR = 0
};
#endif

int native_stack_read(struct native_room *room, pid_t pid)
{
    int rc;

    room->count = 0;
    if (!IS_KNOWN_PROCESSOR)
        return -ENOTSUP;
    if (room->until_ms == 0)
        room->until_ms = ct_deadline_ms(NATIVE_NAMES_MS);
    if ((rc = native_modules_open(&room->modules, pid)) < 0)
        return rc;
    list_threads(room, pid);
    if (room->count == 0)
        return -ESRCH;
    for (int i = 0; i < room->count; i++)
        if ((rc = read_thread(&room->threads[i], room)) < 0) {
            room->count = 0;
            return rc;
        }
    for (int i = 0; i < room->count; i++)
        native_names_find(&room->names, &room->modules, room->threads[i].places,
                          room->threads[i].count, room->until_ms);
    return 0;
}

void native_stack_forget(struct native_room *room)
{
    native_modules_close(&room->modules);
    room->count = 0;
}

void native_stack_format(char *dst, size_t size, const struct native_room *room,
                         uint64_t place)
{
    uint64_t offset;
    const struct native_module *module = native_modules_find(&room->modules, place,
                                                             &offset);
    const char *file = module ? ct_base_name(module->path) : "";
    const char *name = module ? native_names_get(&room->names, module, offset) : "";

    if (!module)
        (void)ct_format(dst, size, "0x%" PRIx64 ", in no file", place);
    else if (*name)
        (void)ct_format(dst, size, "%s (%s)", name, file);
    else
        (void)ct_format(dst, size, "%s+0x%" PRIx64, file,
                        module->is_open ? cfi_file_address(&module->file, offset)
                                        : offset);
    ct_make_plain(dst, false);
}
