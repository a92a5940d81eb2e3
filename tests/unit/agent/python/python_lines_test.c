/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of one function, from the tables that CPython 3.9, 3.10 and 3.11 make of it:
 *
 *      4  def f(a,
 *      5        b):
 *      6      for i in range(a):
 *      7          try:
 *      8              b = (a +
 *      9                   i)
 *     10          finally:
 *     11              a = [x
 *     12                   for x in b]
 *     16      return a
 */
#include "tests/lib/test.h"

#include "agent/python/python_lines.h"

struct place {
    int at, line; /* up to the next entry */
};

static void check(enum python_lines format, const uint8_t *table, size_t length,
                  const struct place *places, size_t count, int end)
{
    for (size_t i = 0; i < count; i++)
        for (int at = places[i].at; at < (i + 1 < count ? places[i + 1].at : end);
             at += 2)
            assert_int_equal(python_lines_find(format, table, length, 4, at),
                             places[i].line);
    assert_int_equal(python_lines_find(format, table, length, 4, -2), 4);
}

#define CHECK(format, table, places, end)                                              \
    check(format, table, sizeof(table), places, sizeof(places) / sizeof *(places), end)

static const struct place of_pairs[] = {{0, 6},   {12, 7},  {14, 8},  {16, 9},
                                        {18, 8},  {24, 11}, {30, 12}, {32, 11},
                                        {46, 12}, {48, 11}};

TEST(lnotab)
{
    static const uint8_t table[] = {0, 2, 12, 1, 2,   1,  2, 1, 2,   255, 6,
                                    3, 6, 1,  2, 255, 14, 1, 2, 255, 10,  5};

    CHECK(PYTHON_LNOTAB, table, of_pairs, 58);
    assert_int_equal(python_lines_find(PYTHON_LNOTAB, table, sizeof table, 4, 60), 16);
    assert_int_equal(python_lines_find(PYTHON_LNOTAB, table, 0, 4, 60), 4);
}

TEST(linetable)
{
    static const uint8_t table[] = {12, 2, 2, 1,  2,   1, 2, 1, 6,   255, 6,
                                    3,  2, 1, 14, 255, 2, 1, 8, 255, 4,   5};
    static const uint8_t gap[] = {2, 1, 4, 0x80, 2, 2};

    CHECK(PYTHON_LINETABLE, table, of_pairs, 56);
    assert_int_equal(python_lines_find(PYTHON_LINETABLE, table, sizeof table, 4, 58),
                     16);
    assert_int_equal(python_lines_find(PYTHON_LINETABLE, table, sizeof table, 4, 60),
                     0);
    assert_int_equal(python_lines_find(PYTHON_LINETABLE, gap, sizeof gap, 4, 0), 5);
    assert_int_equal(python_lines_find(PYTHON_LINETABLE, gap, sizeof gap, 4, 4), 0);
    assert_int_equal(python_lines_find(PYTHON_LINETABLE, gap, sizeof gap, 4, 6), 7);
}

TEST(locations)
{
    static const uint8_t table[] = {
        128, 0,   229, 13, 18,  144, 49,  137, 88,  140, 88, 240, 0,   6,   5,
        29,  240, 0,   6,  5,   29,  136, 1,   240, 2,   5,  9,   29,  216, 17,
        18,  216, 17,  18, 241, 3,   1,   18,  19,  136, 65, 240, 6,   1,   17,
        29,  240, 0,   1,  17,  29,  216, 26,  27,  240, 3,  1,   17,  29,  241,
        0,   1,   17,  29, 244, 0,   1,   17,  29,  136, 65, 136, 65,  248, 240,
        0,   1,   17,  29, 240, 0,   1,   17,  29,  216, 26, 27,  240, 3,   1,
        17,  29,  241, 0,  1,   17,  29,  244, 0,   1,   17, 29,  136, 65,  240,
        0,   1,   13,  29, 240, 0,   1,   13,  29,  240, 0,  1,   13,  29,  240,
        0,   1,   13,  29, 240, 10,  0,   12,  13,  128, 72};
    static const struct place places[] = {
        {0, 4},   {2, 6},   {36, 7}, {38, 8},  {40, 9},  {42, 8},  {48, 11},
        {52, 12}, {54, 11}, {74, 0}, {76, 11}, {80, 12}, {82, 11}, {108, 16}};

    CHECK(PYTHON_LOCATIONS, table, places, 112);
    assert_int_equal(python_lines_find(PYTHON_LOCATIONS, table, sizeof table, 4, 112),
                     0);
    for (size_t length = 0; length < sizeof table; length++) /* cut at any length */
        for (int at = 0; at < 120; at += 2)
            (void)python_lines_find(PYTHON_LOCATIONS, table, length, 4, at);
}
