/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/python_frames.h"

#include "agent/python/python_lines.h"

enum {
    INTERPRETERS_MAX = 16,
    STEPS_MAX = 4096, /* limit for a linked list that is broken */
    OWNED_BY_C = 3,   /* and higher: a frame that only leads from C back into Python */
    TAG_BITS = 3,     /* tag bits of a reference in a frame, from 3.14 on */
    STATE_KIND = 0x1c,
    STATE_COMPACT = 0x20,
    STATE_ASCII = 0x40
};

struct walk {
    const struct python_memory *memory;
    const struct python_offsets *offsets;
    struct python_room *room;
};

static uint64_t read_word(const struct walk *walk, uint64_t address)
{
    uint64_t word = 0;

    return walk->memory->read(walk->memory->context, address, &word, sizeof word) ? word
                                                                                  : 0;
}

static int read_int(const struct walk *walk, uint64_t address)
{
    int value = 0;

    return walk->memory->read(walk->memory->context, address, &value, sizeof value)
               ? value
               : 0;
}

/* ---- Names and lines --------------------------------------------------------------------- */

/* Reads a str; false if there is none. Keeps the end of a long file name, which says more. */
static bool read_text(const struct walk *walk, uint64_t text, char *dst, size_t size)
{
    const struct python_offsets *o = walk->offsets;
    const uint64_t length = read_word(walk, text + o->text_length);
    const int state = read_int(walk, text + o->text_state);
    const size_t width = (size_t)(state & STATE_KIND) >> 2; /* bytes per character */
    const size_t taken = length < size - 1 ? (size_t)length : size - 1;
    uint64_t data = text + (state & STATE_ASCII ? o->text_ascii : o->text_compact);
    uint8_t character[4] = {0};

    if (text == 0 || length == 0 || length > 1 << 20 || !(state & STATE_COMPACT) ||
        (width != 1 && width != 2 && width != 4))
        return false;
    data += (length - taken) * width;
    if (width == 1 && !walk->memory->read(walk->memory->context, data, dst, taken))
        return false;
    for (size_t i = 0; i < taken; i++) {
        if (width > 1 && !walk->memory->read(walk->memory->context, data + i * width,
                                             character, width))
            return false;
        if (width > 1)
            dst[i] = character[1] | character[2] | character[3] ? '?'
                                                                : (char)character[0];
        if (dst[i] < ' ' || dst[i] > '~') /* other characters, and control characters */
            dst[i] = '?';
    }
    dst[taken] = '\0';
    return true;
}

static int read_line(struct walk *walk, uint64_t code, int64_t at)
{
    const struct python_offsets *o = walk->offsets;
    const uint64_t table = read_word(walk, code + o->code_lines);
    const uint64_t length = table ? read_word(walk, table + o->bytes_size) : 0;
    uint8_t *lines = walk->room->lines;

    if (length > sizeof walk->room->lines ||
        !walk->memory->read(walk->memory->context, table + o->bytes_data, lines,
                            length))
        return 0;
    return python_lines_find(o->lines, lines, length,
                             read_int(walk, code + o->code_firstlineno), at);
}

/* ---- Frames ------------------------------------------------------------------------------ */

/* False: this frame has no user's code. */
static bool read_frame(struct walk *walk, uint64_t frame, struct python_frame *out)
{
    const struct python_offsets *o = walk->offsets;
    const uint64_t code = read_word(walk, frame + o->frame_code) & ~(uint64_t)TAG_BITS;
    uint8_t owner = 0;
    int64_t at;

    if (o->frame_owner && (!walk->memory->read(walk->memory->context,
                                               frame + o->frame_owner, &owner, 1) ||
                           owner >= OWNED_BY_C))
        return false;
    if (code == 0 ||
        !read_text(walk, read_word(walk, code + o->code_filename), out->file,
                   sizeof out->file) ||
        !read_text(walk, read_word(walk, code + o->code_name), out->function,
                   sizeof out->function))
        return false;
    if (o->has_frame_objects) /* in bytes; from 3.10 on in units of two bytes */
        at = (int64_t)read_int(walk, frame + o->frame_instr) * (o->minor >= 10 ? 2 : 1);
    else
        at = (int64_t)(read_word(walk, frame + o->frame_instr) -
                       (code + o->code_start));
    out->line = read_line(walk, code, at);
    return true;
}

static void read_thread(struct walk *walk, uint64_t address)
{
    const struct python_offsets *o = walk->offsets;
    struct python_thread *thread = &walk->room->thread;
    uint64_t frame = read_word(walk, address + o->thread_frame);

    thread->count = 0;
    thread->native_id = o->thread_native_id
                            ? read_word(walk, address + o->thread_native_id)
                            : 0;
    if (o->has_cframe && frame)
        frame = read_word(walk, frame + o->cframe_frame);
    for (int steps = 0; frame && steps < STEPS_MAX; steps++) {
        if (thread->count == PYTHON_FRAMES_MAX)
            break;
        thread->count += read_frame(walk, frame, &thread->frames[thread->count]);
        frame = read_word(walk, frame + o->frame_previous);
    }
    thread->is_cut = frame != 0;
}

int python_frames_walk(
    const struct python_memory *memory, const struct python_offsets *offsets,
    uint64_t runtime, struct python_room *room,
    void (*on_thread)(void *context, const struct python_thread *thread), void *context)
{
    struct walk walk = {.memory = memory, .offsets = offsets, .room = room};
    uint64_t interpreter = read_word(&walk, runtime + offsets->interpreters);
    int total = 0;

    for (int n = 0; interpreter && n < INTERPRETERS_MAX; n++) {
        uint64_t threads[PYTHON_THREADS_MAX];
        uint64_t at = read_word(&walk, interpreter + offsets->threads);
        int count = 0;

        for (int steps = 0; at && steps < STEPS_MAX; steps++) {
            count += count < PYTHON_THREADS_MAX;
            threads[count - 1] = at; /* the oldest takes the place of others */
            at = read_word(&walk, at + offsets->thread_next);
        }
        total += count;
        while (count > 0) { /* the list begins with the newest */
            read_thread(&walk, threads[--count]);
            on_thread(context, &room->thread);
        }
        interpreter = read_word(&walk, interpreter + offsets->interpreter_next);
    }
    return total;
}
