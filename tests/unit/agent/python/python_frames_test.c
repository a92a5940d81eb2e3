/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a Python process made by hand, as the _Py_DebugOffsets of 3.13 and 3.14 describe it
 * (CPython's Include/internal/pycore_debug_offsets.h): one thread in f() at line 7 of a.py, called
 * by a C frame. */
#include <string.h>

#include "agent/python/python_frames.h"
#include "tests/lib/test.h"

enum {
    IMAGE_BYTES = 16384,
    /* Addresses. */
    INTERPRETER = 0x1000,
    THREAD = 0x1100,
    INNER = 0x1200,
    BASE = 0x1280,
    CODE = 0x1300,
    NAME = 0x1400,
    FILE_NAME = 0x1480,
    LINES = 0x1500,
    OWNED_BY_THREAD = 0,
    OWNED_BY_INTERPRETER = 3
};

/* Numbers of 8 bytes: the position of a member's offset in each version, and the offset in this
 * image. */
struct member {
    int of_13, of_14;
    uint64_t offset;
};

static const struct member members[] = {
    {4, 4, 0x800},                                  /* interpreters_head */
    {7, 7, 0x10},   {8, 8, 0x18},                   /* next, threads_head */
    {20, 23, 0x10}, {22, 25, 0x18}, {24, 27, 0x20}, /* next, current_frame, id */
    {28, 31, 0x08}, {29, 32, 0x00}, {30, 33, 0x38}, /* previous, executable, */
    {32, 35, 0x46},                                 /* instr_ptr, owner */
    {34, 39, 0x70}, {36, 41, 0x80}, {37, 42, 0x88}, /* filename, qualname, table */
    {38, 43, 0x44}, {42, 47, 0xc8},                 /* firstlineno, code */
    {64, 74, 0x10}, {65, 75, 0x20},                 /* bytes */
    {67, 77, 0x20}, {68, 78, 0x10}, {69, 79, 0x28}, /* str */
};

struct image {
    uint8_t bytes[IMAGE_BYTES];
};

static bool read_image(void *context, uint64_t address, void *dst, size_t length)
{
    const struct image *image = context;

    if (address > IMAGE_BYTES || length > IMAGE_BYTES - address)
        return false;
    memcpy(dst, image->bytes + address, length);
    return true;
}

static void put(struct image *image, uint64_t address, uint64_t value, size_t size)
{
    memcpy(image->bytes + address, &value, size);
}

static void put_text(struct image *image, uint64_t address, const char *text)
{
    put(image, address + 0x10, strlen(text), 8);
    put(image, address + 0x20, 1 << 2 | 1 << 5 | 1 << 6,
        4); /* of bytes, compact, ASCII */
    memcpy(image->bytes + address + 0x28, text, strlen(text));
}

static void put_number(struct image *image, int index, uint64_t value)
{
    put(image, 8 + 8 * (uint64_t)index, value, 8);
}

/* `tag`: low bits that 3.14 sets in a reference. */
static struct image *make(int minor, unsigned tag)
{
    static struct image image;

    memset(&image, 0, sizeof image);
    memcpy(image.bytes, "xdebugpy", 8);
    put_number(&image, 0, 0x03000000u | (unsigned)minor << 16 | 0x02f0);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        put_number(&image, minor == 13 ? members[i].of_13 : members[i].of_14,
                   members[i].offset);
    put(&image, 0x800, INTERPRETER, 8);
    put(&image, INTERPRETER + 0x18, THREAD, 8);
    put(&image, THREAD + 0x18, INNER, 8);
    put(&image, THREAD + 0x20, 812, 8);
    put(&image, INNER, CODE | tag, 8);
    put(&image, INNER + 0x08, BASE, 8);
    put(&image, INNER + 0x38, CODE + 0xc8 + 4, 8); /* the third instruction */
    put(&image, INNER + 0x46, OWNED_BY_THREAD, 1);
    put(&image, BASE, CODE | tag, 8); /* its executable does not matter */
    put(&image, BASE + 0x46, OWNED_BY_INTERPRETER, 1);
    put(&image, CODE + 0x70, FILE_NAME, 8);
    put(&image, CODE + 0x80, NAME, 8);
    put(&image, CODE + 0x88, LINES, 8);
    put(&image, CODE + 0x44, 5, 4);
    put_text(&image, NAME, "f");
    put_text(&image, FILE_NAME, "a.py");
    /* Two instructions of line 5, then two that are two lines further. */
    put(&image, LINES + 0x10, 5, 8);
    memcpy(image.bytes + LINES + 0x20, "\xd1\x00\x00\xe1\x00", 5);
    return &image;
}

static void check_thread(void *context, const struct python_thread *thread)
{
    (*(int *)context)++;
    assert_int_equal(thread->native_id, 812);
    assert_int_equal(thread->count, 1); /* the C frame is left out */
    assert_string_equal(thread->frames[0].function, "f");
    assert_string_equal(thread->frames[0].file, "a.py");
    assert_int_equal(thread->frames[0].line, 7);
}

static void check(int minor, unsigned tag)
{
    static struct python_room room;
    struct image *image = make(minor, tag);
    const struct python_memory memory = {.context = image, .read = read_image};
    struct python_offsets offsets;
    int seen = 0;

    assert_true(python_offsets_read(&offsets, image->bytes, IMAGE_BYTES));
    assert_int_equal(offsets.minor, minor);
    assert_int_equal(
        python_frames_walk(&memory, &offsets, 0, &room, check_thread, &seen), 1);
    assert_int_equal(seen, 1);
}

TEST(frames_are_read_as_3_13_describes_itself)
{
    check(13, 0);
}

TEST(frames_are_read_as_3_14_describes_itself_with_tagged_references)
{
    check(14, 0);
    check(14, 1);
}

struct seen {
    int count;
    uint64_t first, last;
};

static void note_thread(void *context, const struct python_thread *thread)
{
    struct seen *seen = context;

    if (seen->count++ == 0)
        seen->first = thread->native_id;
    seen->last = thread->native_id;
}

/* The list begins with the newest thread; the main thread, which is read first, is its end. */
TEST(the_main_thread_is_read_however_many_threads_there_are)
{
    enum {
        THREADS = PYTHON_THREADS_MAX + 9,
        AT = 0x2000
    };
    static struct python_room room;
    struct image *image = make(14, 0);
    const struct python_memory memory = {.context = image, .read = read_image};
    struct python_offsets offsets;
    struct seen seen = {0};

    put(image, INTERPRETER + 0x18, AT, 8);
    for (uint64_t i = 1; i <= THREADS; i++) {
        const uint64_t thread = AT + (THREADS - i) * 0x30;

        put(image, thread + 0x10, i > 1 ? thread + 0x30 : 0, 8);
        put(image, thread + 0x20, i, 8);
    }
    assert_true(python_offsets_read(&offsets, image->bytes, IMAGE_BYTES));
    assert_int_equal(
        python_frames_walk(&memory, &offsets, 0, &room, note_thread, &seen),
        PYTHON_THREADS_MAX);
    assert_int_equal(seen.count, PYTHON_THREADS_MAX);
    assert_int_equal(seen.first, 1);
    assert_int_equal(seen.last, THREADS);
}

TEST(what_does_not_fit_is_refused)
{
    struct python_offsets offsets;
    struct image *image = make(14, 1);

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        put_number(image, members[i].of_14, UINT16_MAX + 1);
        assert_false(python_offsets_read(&offsets, image->bytes, IMAGE_BYTES));
        put_number(image, members[i].of_14, members[i].offset);
    }
    assert_true(python_offsets_read(&offsets, image->bytes, IMAGE_BYTES));
    assert_false(
        python_offsets_read(&offsets, image->bytes, PYTHON_DEBUG_OFFSETS_BYTES - 1));
    put_number(image, 1, 1); /* a build without the global lock has another layout */
    assert_false(python_offsets_read(&offsets, image->bytes, IMAGE_BYTES));
    put_number(image, 1, 0);
    put_number(image, 0, 0x030f00f0);
    assert_false(python_offsets_read(&offsets, image->bytes, IMAGE_BYTES));
}
