/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of held checkpoints: written by write() at first, through a mapping when it is used
 * again. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/hold/hold_memory.h"

enum {
    MOST = 700 * 1000
};

static uint8_t data[MOST], back[MOST + 1];

/* Writes a checkpoint of `length` bytes in writes of `step`; the file then has these bytes and no
 * more. */
static void save(struct ct_hold_memory *memory, size_t length, size_t step)
{
    uint32_t crc = 0;
    struct stat st;

    for (size_t at = 0; at < length; at += step)
        assert_int_equal(ct_hold_memory_write(memory, at, data + at,
                                              length - at < step ? length - at : step,
                                              &crc, NULL),
                         0);
    assert_int_equal(ct_hold_memory_cut(memory, length, NULL), 0);
    assert_int_equal(fstat(memory->fd, &st), 0);
    assert_int_equal(st.st_size, length);
    assert_int_equal(pread(memory->fd, back, sizeof back, 0), length);
    assert_memory_equal(back, data, length);
    assert_int_equal(crc, ct_crc32c(0, data, length));
}

TEST(whatever_its_length_it_has_the_bytes_and_their_sum)
{
    static const size_t lengths[] = {300001, 300001, 17,   0, 4096,
                                     262144, MOST,   MOST, 5, MOST};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ct_hold_memory memory;
    size_t before = 0;

    assert_int_equal(ct_hold_memory_open(&memory, NULL), 0);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t k = 0; k < MOST; k++)
            data[k] = (uint8_t)(k * k >> 3 ^ k >> 7 ^ i);
        if (i > 0)
            ct_hold_memory_map(&memory);
        /* What was used before is mapped, up to the last whole page, and not more. */
        assert_int_equal(memory.mapped, before / page * page);
        assert_true(!memory.map == (memory.mapped == 0));
        save(&memory, lengths[i], i % 2 ? 1000 : MOST);
        before = lengths[i];
    }
    ct_hold_memory_close(&memory);
    assert_int_equal(memory.fd, -1);
    ct_hold_memory_close(&memory);
}

TEST(mapped_memory_is_that_of_the_descriptor)
{
    struct ct_hold_memory memory;
    uint8_t *map;
    int other;

    assert_int_equal(ct_hold_memory_open(&memory, NULL), 0);
    save(&memory, MOST, MOST);
    ct_hold_memory_map(&memory);
    map = memory.map;
    data[4100] ^= 255;
    save(&memory, MOST, MOST);
    other = dup(memory.fd); /* as the agent has it */
    ct_hold_memory_map(&memory);
    assert_ptr_equal(memory.map, map); /* while the length is the same */
    ct_hold_memory_close(&memory);
    assert_int_equal(pread(other, back, MOST, 0), MOST);
    assert_memory_equal(back, data, MOST);
    close(other);
}
