/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as text: one is added where it belongs. */
#include "agent/watch/rank_list.h"

#include <stdio.h>

#include "tests/lib/test.h"

TEST(a_rank_is_added_in_its_place)
{
    static const struct {
        const char *text;
        int rank;
        const char *longer; /* NULL: it is not added */
    } rows[] = {
        {"", 3, "3"},
        {"0-1, 3", 2, "0-3"},
        {"1, 5-7", 0, "0-1, 5-7"},
        {"1, 5-7", 12, "1, 5-7, 12"},
        {"0-1, 3", 1, NULL},
        {"0-1, 3", 3, NULL},
        {"0-2000", 4000, NULL},
        {"x", 1, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];

        snprintf(text, sizeof text, "%s", rows[i].text);
        assert_int_equal(rank_list_add(text, sizeof text, rows[i].rank),
                         rows[i].longer != NULL);
        assert_string_equal(text, rows[i].longer ? rows[i].longer : rows[i].text);
    }
}

TEST(a_list_without_room_stays_as_it_is)
{
    char text[8] = "1, 3, 5";

    assert_false(rank_list_add(text, sizeof text, 7));
    assert_string_equal(text, "1, 3, 5");
}
