/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/crash_record.h"

#include <errno.h>
#include <signal.h>

#include "worker_sdk/base/str.h"

enum {
    LINE_MAX_BYTES = 1024,
    STACK_ABOVE_BYTES = 4096,      /* a call's push, a red zone */
    STACK_BELOW_BYTES = 256 * 1024 /* one step of a function with large arrays */
};

/* ---- Decode -------------------------------------------------------------------------- */

/* "START-END PERMISSIONS OFFSET MAJOR:MINOR INODE    PATH". */
static bool parse_module(const char *line, struct crash_module *module)
{
    unsigned long long start, end, offset, inode;
    int path = 0;

    if (sscanf(line, "%llx-%llx %*4s %llx %x:%x %llu %n", // NOLINT(cert-err34-c)
               &start, &end, &offset, &module->device_major, &module->device_minor,
               &inode, &path) != 6 ||
        path == 0 || start >= end)
        return false;
    module->start = start;
    module->end = end;
    module->offset = offset;
    module->inode = inode;
    (void)ct_format(module->path, sizeof module->path, "%s", line + path);
    return strlen(line + path) < sizeof module->path;
}

static void decode_modules(const char *text, size_t length, struct crash_record *out)
{
    char line[LINE_MAX_BYTES];

    while (length > 0 && out->module_count < CT_CRASH_FRAMES_MAX) {
        const char *end = memchr(text, '\n', length);
        const size_t taken = end ? (size_t)(end - text) : length;

        if (taken < sizeof line) {
            memcpy(line, text, taken);
            line[taken] = '\0';
            if (parse_module(line, &out->modules[out->module_count]))
                out->module_count++;
        }
        text += taken + (end ? 1 : 0);
        length -= taken + (end ? 1 : 0);
    }
}

static int find_module(const struct crash_record *record, uint64_t pc)
{
    for (int i = 0; i < record->module_count; i++)
        if (pc >= record->modules[i].start && pc < record->modules[i].end)
            return i;
    return -1;
}

/* Frames end at the first one outside code; after a wild jump already the first one is. */
static void decode_frames(const uint64_t *frames, uint32_t count,
                          struct crash_record *out)
{
    for (uint32_t i = 0; i < count; i++) {
        struct crash_frame *frame = &out->frames[i];

        frame->pc = frames[i];
        frame->module = find_module(out, frames[i]);
        if (i > 0 && frame->module < 0)
            return;
        out->frame_count++;
    }
}

/* No field is trusted: a process wrote them during a crash, its memory may have been
 * overwritten, and it may still be writing. */
int crash_record_decode(const void *bytes, size_t size, struct crash_record *out)
{
    struct ct_crash raw;
    uint32_t frames;
    uint32_t length;

    memset(out, 0, sizeof *out);
    if (size != sizeof raw)
        return -EBADMSG;
    memcpy(&raw, bytes, sizeof raw);
    if (raw.magic != CT_CRASH_MAGIC || raw.version != CT_CRASH_VERSION)
        return -EBADMSG;
    if (raw.state == CT_CRASH_EMPTY)
        return -ENOENT;
    frames = raw.frame_count;
    length = raw.modules_length;
    if (frames > CT_CRASH_FRAMES_MAX || length > sizeof raw.modules)
        return -EBADMSG;
    out->signal = raw.signal;
    out->code = raw.code;
    out->pid = raw.pid;
    out->tid = raw.tid;
    out->address = raw.address;
    out->stack = raw.stack;
    memcpy(out->thread, raw.thread, sizeof raw.thread);
    decode_modules(raw.modules, length, out);
    decode_frames(raw.frames, frames, out);
    return 0;
}

/* A return address is where the call continues, perhaps already in the next function; the byte before it
 * belongs to the call. */
uint64_t crash_record_lookup(const struct crash_record *record, int frame)
{
    return record->frames[frame].pc - (frame > 0 ? 1 : 0);
}

/* ---- For people ---------------------------------------------------------------------- */

/* An access near the stack pointer to an unmapped address: the guard page below a stack, or the
 * memory under it when one function takes a large step. */
static bool is_overflow(const struct crash_record *record)
{
    return record->signal == SIGSEGV && record->stack &&
           record->address < record->stack + STACK_ABOVE_BYTES &&
           record->address + STACK_BELOW_BYTES > record->stack;
}

static const char *explain_code(const struct crash_record *record)
{
    static const struct {
        int signal;
        int code;
        const char *text;
    } codes[] = {
        {SIGSEGV, SEGV_MAPERR, "nothing is mapped there"},
        {SIGSEGV, SEGV_ACCERR, "the memory there does not allow this access"},
        {SIGBUS, BUS_ADRALN, "it is not aligned"},
        {SIGBUS, BUS_ADRERR,
         "beyond the end of the mapped file, or its file system is full"},
        {SIGBUS, BUS_MCEERR_AR, "the hardware reports a memory error there"},
        {SIGBUS, BUS_MCEERR_AO, "the hardware reports a memory error there"},
        {SIGFPE, FPE_INTDIV, "integer division by zero"},
        {SIGFPE, FPE_INTOVF, "integer overflow"},
        {SIGFPE, FPE_FLTDIV, "floating-point division by zero"},
        {SIGFPE, FPE_FLTINV, "invalid floating-point operation"},
        {SIGILL, ILL_ILLOPC, "no instruction of this processor"},
        {SIGILL, ILL_ILLOPN, "no instruction of this processor"},
    };

    if (is_overflow(record))
        return "the stack has overflowed";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].signal == record->signal && codes[i].code == record->code)
            return codes[i].text;
    return NULL;
}

void crash_record_describe(const struct crash_record *record, char *dst, size_t size)
{
    const char *why = explain_code(record);
    char where[128];

    /* si_code <= 0: a process sent the signal, and `address` is the sender's pid. */
    if (record->code <= 0 && record->address != (uint64_t)record->pid)
        (void)ct_format(where, sizeof where, "sent by process %llu",
                        (unsigned long long)record->address);
    else if (record->code <= 0)
        (void)ct_copy(where, sizeof where, "raised by itself");
    else if (record->signal == SIGSEGV && record->code == SI_KERNEL)
        (void)ct_copy(where, sizeof where,
                      "no valid address, or not aligned for the instruction");
    else
        (void)ct_format(where, sizeof where, "address 0x%llx%s%s",
                        (unsigned long long)record->address, why ? ": " : "",
                        why ? why : "");
    if (record->tid == record->pid)
        (void)ct_format(dst, size, "%s; in the main thread", where);
    else
        (void)ct_format(dst, size, "%s; in thread %d (%s)", where, record->tid,
                        record->thread);
}

void crash_record_format_frame(const struct crash_record *record, int number, char *dst,
                               size_t size)
{
    const struct crash_frame *frame = &record->frames[number];
    const char *name = frame->module < 0
                           ? ""
                           : ct_base_name(record->modules[frame->module].path);

    if (frame->function[0])
        (void)ct_format(dst, size, "%s+0x%llx (%.64s)", frame->function,
                        (unsigned long long)frame->function_offset, name);
    else if (frame->address && *name)
        (void)ct_format(dst, size, "%.64s+0x%llx", name,
                        (unsigned long long)frame->address);
    else
        (void)ct_format(dst, size, "0x%llx (%s)", (unsigned long long)frame->pc,
                        frame->module < 0 ? "there is no code"
                        : *name           ? name
                                          : "anonymous memory");
}
