/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/crash.h"

#include <fcntl.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/postmortem/crash_record.h"
#include "agent/postmortem/elf_symbols.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/module_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    FRAME_TEXT_MAX = CRASH_NAME_MAX + 128,
    FRAMES_JSON_MAX = 3072 /* an event has 4096 bytes */
};

/* The memory is the worker's own, and may hold anything. F_GET_SEALS fails on all descriptors
 * except memfds, such as a FIFO, whose read would wait. */
bool crash_is_recorded(int fd)
{
    struct ct_crash head;
    const size_t wanted = offsetof(struct ct_crash, frames);

    return fcntl(fd, F_GET_SEALS) >= 0 &&
           pread(fd, &head, wanted, 0) == (ssize_t)wanted &&
           head.magic == CT_CRASH_MAGIC && head.state != CT_CRASH_EMPTY;
}

/* ---- Names of functions, on a thread ------------------------------------------------------- */

static void resolve_module(struct crash_record *record, int number)
{
    const struct crash_module *module = &record->modules[number];
    struct elf_place places[CT_CRASH_FRAMES_MAX];
    int frames[CT_CRASH_FRAMES_MAX];
    int count = 0;
    int fd = module_file_open(0, module->path, module->inode);
    const struct elf_source source = {.context = &fd, .read = module_file_read};

    if (fd < 0)
        return;
    for (int i = 0; i < record->frame_count; i++)
        if (record->frames[i].module == number) {
            places[count] = (struct elf_place){
                .offset = crash_record_lookup(record, i) - module->start +
                          module->offset,
                .name = record->frames[i].function,
                .name_size = sizeof record->frames[i].function};
            frames[count++] = i;
        }
    /* Files of modules belong to the user, too: the reader checks every offset against the bytes
     * that it reads. */
    (void)elf_find_functions(&source, places, count); /* on failure: no names */
    for (int k = 0; k < count; k++) {
        struct crash_frame *frame = &record->frames[frames[k]];
        const uint64_t back = frame->pc - crash_record_lookup(record, frames[k]);

        frame->address = places[k].address ? places[k].address + back : 0;
        frame->function_offset = frame->address - places[k].start;
    }
    close(fd);
}

static void resolve(void *job)
{
    struct crash_record *record = job;

    for (int i = 0; i < record->module_count; i++)
        resolve_module(record, i);
}

/* Returns the record with function names, or unchanged when its files cannot be read in time.
 * The thread works on a copy: we free the copy when it returned in time, else the thread does. */
static struct crash_record *resolve_in_time(struct crash_record *record)
{
    static struct blocking_lane lane; /* no call for log files waits for it */
    struct crash_record *copy = ct_zalloc(sizeof *copy);

    if (!copy)
        return record;
    *copy = *record;
    if (blocking_call_in(&lane, resolve, free, copy, CRASH_RESOLVE_MS) < 0)
        return record;
    free(record);
    return copy;
}

/* ---- Reporting --------------------------------------------------------------------------- */

/* Recursive calls of one function are one line. */
static void add_frame_facts(struct ct_failure *failure,
                            const struct crash_record *record)
{
    char text[FRAME_TEXT_MAX];
    int times;

    for (int i = 0, shown = 0; i < record->frame_count && shown < CRASH_SHOWN_FRAMES;
         i += times, shown++) {
        crash_record_format_frame(record, i, text, sizeof text);
        for (times = 1; i + times < record->frame_count &&
                        record->frames[i + times].pc == record->frames[i].pc;)
            times++;
        if (times == 1)
            facts_add(failure, i == 0 ? CT_FACT_AT : CT_FACT_CALLED_BY, "%s", text);
        else
            facts_add(failure, i == 0 ? CT_FACT_AT : CT_FACT_CALLED_BY,
                      "%s, %d times%s", text, times,
                      i + times == CT_CRASH_FRAMES_MAX ? " or more" : "");
    }
}

static void add_facts(struct ct_failure *failure, const struct crash_record *record)
{
    char text[FRAME_TEXT_MAX];

    crash_record_describe(record, text, sizeof text);
    facts_add(failure, CT_FACT_FAULT, "%s%s", text,
              record->pid == failure->pid ? "" : " of a process that it started");
    add_frame_facts(failure, record);
}

/* As many frames as an event has room for. */
static void add_frames(struct ct_event *event, const struct crash_record *record)
{
    uint8_t json[FRAMES_JSON_MAX];
    char text[FRAME_TEXT_MAX];
    struct ct_writer out;

    ct_writer_init(&out, json, sizeof json);
    ct_write_raw(&out, "[", 1);
    for (int i = 0; i < record->frame_count; i++) {
        if (out.length + 2 * FRAME_TEXT_MAX > FRAMES_JSON_MAX)
            break;
        crash_record_format_frame(record, i, text, sizeof text);
        if (i > 0)
            ct_write_raw(&out, ",", 1);
        ct_json_write_str(&out, text);
    }
    ct_write_raw(&out, "]", 2); /* and a NUL */
    ct_event_raw(event, "frames", ct_write_end(&out) < 0 ? "[]" : (const char *)json);
}

static void emit(const struct ct_failure *failure, const struct crash_record *record)
{
    char address[32];
    struct ct_event event;

    (void)ct_format(address, sizeof address, "0x%llx",
                    (unsigned long long)record->address);
    ct_event_begin(&event, "worker_crashed");
    ct_event_int(&event, "generation", (int64_t)failure->generation);
    ct_event_int(&event, "rank", failure->rank);
    ct_event_int(&event, "worker_pid", failure->pid);
    ct_event_int(&event, "crashed_pid", record->pid);
    ct_event_int(&event, "thread", record->tid);
    ct_event_str(&event, "thread_name", record->thread);
    ct_event_int(&event, "signal", record->signal);
    ct_event_int(&event, "signal_code", record->code);
    ct_event_str(&event, "address", address);
    add_frames(&event, record);
    ct_event_end(&event);
}

/* The memory is copied and then decoded: a live process below the worker may still change it. */
bool crash_explain(struct ct_failure *failure, int fd)
{
    struct crash_record *record = ct_zalloc(sizeof *record);
    struct ct_crash *raw = ct_zalloc(sizeof *raw);
    bool is_named = false;

    if (record && raw && pread(fd, raw, sizeof *raw, 0) == (ssize_t)sizeof *raw &&
        crash_record_decode(raw, sizeof *raw, record) == 0) {
        record = resolve_in_time(record);
        add_facts(failure, record);
        emit(failure, record);
        is_named = true;
    } else {
        ct_info("crash record: not readable rank=%d", failure->rank);
    }
    free(raw);
    free(record);
    return is_named;
}
